"""``edgectl infer`` and ``edgectl serve bench`` against a running service."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from running_service import RunningService, Y

from support.command import Edgectl


def test_infer_shows_and_saves_what_the_model_gives(
    service: RunningService, tmp_path: Path
) -> None:
    edgectl = Edgectl(home=tmp_path / "home")
    np.save(tmp_path / "x.npy", np.arange(32, dtype=np.float32).reshape(4, 8))
    asked = ("infer", "--url", service.address, "--input", tmp_path / "x.npy")
    done = edgectl(*asked, "--model", "affine", "--output", tmp_path / "y.npz").expect(0)
    assert done.stdout.startswith("y: 4x8 float32\n  1, 3, 5, 7")
    with np.load(tmp_path / "y.npz") as outputs:
        np.testing.assert_array_equal(outputs["y"].reshape(-1), Y)
    assert "2 models: affine, counter" in edgectl(*asked).expect(2).stderr
    wrong = edgectl(*asked, "--model", "counter", "--json").expect(2)
    assert "expected 4xfloat32, got 4x8xfloat32" in wrong.document["error"]["message"]


def test_nobody_at_the_address_is_a_connection_error(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    edgectl = Edgectl(home=tmp_path / "home")
    asked = ("infer", "--url", "http://127.0.0.1:9", "--input", tmp_path / "x.npy")
    assert "edgectl serve status" in edgectl(*asked).expect(6).stderr


def test_bench_tells_each_load(service: RunningService, tmp_path: Path) -> None:
    done = Edgectl(home=tmp_path / "home")(
        "serve", "bench", "--url", service.address, "--model", "affine", "--json",
        "--concurrency", "1", "--concurrency", "2", "--rate", "20", "--seconds", "1",
    ).expect(0)  # fmt: skip
    loads = done.document["loads"]
    assert [(x["mode"], x["concurrency"], x["rate_per_s"]) for x in loads] == [
        ("closed", 1, None),
        ("closed", 2, None),
        ("open", None, 20.0),
    ]
    for load in loads:
        assert load["lost"] == 0
        assert load["statuses"] == {"200": load["requests"]}
        assert 0 < load["p50_ms"] <= load["p99_ms"] <= load["max_ms"]
