"""Any request body: an array of the right kind comes out of it, or a 400."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgectl.serving.client import encode_request
from edgectl_runner.contract import EntryPoint, OutputBinding, TensorSpec
from edgectl_runner.service.inference import decode_request, encode_response
from edgectl_runner.service.messages import HttpError

SPECS = (
    TensorSpec(name="x", shape=(2, None), dtype="float32"),
    TensorSpec(name="n", shape=(2,), dtype="int8"),
    TensorSpec(name="b", shape=(), dtype="bool"),
)
ENTRY = EntryPoint(
    function="main",
    inputs=SPECS,
    outputs=(
        OutputBinding(name="y", source="result", index=0, spec=SPECS[0]),
        OutputBinding(name="kept", source="input", index=1),
        OutputBinding(name="word", source="literal", literal="hello"),
    ),
    result_count=1,
)
GOOD = {
    "inputs": [
        {"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1, 2.5]},
        {"name": "n", "shape": [2], "datatype": "INT8", "data": [-128, 127]},
        {"name": "b", "shape": [], "datatype": "BOOL", "data": [True]},
    ]
}


def _decode(document: object, **headers: str):
    body = json.dumps(document).encode() if not isinstance(document, bytes) else document
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return decode_request(ENTRY, names, memoryview(body))


def test_a_good_request_gives_the_models_arrays() -> None:
    x, n, b = _decode(GOOD).inputs
    assert (x.dtype, x.shape, x.tolist()) == (np.float32, (2, 1), [[1.0], [2.5]])
    assert (n.dtype, n.tolist()) == (np.int8, [-128, 127])
    assert (b.dtype, b.shape, bool(b)) == (np.bool_, (), True)


def test_what_the_client_encodes_is_what_the_service_decodes() -> None:
    rng = np.random.default_rng(0)
    sent = {
        "x": rng.normal(size=(2, 5)).astype(np.float32)[:, ::-1],
        "n": np.array([-1, 3], np.int8),
        "b": np.array(False),
    }
    body, headers = encode_request(sent)
    decoded = decode_request(ENTRY, {k.lower(): v for k, v in headers.items()}, memoryview(body))
    for array, (name, expected) in zip(decoded.inputs, sent.items(), strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=name)
    assert decoded.outputs == {"y": True, "kept": True}


@pytest.mark.parametrize("value", [128, -129, 1.0, 0.5, True, "1", None, 2**70])
def test_integers_are_never_rounded_or_wrapped(value: object) -> None:
    request = json.loads(json.dumps(GOOD))
    request["inputs"][1]["data"] = [value, value]
    with pytest.raises(HttpError) as caught:
        _decode(request)
    assert caught.value.status == 400


def test_a_byte_that_is_no_boolean_is_refused() -> None:
    head = json.dumps(
        {**GOOD, "inputs": [*GOOD["inputs"][:2], {"name": "b", "shape": [], "datatype": "BOOL",
         "parameters": {"binary_data_size": 1}}]}
    ).encode()  # fmt: skip
    with pytest.raises(HttpError, match="0 or 1"):
        _decode(head + b"\x02", inference_header_content_length=str(len(head)))


def test_numbers_that_json_cannot_say_are_never_sent_as_json() -> None:
    request = _decode({**GOOD, "outputs": [{"name": "y"}]})
    with pytest.raises(HttpError, match="NaN or infinity"):
        encode_response("m", "1", request, ENTRY, [np.float32([[np.nan], [1]]), None, "hello"])


def test_literal_outputs_travel_as_parameters() -> None:
    request = _decode(GOOD)
    values = [np.zeros((2, 1), np.float32), np.zeros(2, np.int8), "hello"]
    document = json.loads(b"".join(encode_response("m", "1", request, ENTRY, values).parts))
    assert document["parameters"] == {"word": "hello"}
    assert [o["name"] for o in document["outputs"]] == ["y", "kept"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["x", "n", "b", "y", "FP32", "INT8", "BOOL"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["inputs", "outputs", "name", "shape", "datatype", "data", "parameters",
                         "binary_data_size", "binary_data", "timeout", "sequence_id", "id"]),
        inner, max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), JSON),
        min_size=1, max_size=3,
    ),
    more=st.dictionaries(st.sampled_from(["id", "outputs", "parameters"]), JSON),
    tail=st.binary(max_size=20),
    length=st.none() | st.integers(-1, 2000).map(str) | st.text(max_size=4),
)  # fmt: skip
def test_no_request_gives_anything_but_arrays_or_a_400(changes, more, tail, length) -> None:
    document = json.loads(json.dumps(GOOD)) | more
    for index, key, value in changes:
        document["inputs"][index][key] = value
    body = json.dumps(document).encode() + tail
    headers = {} if length is None else {"inference-header-content-length": length}
    refused = None
    try:
        decoded = decode_request(ENTRY, headers, memoryview(body))
    except HttpError as error:
        refused = error
    if refused is not None:
        assert refused.status == 400
        return
    for array, spec in zip(decoded.inputs, SPECS, strict=True):
        assert array.dtype.name == spec.dtype


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()))
def test_any_bytes_give_a_400(body: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        decode_request(ENTRY, {}, memoryview(body))
    assert caught.value.status == 400
