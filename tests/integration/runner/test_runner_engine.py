"""The engine on real compiled modules: right numbers, kept states, no leaks, clear refusals."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_bundles import AFFINE, COUNTER, compile_mlir

from edgectl_runner.contract import EntryPoint, OutputBinding, StateSpec, TensorSpec
from edgectl_runner.engine import Engine
from edgectl_runner.failures import RunnerError

MIXED = """
func.func @main(%m: tensor<4xi1>, %q: tensor<4xi8>, %n: tensor<i64>)
    -> (tensor<4xi1>, tensor<4xi8>, tensor<i64>) {
  %t = arith.constant dense<true> : tensor<4xi1>
  %0 = arith.xori %m, %t : tensor<4xi1>
  %1 = arith.addi %q, %q : tensor<4xi8>
  %2 = arith.addi %n, %n : tensor<i64>
  return %0, %1, %2 : tensor<4xi1>, tensor<4xi8>, tensor<i64>
}
"""

OUTSIDE_WEIGHTS = """
util.global private @w = #flow.parameter.named<"encoder"::"weight"> : tensor<4xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = util.global.load @w : tensor<4xf32>
  %0 = arith.addf %x, %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def spec(name: str, shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def result(index: int, of: TensorSpec) -> OutputBinding:
    return OutputBinding(name=of.name, source="result", index=index, spec=of)


AFFINE_ENTRY = EntryPoint(
    function="main",
    inputs=(spec("x", (4, 8)),),
    outputs=(result(0, spec("y", (4, 8))),),
    result_count=1,
)
COUNTER_ENTRY = EntryPoint(
    function="step",
    inputs=(spec("x", (4,)),),
    outputs=(result(0, spec("y", (4,))),),
    states=(
        StateSpec(spec=spec("sum", (4,)), argument_index=1, result_index=1, initial="sum.npy"),
    ),
    result_count=2,
)


def module(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "module.vmfb"
    path.write_bytes(compile_mlir(text))
    return path


def test_it_computes_with_one_thread_and_with_several(tmp_path: Path) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    for threads in (1, 2):
        engine = Engine.load(module(tmp_path, AFFINE), AFFINE_ENTRY, threads=threads)
        (y,) = engine.call([x])
        assert np.array_equal(y, 2 * x + 1)
        engine.close()


def test_states_are_carried_and_reset(tmp_path: Path) -> None:
    engine = Engine.load(
        module(tmp_path, COUNTER),
        COUNTER_ENTRY,
        states={"sum.npy": np.ones(4, np.float32)},
        threads=1,
    )
    x = np.full(4, 1.0, np.float32)
    assert [float(engine.call([x])[0][0]) for _ in range(3)] == [2.0, 2.0, 2.0]
    x = np.full(4, 3.0, np.float32)
    assert [float(engine.call([x])[0][0]) for _ in range(3)] == [4.0, 5.0, 5.5]
    engine.reset()
    assert float(engine.call([x])[0][0]) == 4.0


def test_a_state_without_first_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="state 'sum' has no first value"):
        Engine.load(module(tmp_path, COUNTER), COUNTER_ENTRY, threads=1)


def test_booleans_unsigned_bytes_and_scalars_keep_their_meaning(tmp_path: Path) -> None:
    inputs = (spec("m", (4,), "bool"), spec("q", (4,), "uint8"), spec("n", (), "int64"))
    entry = EntryPoint(
        function="main",
        inputs=inputs,
        outputs=tuple(result(i, s) for i, s in enumerate(inputs)),
        result_count=3,
    )
    engine = Engine.load(module(tmp_path, MIXED), entry, threads=1)
    m, q, n = engine.call(
        [np.array([1, 0, 1, 1], bool), np.array([0, 1, 100, 127], np.uint8), np.array(2**40)]
    )
    assert m.dtype == bool
    assert m.tolist() == [False, True, False, False]
    assert q.dtype == np.uint8
    assert q.tolist() == [0, 2, 200, 254]
    assert n.shape == ()
    assert int(n) == 2**41


def test_outputs_can_be_inputs_and_literals(tmp_path: Path) -> None:
    entry = EntryPoint(
        function="main",
        inputs=AFFINE_ENTRY.inputs,
        outputs=(
            OutputBinding(name="loss", source="literal", literal=None),
            OutputBinding(name="same", source="input", index=0),
            result(0, spec("y", (4, 8))),
        ),
        result_count=1,
    )
    engine = Engine.load(module(tmp_path, AFFINE), entry, threads=1)
    x = np.ones((4, 8), np.float32)
    loss, same, y = engine.call([x])
    assert loss is None
    assert np.array_equal(same, x)
    assert same is not x
    assert float(y[0, 0]) == 3.0


def test_outputs_outlive_the_engine(tmp_path: Path) -> None:
    engine = Engine.load(module(tmp_path, AFFINE), AFFINE_ENTRY, threads=1)
    (y,) = engine.call([np.ones((4, 8), np.float32)])
    engine.close()
    gc.collect()
    assert np.array_equal(y, np.full((4, 8), 3, np.float32))
    with pytest.raises(RunnerError, match="closed"):
        engine.call([np.ones((4, 8), np.float32)])


def test_loading_and_dropping_a_hundred_times_ends_cleanly(tmp_path: Path) -> None:
    script = f"""
import gc, numpy as np
from pathlib import Path
from test_runner_engine import AFFINE_ENTRY
from edgectl_runner.engine import Engine
for i in range(100):
    engine = Engine.load(Path({str(module(tmp_path, AFFINE))!r}), AFFINE_ENTRY, threads=1)
    y = engine.call([np.ones((4, 8), np.float32)])
    if i % 2:
        engine.close()
    del engine
    gc.collect()
assert float(y[0][0, 0]) == 3.0
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_closing_an_engine_with_worker_threads_unmaps_its_file_at_once(tmp_path: Path) -> None:
    size = 512
    weights = np.random.default_rng(0).standard_normal((size, size), np.float32)
    kind, row = f"tensor<{size}x{size}xf32>", f"tensor<1x{size}xf32>"
    text = f"""
func.func @main(%x: {row}) -> {row} {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : {row}
  %i = linalg.fill ins(%z : f32) outs(%e : {row}) -> {row}
  %w = arith.constant dense<"0x{weights.tobytes().hex().upper()}"> : {kind}
  %y = linalg.matmul ins(%x, %w : {row}, {kind}) outs(%i : {row}) -> {row}
  return %y : {row}
}}
"""
    script = f"""
import numpy as np
from pathlib import Path
from test_runner_engine import EntryPoint, result, spec
from edgectl_runner.engine import Engine
x = spec("x", (1, {size}))
entry = EntryPoint(function="main", inputs=(x,), outputs=(result(0, x),), result_count=1)
path = {str(module(tmp_path, text))!r}
for i in range(30):
    engine = Engine.load(Path(path), entry, threads=2)
    engine.call([np.ones((1, {size}), np.float32)])
    assert path in Path("/proc/self/maps").read_text()
    engine.close()
    assert path not in Path("/proc/self/maps").read_text()
"""
    subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, check=True, timeout=60
    )


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_twenty_thousand_calls_leave_memory_flat(tmp_path: Path) -> None:
    engine = Engine.load(
        module(tmp_path, COUNTER),
        COUNTER_ENTRY,
        states={"sum.npy": np.ones(4, np.float32)},
        threads=1,
    )
    x = np.ones(4, np.float32)
    for _ in range(2_000):
        engine.call([x])
    before = resident_kib()
    for _ in range(20_000):
        engine.call([x])
    assert resident_kib() - before < 5 * 1024


def test_a_wrong_function_name_lists_those_there_are(tmp_path: Path) -> None:
    entry = EntryPoint(function="forward", inputs=(), outputs=())
    with pytest.raises(RunnerError) as caught:
        Engine.load(module(tmp_path, AFFINE), entry, threads=1)
    assert caught.value.message == "the module has no function 'forward'; it has main"


def test_a_file_that_is_no_module_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "module.vmfb"
    path.write_bytes(b"not a module" * 100)
    with pytest.raises(RunnerError, match=r"module\.vmfb is not a module this runtime reads"):
        Engine.load(path, AFFINE_ENTRY, threads=1)


def test_missing_outside_weights_name_their_scope(tmp_path: Path) -> None:
    entry = EntryPoint(
        function="main", inputs=(spec("x", (4,)),), outputs=(result(0, spec("y", (4,))),)
    )
    with pytest.raises(RunnerError) as caught:
        Engine.load(module(tmp_path, OUTSIDE_WEIGHTS), entry, threads=1)
    assert "scopes like 'encoder'" in caught.value.message
    assert "supplied: none" in caught.value.message


def test_outside_weights_are_used_when_supplied(tmp_path: Path) -> None:
    import iree.runtime as api

    index = api.ParameterIndex()
    index.add_buffer("weight", np.arange(4, dtype=np.float32).tobytes())
    archive = tmp_path / "encoder.irpa"
    index.create_archive_file(str(archive))
    entry = EntryPoint(
        function="main",
        inputs=(spec("x", (4,)),),
        outputs=(result(0, spec("y", (4,))),),
        result_count=1,
    )
    engine = Engine.load(
        module(tmp_path, OUTSIDE_WEIGHTS), entry, parameters={"encoder": archive}, threads=1
    )
    assert engine.call([np.ones(4, np.float32)])[0].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_manifest_of_another_module_is_found_by_the_width_of_a_result(tmp_path: Path) -> None:
    entry = EntryPoint(
        function="main",
        inputs=AFFINE_ENTRY.inputs,
        outputs=(result(0, spec("y", (4, 8), "float64")),),
        result_count=1,
    )
    engine = Engine.load(module(tmp_path, AFFINE), entry, threads=1)
    with pytest.raises(RunnerError, match="expected float64, the module returned float32"):
        engine.call([np.ones((4, 8), np.float32)])
