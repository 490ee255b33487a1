"""From modules to `ExportedModel`: names, calls, state, and models that must be refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgectl.errors import EdgectlError, UnsupportedModelError, UsageError
from edgectl.records import ExportedModel
from edgectl.sources.assembling import assemble
from edgectl.sources.input_specs import parse_dynamic, parse_input_specs
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.options import GivenInput, LoadOptions


def made(module: nn.Module, *args: Any, options: LoadOptions | None = None, **kwargs: Any):
    example = Arguments(args=args, kwargs=kwargs) if args or kwargs else None
    loaded = Loaded(name="m", module=module, example=example)
    return assemble(loaded, options or LoadOptions(), kind="factory", digest=None)


def specs(*texts: str, dynamic: tuple[str, ...] = (), **more: Any) -> LoadOptions:
    return LoadOptions(
        input_specs=parse_input_specs(texts),
        dynamic=tuple(parse_dynamic(text) for text in dynamic),
        **more,
    )


def answers(model: ExportedModel, call: int = 0) -> list[Any]:
    """What the exported program gives on the recorded inputs of one call."""
    tensors = [torch.from_numpy(array.copy()) for array in model.calls[call].inputs]
    result = model.program.module()(*tensors)
    return list(result) if isinstance(result, tuple) else [result]


class Nested(nn.Module):
    def forward(self, d: dict[str, torch.Tensor], pair: Any, flag: bool = True, *, scale: int = 2):
        total = d["a"] + pair[0] * scale
        return {"total": total if flag else d["a"], "parts": (pair[1], None, 7)}


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count.clone()


def test_nested_inputs_and_outputs_get_dotted_names_and_a_flat_program() -> None:
    a, b, c = torch.randn(3), torch.randn(3), torch.randn(3)
    model = made(Nested(), {"a": a}, (b, c), True, scale=3)
    assert [spec.name for spec in model.inputs] == ["d.a", "pair.0", "pair.1"]
    assert model.output_names == ("total", "parts.0", "parts.1", "parts.2")
    assert model.calls[0].outputs[2:] == (None, 7)
    got = answers(model)
    np.testing.assert_allclose(got[0].numpy(), (a + 3 * b).numpy(), rtol=1e-6)
    np.testing.assert_array_equal(got[1].numpy(), c.numpy())


def test_single_and_tuple_outputs_are_named() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor):
            return x, x + 1

    assert made(nn.ReLU(), torch.ones(2)).output_names == ("output",)
    assert made(Two(), torch.ones(2)).output_names == ("output_0", "output_1")


def test_a_model_with_state_is_called_three_times_with_other_inputs() -> None:
    model = made(Counter(), torch.ones(3))
    assert len(model.calls) == 3
    inputs = [call.inputs[0] for call in model.calls]
    assert not np.array_equal(inputs[0], inputs[1])
    np.testing.assert_allclose(model.calls[2].outputs[0], sum(inputs), rtol=1e-5)
    # The program starts from the state before the first call.
    assert model.program.state_dict["count"].tolist() == [0, 0, 0]


def test_an_input_that_the_model_writes_to_is_recorded_as_it_was_given() -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x + 1

    given = torch.ones(4)
    model = made(Doubles(), given)
    assert len(model.calls) == 3
    assert model.calls[0].inputs[0].tolist() == [1, 1, 1, 1]
    assert model.calls[0].outputs[0].tolist() == [3, 3, 3, 3]
    assert given.tolist() == [1, 1, 1, 1]


def test_state_in_a_replaced_buffer_counts_as_state() -> None:
    class Replaces(Counter):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count = self.count + x
            return self.count.clone()

    assert len(made(Replaces(), torch.ones(3)).calls) == 3


def test_integers_stay_what_they_are_in_later_calls() -> None:
    class Looks(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            self.count.add_(self.table(ids).sum(0))
            return self.count.clone()

    model = made(Looks(), torch.tensor([4, 0]))
    assert [call.inputs[0].tolist() for call in model.calls] == [[4, 0]] * 3


class HiddenState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x + self.steps


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (HiddenState(), ["outside of its buffers", "self.steps"]),
        (Random(), ["differently each time"]),
    ],
)
def test_models_whose_numbers_cannot_be_checked_are_refused(
    module: nn.Module, words: list[str]
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        made(module, torch.ones(3))
    for word in words:
        assert word in caught.value.message


def test_a_tensor_kept_on_self_is_no_state(bug_models: Any) -> None:
    """Case B055: forward stores a result on self, and nobody reads it again."""
    module, inputs = bug_models.CASES["B055"][0]()
    model = made(module, *inputs)
    np.testing.assert_allclose(answers(model)[0].numpy(), model.calls[0].outputs[0])


def test_a_branch_on_values_names_file_line_and_condition(bug_models: Any) -> None:
    """Case B053."""
    module, inputs = bug_models.CASES["B053"][0]()
    with pytest.raises(UnsupportedModelError) as caught:
        made(module, *inputs)
    error = caught.value
    assert error.exit_code == 4
    assert "bug_models.py:" in error.message
    assert "if x.sum() > 0:" in error.message
    assert "torch.cond" in (error.next_step or "")
    assert "Traceback" not in error.message + (error.cause or "")


def test_every_case_of_the_bug_log_exports_or_is_refused(bug_models: Any) -> None:
    for name, (factory, _) in bug_models.CASES.items():
        if name in bug_models.EXPORT_FAILS:
            continue
        module, inputs = factory()
        loaded = Loaded(
            name=name,
            module=module,
            example=Arguments(args=inputs),
            dynamic_shapes=bug_models.DYNAMIC.get(name),
        )
        model = assemble(loaded, LoadOptions(), kind="factory", digest=None)
        for got, wanted in zip(answers(model), model.calls[0].outputs, strict=True):
            if isinstance(wanted, np.ndarray):
                np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        (LoadOptions(), UsageError, "Nothing says what the model's inputs look like"),
        (specs("2x3xf32", "1xf32"), UsageError, "do not fit forward"),
        (specs("y=2x3xf32"), UsageError, "do not fit forward"),
        (specs("2x4xf32"), UsageError, "fails on these inputs in PyTorch itself"),
        (specs("2x3xi64"), UsageError, "fails on these inputs in PyTorch itself"),
        (specs("batchx3xf32"), UsageError, "without a range"),
        (specs("2x3xf32", dynamic=("batch=1..4",)), UsageError, "names no dimension"),
    ],
)
def test_specs_that_do_not_fit_are_told(
    options: LoadOptions, error: type[EdgectlError], word: str
) -> None:
    with pytest.raises(error, match=word):
        made(nn.Linear(3, 4), options=options)


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.zeros((2, 3)), "is float64; the model takes float32"),
        (np.zeros((3, 3), np.float32), "is 3x3xfloat32; the model takes 2x3xfloat32"),
        (np.zeros(3, np.float32), "is 3xfloat32"),
    ],
)
def test_arrays_that_do_not_fit_the_example_are_told(array: np.ndarray, word: str) -> None:
    options = LoadOptions(inputs=(GivenInput(name=None, array=array),))
    with pytest.raises(UsageError, match=word):
        made(nn.Linear(3, 4), torch.ones(2, 3), options=options)


def test_too_many_and_unknown_inputs_are_told() -> None:
    one = GivenInput(name=None, array=np.zeros((2, 3), np.float32))
    with pytest.raises(UsageError, match="2 inputs were given and the model takes 1: input"):
        made(nn.Linear(3, 4), torch.ones(2, 3), options=LoadOptions(inputs=(one, one)))
    named = GivenInput(name="pixels", array=one.array)
    with pytest.raises(UsageError, match="no input 'pixels'") as caught:
        made(nn.Linear(3, 4), torch.ones(2, 3), options=LoadOptions(inputs=(named,)))
    assert "input" in (caught.value.next_step or "")


def test_the_users_input_replaces_the_example() -> None:
    array = np.full((2, 3), 5, np.float32)
    options = LoadOptions(inputs=(GivenInput(name="input", array=array),))
    model = made(nn.Linear(3, 4), torch.ones(2, 3), options=options)
    np.testing.assert_array_equal(model.calls[0].inputs[0], array)


def test_a_varying_dimension_stays_open_even_if_the_example_has_one() -> None:
    array = np.ones((1, 3), np.float32)
    options = specs(
        "batchx3xf32", dynamic=("batch=1..8",), inputs=(GivenInput(name=None, array=array),)
    )
    model = made(nn.Linear(3, 4), options=options)
    assert model.inputs[0].shape == (None, 3)
    assert model.calls[0].inputs[0].shape == (1, 3)
    assert model.program.module()(torch.ones(5, 3)).shape == (5, 4)


def test_a_model_with_a_small_table_gets_zeros() -> None:
    model = made(nn.Embedding(2, 3), options=specs("4xi64"))
    assert model.calls[0].inputs[0].tolist() == [0, 0, 0, 0]
    assert any("zeros" in note for note in model.notes)


def test_half_precision_is_computed_in_float32_and_said() -> None:
    model = made(nn.Linear(3, 4).half(), options=specs("2x3xf16"))
    assert model.inputs[0].dtype == "float32"
    assert model.calls[0].outputs[0].dtype == np.float32
    assert any("float16" in note and "float32" in note for note in model.notes)


def test_training_mode_is_switched_off_and_said() -> None:
    model = made(nn.Sequential(nn.Dropout(0.5)).train(), torch.ones(100))
    assert model.calls[0].outputs[0].tolist() == [1.0] * 100
    assert any("training mode" in note for note in model.notes)


def test_the_digest_follows_weights_and_graph() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 4)
    first = made(module, torch.ones(2, 3)).digest
    assert made(module, torch.zeros(2, 3)).digest == first
    with torch.no_grad():
        module.weight[0, 0] += 1
    assert made(module, torch.ones(2, 3)).digest != first
