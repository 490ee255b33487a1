"""The store against a model of itself: any sequence of installs, switches, collections, crashes."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgectl_runner import space
from edgectl_runner.agent import VERBS
from edgectl_runner.failures import RunnerError
from edgectl_runner.store import Store


def bundle(number: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A request for a release of three files, some shared between numbers."""
    files = {
        "module.vmfb": b"module %d" % (number % 3),
        "a.npy": b"shared",
        "b.npy": b"own %d" % number,
    }
    digests = {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
    manifest = {
        "schema_version": 1, "name": "m", "target": "t", "cpu": "c", "cpu_features": [],
        "architecture": "", "iree_version": "", "precision": "p", "dialect": "d",
        "module": "module.vmfb", "entry_points": [], "golden": [], "golden_limits": {},
        "files": {n: {"sha256": digests[n], "size_bytes": len(d)} for n, d in files.items()},
    }  # fmt: skip
    chunks = {digests[n]: [[digests[n], len(d)]] for n, d in files.items()}
    request = {"manifest": json.dumps(manifest, sort_keys=True), "chunks": chunks}
    return request, {digests[n]: d for n, d in files.items()}


def release_of(request: dict[str, Any]) -> str:
    return hashlib.sha256(request["manifest"].encode()).hexdigest()[:16]


numbers = st.integers(0, 5)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(self.folder / "edgectl")
        self.current: str | None = None
        self.previous: str | None = None
        self.pinned: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(number=numbers)
    def install(self, number: int) -> None:
        request, contents = bundle(number)
        plan = VERBS["have"](self.store, request)
        self.store.incoming.mkdir(parents=True, exist_ok=True)
        for pack in plan["packs"]:
            data = b"".join(contents[sha] for sha, _ in pack["chunks"])
            (self.store.incoming / pack["name"]).write_bytes(data)
        answer = VERBS["install"](self.store, request | {"packs": plan["packs"]})
        assert answer["installed"]
        if (release := release_of(request)) != self.current:
            self.current, self.previous = release, self.current

    @rule()
    def rollback(self) -> None:
        if self.previous is None:
            with pytest.raises(RunnerError, match="no previous release"):
                VERBS["rollback"](self.store, {})
            return
        VERBS["rollback"](self.store, {})
        self.current, self.previous = self.previous, self.current

    @rule()
    def collect(self) -> None:
        VERBS["gc"](self.store, {})
        kept = {self.current, self.previous, *self.pinned} - {None}
        assert set(self.store.release_ids()) == kept

    @rule(number=numbers, pinned=st.booleans())
    def pin(self, number: int, pinned: bool) -> None:
        release = release_of(bundle(number)[0])
        if release in self.store.release_ids():
            VERBS["pin"](self.store, {"release": release, "pinned": pinned})
            (self.pinned.add if pinned else self.pinned.discard)(release)

    @precondition(lambda self: self.store.root.exists())
    @rule(place=st.sampled_from(["", "releases", "incoming", "objects", "objects/aa"]))
    def crash_leaves_rubbish(self, place: str) -> None:
        folder = self.store.root / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".tmp-left-over").mkdir(exist_ok=True)
        (folder / ".tmp-current-1").unlink(missing_ok=True)
        (folder / ".tmp-current-1").symlink_to("releases/nowhere")

    @precondition(lambda self: self.current is not None)
    @rule()
    def damage_the_current_release(self) -> None:
        module = self.store.releases / str(self.current) / "module.vmfb"
        module.chmod(0o644)
        data = module.read_bytes()
        module.write_bytes(b"rotten")
        with pytest.raises(RunnerError, match="is damaged"):
            VERBS["verify"](self.store, {})
        module.write_bytes(data)

    @invariant()
    def links_are_what_the_model_says(self) -> None:
        assert self.store.links.current() == self.current
        assert self.store.links.previous() == self.previous

    @invariant()
    def every_release_is_complete(self) -> None:
        for release in self.store.release_ids():
            self.store.verified(release)


StoreMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestStore = StoreMachine.TestCase


def test_a_model_larger_than_the_memory_is_refused_with_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(space, "_memory_available_bytes", lambda: 40 << 20)
    space.check_memory(1 << 20)
    with pytest.raises(RunnerError, match=r"need at least 55574528 bytes, have 41943040 bytes"):
        space.check_memory(20 << 20)
