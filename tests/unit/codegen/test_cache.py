"""The compile cache never returns anything but what was stored under that key."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from edgectl.codegen.cache import CompileCache, content_key


def test_a_stored_entry_comes_back(tmp_path):
    cache = CompileCache(tmp_path / "cache")
    assert cache.get("k") is None
    cache.put("k", b"module")
    assert cache.get("k") == b"module"


def test_a_damaged_entry_is_a_miss_and_goes_away(tmp_path):
    cache = CompileCache(tmp_path)
    cache.put("k", b"module")
    for damage in (b"", (tmp_path / "k").read_bytes()[:-1], (tmp_path / "k").read_bytes() + b"x"):
        (tmp_path / "k").write_bytes(damage)
        assert cache.get("k") is None
        assert not (tmp_path / "k").exists()
        cache.put("k", b"module")


def test_the_least_recently_used_entry_goes_first(tmp_path):
    cache = CompileCache(tmp_path, limit_bytes=250)
    for age, key in ((30, "old"), (20, "used"), (10, "new")):
        cache.put(key, bytes(60))
        stamp = (tmp_path / key).stat().st_mtime - age
        os.utime(tmp_path / key, (stamp, stamp))
    assert cache.get("used") is not None  # touches it
    cache.put("more", bytes(60))
    assert cache.get("old") is None
    assert cache.get("used") is not None


def test_a_cache_that_cannot_be_written_only_misses(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = CompileCache(tmp_path / "file" / "cache")
    cache.put("k", b"module")


@given(st.lists(st.binary(max_size=8), max_size=4), st.lists(st.binary(max_size=8), max_size=4))
def test_different_parts_have_different_keys(one, two):
    assert (content_key(one) == content_key(two)) == (one == two)
