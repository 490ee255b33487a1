"""Whatever is asked of the agent: a document or a typed error, and nothing outside its folder."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgectl_runner.agent import VERBS
from edgectl_runner.failures import RunnerError
from edgectl_runner.store import Store

HOSTILE = [
    "../../canary",
    "/etc/passwd",
    "..",
    "a\0b",
    "a\nb",
    "$(touch canary)",
    "-rf",
    "%i",
    "{}",
    "0" * 16,
    "0" * 64,
    "\udcff",
    "\u202e",
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(HOSTILE)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["sha256", "name", "chunks", "whole"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = (
    "manifest signature chunks packs who token names release pinned everything dry_run health "
    "activate allow_downgrade add remove mode last digest wheels inputs outputs iterations "
    "cpu_affinity threads schema_version"
)
requests = st.dictionaries(st.sampled_from(FIELDS.split()), values, max_size=6)
ENTRY = {"sha256": "0" * 64, "size_bytes": 3}
MANIFEST: dict[str, Any] = {
    "schema_version": 1, "name": "m", "target": "t", "cpu": "c", "cpu_features": [],
    "architecture": "", "iree_version": "", "precision": "p", "dialect": "d",
    "module": "module.vmfb", "entry_points": [], "golden": [], "golden_limits": {},
    "files": {"module.vmfb": ENTRY},
}  # fmt: skip


def ask(verb: str, request: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "canary").write_text("untouched")
        store = Store(base / "home" / "edgectl")
        try:
            document = VERBS[verb](store, request)
        except RunnerError as error:
            document = error.to_document()
        json.dumps(document, allow_nan=False)
        assert (base / "canary").read_text() == "untouched"
        assert {p.name for p in base.iterdir()} <= {"canary", "home"}


# `facts` asks the machine and takes no request; `hold` with a good token would wait.
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(set(VERBS) - {"facts", "hold"})), requests)
@example("have", {"manifest": "\udcff"})
@example("discard", {"names": ["\udcff"]})
def test_any_request(verb: str, request: dict[str, Any]) -> None:
    ask(verb, request)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["have", "install"]),
    st.dictionaries(st.sampled_from(sorted(MANIFEST)), values, max_size=3),
    requests,
)
def test_any_manifest_inside_a_request(
    verb: str, changes: dict[str, Any], request: dict[str, Any]
) -> None:
    ask(verb, {"chunks": {"0" * 64: [["0" * 64, 3]]}} | request | {
        "manifest": json.dumps(MANIFEST | changes)
    })  # fmt: skip


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(set(VERBS) - {"facts", "hold"})), requests)
def test_any_request_ten_thousand_times(verb: str, request: dict[str, Any]) -> None:
    ask(verb, request)
