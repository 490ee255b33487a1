"""Numbers of models: newer content has a higher one, the same content keeps its own."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgectl.errors import ConfigurationError
from edgectl.numbering import Numbering
from edgectl_runner.contract import FileEntry, GoldenLimits, Manifest


def manifest(content: str, name: str = "net") -> Manifest:
    return Manifest(
        name=name, target="rpi4", cpu="cortex-a72", cpu_features=(), architecture="aarch64",
        iree_version="3.13.0", precision="fp32", dialect="tosa", module="module.vmfb",
        entry_points=(), golden=(), golden_limits=GoldenLimits(),
        files={"module.vmfb": FileEntry(sha256=content * 64, size_bytes=1)},
    )  # fmt: skip


def test_new_content_is_newer_and_the_same_content_is_the_same(tmp_path: Path) -> None:
    number = Numbering(tmp_path)
    first = number(manifest("a"))
    assert number(manifest("a")) == first
    assert number(replace(manifest("a"), sequence=7)) == first, "its own number is no content"
    second = number(manifest("b"))
    assert second > first
    # Built again after another: a new decision, not an old file.
    assert number(manifest("a")) > second
    assert abs(first - time.time()) < 60, "the computers of a team agree by the clock"


def test_each_name_is_counted_by_itself(tmp_path: Path) -> None:
    number = Numbering(tmp_path)
    (tmp_path / "sequences.json").write_text(json.dumps({"far": [2**40, "x"]}))
    assert number(manifest("a", "far")) == 2**40 + 1
    assert number(manifest("a", "near")) < 2**40
    assert number(manifest("a", "far")) == 2**40 + 1


def test_builds_side_by_side_get_different_numbers(tmp_path: Path) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda c=c: found.append(Numbering(tmp_path)(manifest(c))))
        for c in "abcdef"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 6


def test_a_damaged_record_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    (tmp_path / "sequences.json").write_text("{")
    with pytest.raises(ConfigurationError, match="is damaged"):
        Numbering(tmp_path)(manifest("a"))
