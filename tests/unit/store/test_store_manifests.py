"""A manifest is not believed: names, sizes and references are checked."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgectl_runner.failures import RunnerError
from edgectl_runner.manifests import check_release_id, plain_name, read_manifest


def document(**changes: Any) -> dict[str, Any]:
    entry = {"sha256": "0" * 64, "size_bytes": 3}
    fields: dict[str, Any] = {
        "schema_version": 1,
        "name": "m",
        "target": "rpi4",
        "cpu": "cortex-a72",
        "cpu_features": [],
        "architecture": "aarch64",
        "iree_version": "3.13.0",
        "precision": "fp32",
        "dialect": "tosa",
        "module": "module.vmfb",
        "entry_points": [],
        "golden": [],
        "golden_limits": {},
        "files": {"module.vmfb": entry},
    }
    return fields | changes


def read(**changes: Any) -> Any:
    return read_manifest(json.dumps(document(**changes)).encode())


def files(*names: str, **entry: Any) -> dict[str, Any]:
    base = {"sha256": "0" * 64, "size_bytes": 3}
    return {"module.vmfb": base, **dict.fromkeys(names, base | entry)}


def test_a_good_manifest_has_the_release_id_of_its_bytes() -> None:
    import hashlib

    data = json.dumps(document()).encode()
    assert read_manifest(data).release == hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "a/../b",
        "a//b",
        "a\\b",
        "",
        ".",
        "..",
        ".hidden",
        "a/.tmp-x",
        "-rf",
        "a\nb",
        "a\0b",
        "$(reboot)",
        "manifest.json",
        "Manifest.JSON",
        "signature.json",
        "x" * 201,
        "a/b/c/d/e/f/g/h/i",
        "naïve",
    ],
)
def test_dangerous_file_names_are_refused(name: str) -> None:
    with pytest.raises(RunnerError, match="manifest was refused"):
        read(files=files(name))


def test_names_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(RunnerError, match="may be the same file"):
        read(files=files("a.npy", "A.npy"))


def test_a_name_that_is_file_and_folder_is_refused() -> None:
    with pytest.raises(RunnerError, match="both a file and a folder"):
        read(files=files("a", "a/b"))


@pytest.mark.parametrize("entry", [{"sha256": "zz"}, {"sha256": "0" * 63}, {"size_bytes": -1}])
def test_bad_digests_and_sizes_are_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(RunnerError):
        read(files=files("x", **entry))


def test_references_to_files_that_are_not_listed_are_refused() -> None:
    with pytest.raises(RunnerError, match="not among its files"):
        read(module="other.vmfb")
    golden = [{"entry_point": 0, "inputs": ["nowhere.npy"], "outputs": []}]
    with pytest.raises(RunnerError, match="not among its files"):
        read(golden=golden)


def test_a_newer_version_says_so() -> None:
    with pytest.raises(RunnerError, match="reads version 1"):
        read(schema_version=2)


def test_deep_nesting_and_garbage_are_typed_errors() -> None:
    for data in (b"[" * 100_000, b"\xff\xfe", b"null", b'{"a":' * 2000):
        with pytest.raises(RunnerError):
            read_manifest(data)


def test_an_oversized_manifest_is_not_even_parsed() -> None:
    with pytest.raises(RunnerError, match="at most"):
        read_manifest(b" " * (17 << 20))


@pytest.mark.parametrize("release", ["", "../../etc", "A" * 16, "0" * 15, "0" * 17, None, 3])
def test_release_ids_are_never_paths(release: object) -> None:
    with pytest.raises(RunnerError):
        check_release_id(release)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".x", "a\0", "x" * 300])
def test_plain_names_lead_nowhere(name: str) -> None:
    with pytest.raises(RunnerError):
        plain_name(name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=400, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from(sorted(document())), json_values)
def test_any_value_in_any_field_is_taken_or_refused_but_never_crashes(
    field: str, value: Any
) -> None:
    with contextlib.suppress(RunnerError):
        read(**{field: value})


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_manifests_never_crash(noise: bytes, where: int) -> None:
    data = json.dumps(document()).encode()
    with contextlib.suppress(RunnerError):
        read_manifest(data[:where] + noise + data[where + len(noise) :])
