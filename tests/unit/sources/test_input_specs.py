"""What ``--input-spec`` and ``--dynamic`` accept, and how they refuse."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgectl.errors import UsageError
from edgectl.sources.input_specs import (
    DimensionRange,
    InputSpec,
    parse_dynamic,
    parse_input_spec,
    parse_input_specs,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1x3x224x224xf32", InputSpec(name=None, shape=(1, 3, 224, 224), dtype="float32")),
        ("pixels=1x3xf16", InputSpec(name="pixels", shape=(1, 3), dtype="float16")),
        ("boxes.0=4xi64", InputSpec(name="boxes.0", shape=(4,), dtype="int64")),
        ("f32", InputSpec(name=None, shape=(), dtype="float32")),
        ("bfloat16", InputSpec(name=None, shape=(), dtype="bfloat16")),
        ("2xui8", InputSpec(name=None, shape=(2,), dtype="uint8")),
        ("2xi1", InputSpec(name=None, shape=(2,), dtype="bool")),
        ("2xbool", InputSpec(name=None, shape=(2,), dtype="bool")),
        ("2xint64", InputSpec(name=None, shape=(2,), dtype="int64")),
        ("batchx?xi8", InputSpec(name=None, shape=("batch", None), dtype="int8")),
    ],
)
def test_reads_iree_and_numpy_spellings(text: str, expected: InputSpec) -> None:
    assert parse_input_spec(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1x3x224x224", "dtype at the end is missing"),
        ("1x3xq9", "'q9' is not a dtype"),
        ("1xx3xf32", "size is missing"),
        ("0x3xf32", "size 0"),
        ("-1x3xf32", "'-1' is not a size"),
        ("a b=1xf32", "'a b' is not a name"),
        ("", "dtype at the end is missing"),
    ],
)
def test_says_which_part_cannot_be_read(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        parse_input_spec(text)
    assert "1x3x224x224xf32" in (caught.value.next_step or "")
    assert caught.value.exit_code == 2


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="'x'"):
        parse_input_specs(["x=1xf32", "x=2xf32"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch=1..8", DimensionRange(name="batch", minimum=1, maximum=8)),
        ("n=4..", DimensionRange(name="n", minimum=4, maximum=None)),
        ("n", DimensionRange(name="n", minimum=1, maximum=None)),
    ],
)
def test_reads_ranges(text: str, expected: DimensionRange) -> None:
    assert parse_dynamic(text) == expected


@pytest.mark.parametrize("text", ["batch=8..1", "batch=0..3", "batch=3", "=1..2", "b=1..x", "8"])
def test_refuses_ranges_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--dynamic"):
        parse_dynamic(text)


@given(st.text(max_size=40))
def test_any_text_is_a_spec_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_input_spec(text).dtype
