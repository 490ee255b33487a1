"""Open Inference Protocol v2, asked by hand and by Triton's own client."""

from __future__ import annotations

import json

import numpy as np
import pytest
from running_service import AFFINE_REQUEST, RunningService, Y


def test_the_server_and_its_models_describe_themselves(service: RunningService) -> None:
    assert service.ask("GET", "/v2/health/live").status == 200
    assert service.ask("GET", "/v2/health/ready").status == 200
    assert service.ask("GET", "/v2").document["name"] == "edgectl"
    metadata = service.ask("GET", "/v2/models/affine").document
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [4, 8]}]
    assert metadata["versions"] == ["1"]
    assert service.ask("GET", "/v2/models/affine/versions/1").document == metadata


def test_json_in_and_out(service: RunningService) -> None:
    answer = service.ask("POST", "/v2/models/affine/infer", {**AFFINE_REQUEST, "id": "a1"})
    assert answer.status == 200, answer.body
    assert answer.document == {
        "model_name": "affine",
        "model_version": "1",
        "id": "a1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [4, 8], "data": Y}],
    }


def test_nested_data_is_the_same_as_flat(service: RunningService) -> None:
    nested = np.arange(32.0).reshape(4, 8).tolist()
    request = {"inputs": [{"name": "x", "shape": [4, 8], "datatype": "FP32", "data": nested}]}
    answer = service.ask("POST", "/v2/models/affine/infer", request)
    assert answer.document["outputs"][0]["data"] == Y


def _request(**changes: object) -> dict[str, object]:
    return {"inputs": [{**AFFINE_REQUEST["inputs"][0], **changes}]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "inputs"),
        ({"inputs": []}, "missing: x"),
        (_request(name="z"), "no input 'z'; it has x"),
        (_request(shape=[8, 4]), "expected 4x8xfloat32, got 8x4xfloat32"),
        (_request(shape=[4, -8]), "list of sizes"),
        (_request(datatype="INT8"), "x' is FP32, the request says 'INT8'"),
        (_request(data=[1.0] * 31), "shape"),
        (_request(data=["a"] * 32), "not FP32"),
        (_request(data=[[1.0], [1.0, 2.0]]), "full array"),
        (_request(data=[1e300] * 32), "too large"),
        (_request(data=[True] * 32), "not FP32"),
        ({"inputs": AFFINE_REQUEST["inputs"] * 2}, "given twice"),
        ({**AFFINE_REQUEST, "outputs": [{"name": "q"}]}, "no output 'q'; it has y"),
        ({**AFFINE_REQUEST, "parameters": {"timeout": "soon"}}, "microseconds"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    service: RunningService, document: object, words: str
) -> None:
    answer = service.ask("POST", "/v2/models/affine/infer", document)
    assert answer.status == 400
    assert words in answer.document["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"inputs": [NaN]}', b"1"])
def test_what_is_not_json_is_refused(service: RunningService, body: bytes) -> None:
    answer = service.ask("POST", "/v2/models/affine/infer", body=body)
    assert answer.status == 400
    assert "error" in answer.document


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/nothing", 404),
        ("GET", "/v2/models/affine/versions/7", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/v2/models/..%2f..%2fetc/config", 404),
        ("GET", "/v2/models/affine/infer", 405),
        ("POST", "/v2/models/affine", 405),
        ("POST", "/v2/repository/models/affine/load", 404),
        ("DELETE", "/", 405),
    ],
)
def test_addresses_that_are_not_there(
    service: RunningService, method: str, path: str, status: int
) -> None:
    assert service.ask(method, path).status == status


def test_tritons_client_works_unmodified(service: RunningService) -> None:
    from tritonclient import http as triton

    client = triton.InferenceServerClient(f"127.0.0.1:{service.port}")
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("affine", "1")
        assert client.get_model_metadata("affine")["outputs"][0]["datatype"] == "FP32"
        assert client.get_model_config("affine")["max_batch_size"] == 0
        assert {m["name"] for m in client.get_model_repository_index()} == {"affine", "counter"}
        x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
        for binary in (True, False):
            tensor = triton.InferInput("x", [4, 8], "FP32")
            tensor.set_data_from_numpy(x, binary_data=binary)
            wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
            result = client.infer("affine", [tensor], outputs=wanted, request_id="r")
            np.testing.assert_array_equal(result.as_numpy("y"), 2 * x + 1)
        done = client.get_inference_statistics("affine")["model_stats"][0]["inference_stats"]
        assert done["success"]["count"] >= 2
        with pytest.raises(triton.InferenceServerException, match="there is no model"):
            client.get_model_metadata("none")
    finally:
        client.close()


def test_a_session_of_a_stateful_model_goes_on_and_others_do_not_see_it(
    service: RunningService,
) -> None:
    def step(value: float, **parameters: object) -> list[float]:
        tensor = {"name": "x", "shape": [4], "datatype": "FP32", "data": [value] * 4}
        answer = service.ask(
            "POST", "/v2/models/counter/infer", {"inputs": [tensor], "parameters": parameters}
        )
        assert answer.status == 200, answer.body
        data: list[float] = answer.document["outputs"][0]["data"]
        return data

    assert step(1.0, sequence_id=1, sequence_start=True) == [2.0] * 4  # 1 + 1
    assert step(5.0, sequence_id="b", sequence_start=True) == [6.0] * 4  # a session of its own
    assert step(1.0) == [2.0] * 4  # without a session: always the first state
    assert step(2.0, sequence_id=1) == [3.0] * 4  # 2 + 2/2
    assert step(0.0, sequence_id="b", sequence_end=True) == [3.0] * 4  # 0 + 6/2
    answer = service.ask(
        "POST",
        "/v2/models/counter/infer",
        {
            "inputs": [{"name": "x", "shape": [4], "datatype": "FP32", "data": [0.0] * 4}],
            "parameters": {"sequence_id": "b"},
        },
    )
    assert answer.status == 400
    assert "sequence_start" in answer.document["error"]


def test_metrics_are_prometheus_text(service: RunningService) -> None:
    service.ask("POST", "/v2/models/affine/infer", AFFINE_REQUEST)
    answer = service.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(
        line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if line[0] != "#"
    )
    labels = 'model="affine",version="1"'
    count = float(lines[f'edgectl_inference_requests_total{{{labels},outcome="success"}}'])
    assert count >= 1
    assert float(lines[f'edgectl_inference_duration_seconds_bucket{{{labels},le="+Inf"}}']) == count
    assert float(lines["process_resident_memory_bytes"]) > 1e6


def test_the_schema_describes_every_address(service: RunningService) -> None:
    document = json.loads(service.ask("GET", "/openapi.json").body)
    assert document["openapi"].startswith("3.")
    assert "/v2/models/{model}/infer" in document["paths"]
    for path, item in document["paths"].items():
        if "{" not in path and "get" in item:
            assert service.ask("GET", path).status == 200, path
