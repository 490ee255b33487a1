"""Our TOSA in the hands of Arm's reference implementation: what it computes is what eager does.

Needs the ``tosa-tools`` package in an environment of its own (it pins an older NumPy):
EDGECTL_TOSA_TOOLS names the folder with its ``tosa-opt`` and ``tosa_reference_model``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgectl.errors import ConfigurationError, UnsupportedModelError
from edgectl.lowering import lower
from edgectl.lowering.tosa_file import write_tosa
from support.cases import bug_models
from support.exported import export
from support.host_run import difference

TOOLS = Path(os.environ.get("EDGECTL_TOSA_TOOLS", "/nonexistent"))
CASES = bug_models()
# What the serializer takes: neither int64 nor state, and no power of a negative number (the tanh
# form of GELU), which the specification leaves open.
_PURE = "B001 B002 B004 B005 B007 B008 B010 B011 B013 B014 B016 B029 B031 B034b B037 B047 B049 B056"
PURE = _PURE.split()


def test_without_the_tool_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("EDGECTL_TOSA_TOOLS", raising=False)
    module, inputs = CASES.CASES["B029"][0]()
    with pytest.raises(ConfigurationError) as failure:
        write_tosa(lower(export(module, *inputs)), tmp_path / "m.tosa")
    assert "tosa-tools" in str(failure.value.next_step)


def test_another_dialect_has_no_tosa_file(tmp_path):
    module, inputs = CASES.CASES["B029"][0]()
    with pytest.raises(UnsupportedModelError, match="linalg"):
        write_tosa(lower(export(module, *inputs), dialect="linalg"), tmp_path / "m.tosa")


@pytest.mark.slow
@pytest.mark.skipif(not (TOOLS / "tosa-opt").exists(), reason="EDGECTL_TOSA_TOOLS is not set")
@pytest.mark.parametrize("name", PURE)
def test_arms_reference_model_answers_as_eager_does(name, tmp_path):
    module, inputs = CASES.CASES[name][0]()
    lowered = lower(export(module, *inputs), strict_tosa=True)
    write_tosa(lowered, tmp_path / "m.tosa")
    call = lowered.model.calls[0]
    for index, array in enumerate(call.inputs):
        np.save(tmp_path / f"in{index}.npy", array)
    counts = range(len(call.inputs)), range(lowered.entry_points[0].result_count)
    subprocess.run(
        [
            str(TOOLS / "tosa_reference_model"),
            "--tosa_file=m.tosa",
            "--ifm_name=" + ",".join(f"TosaInput_{i}" for i in counts[0]),
            "--ifm_file=" + ",".join(f"in{i}.npy" for i in counts[0]),
            "--ofm_name=" + ",".join(f"TosaOutput_{i}" for i in counts[1]),
            "--ofm_file=" + ",".join(f"out{i}.npy" for i in counts[1]),
            "--output_dir=.",
            "--flatbuffer_dir=.",
        ],
        cwd=tmp_path,
        check=True,
        timeout=300,
        capture_output=True,
    )
    for binding, expected in zip(lowered.entry_points[0].outputs, call.outputs, strict=True):
        if binding.source == "result":
            got = np.load(tmp_path / f"out{binding.index}.npy").reshape(expected.shape)
            assert difference(got, expected) <= 1e-4
