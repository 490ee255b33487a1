"""The verbs: what the host can ask this device to do, each a function from document to document.

    VERBS["status"](store, {}) -> {"current": ..., "previous": ..., "releases": [...]}

Requests are checked here; the store is only reached with values of the right type. Nothing here
imports NumPy or the IREE runtime (`run` does, in a child).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from edgectl_runner import __version__
from edgectl_runner.bootstrap import install_environment
from edgectl_runner.contract import ContractError, RunRequest, from_document, to_document
from edgectl_runner.failures import USAGE, RunnerError
from edgectl_runner.isolation import run_isolated
from edgectl_runner.locking import holder
from edgectl_runner.manifests import ReadManifest, check_release_id, plain_name, read_manifest
from edgectl_runner.objects import Chunk, Pack, plan_packs
from edgectl_runner.process_facts import runtime_version
from edgectl_runner.processor import check_architecture, check_features
from edgectl_runner.space import check_space
from edgectl_runner.store import Store
from edgectl_runner.trust import check_runtime

__all__ = ["VERBS"]

Document = dict[str, Any]

MAX_CHUNK_BYTES = 4 << 20


def facts(store: Store, request: Document) -> Document:  # noqa: ARG001
    """What this device is."""
    from edgectl_runner.system_facts import collect

    return {"runner_version": __version__, **collect()}


def have(store: Store, request: Document) -> Document:
    """Which bytes of a bundle must travel: nothing is written but the removal of bad partials."""
    read, chunks = _bundle_of(request)
    _accept(store, read, request)
    installed = read.release in store.release_ids()
    if installed:
        return {
            "release": read.release,
            "installed": True,
            "current": store.current() == read.release,
            "packs": [],
            "missing_bytes": 0,
        }
    packs, missing = _plan(store, read, chunks)
    need = sum(p.size_bytes - store.objects.received(p) for p in packs)
    check_space(store.root, payload_bytes=need + missing, files=len(read.manifest.files) + 8)
    return {
        "release": read.release,
        "installed": False,
        "current": False,
        "packs": [
            {
                "name": p.name,
                "whole": p.whole,
                "chunks": [[c.sha256, c.length] for c in p.chunks],
                "size_bytes": p.size_bytes,
                "received_bytes": store.objects.received(p),
            }
            for p in packs
        ],
        "missing_bytes": missing,
    }


def install(store: Store, request: Document) -> Document:
    """Makes a release out of what arrived and switches to it.

    Chunks that arrived damaged are named in ``bad_chunks``; nothing was installed then, and the
    host sends just those again in one more of the ``packs``.
    """
    read, chunks = _bundle_of(request)
    who = _who(request)
    with store.changing(who=who, verb="install"):
        key = _accept(store, read, request)
        before = store.current()
        already = read.release in store.release_ids()
        if not already:
            packs = _packs(request)
            known = store.objects.known_chunks()
            lost: list[Chunk] = []
            for entry in read.manifest.files.values():
                if not store.objects.has(entry.sha256, entry.size_bytes):
                    lost += store.objects.adopt(entry.sha256, chunks[entry.sha256], packs, known)
            if lost:
                unique = {c.sha256: c.length for c in lost}
                return {
                    "release": read.release,
                    "installed": False,
                    "bad_chunks": [[sha, length] for sha, length in unique.items()],
                }
            module = store.objects.path(read.manifest.files[read.manifest.module].sha256)
            check_architecture(module, read.manifest.architecture)
            store.stage(read, _signature_file(request))
            store.objects.discard(packs)
        store.trust.remember(key, request.get("signature"))
        store.note_sequence(read.manifest)
        if request.get("activate", True):
            store.switch(read.release, who=who, event="install")
        return {
            "release": read.release,
            "installed": True,
            "already_installed": already,
            "bad_chunks": [],
            "current": store.current(),
            "previous": store.previous(),
            "before": before,
        }


def discard(store: Store, request: Document) -> Document:
    """Removes files from ``incoming/`` by name (partial transfers, inputs, outputs of runs)."""
    removed = 0
    for name in _strings(request, "names"):
        path = store.incoming / plain_name(name)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return {"removed": removed}


def run(store: Store, request: Document) -> Document:
    """Compares, runs and times a release; see `contract.RunRequest` and `contract.RunReport`."""
    try:
        asked = from_document(RunRequest, request)
    except ContractError as error:
        raise RunnerError(f"the request was not understood: {error}", code=USAGE) from error
    read, folder = store.startable(asked.release)
    _check_fits(read)
    check_architecture(folder / read.manifest.module, read.manifest.architecture)
    agent_pid = os.getpid()

    def execute_in_child() -> Document:
        from edgectl_runner.execution import execute

        return to_document(
            execute(read.manifest, folder, asked, store.incoming, agent_pid=agent_pid)
        )

    return run_isolated(execute_in_child, features=read.manifest.cpu_features)


def status(store: Store, request: Document) -> Document:  # noqa: ARG001
    """What is installed, what counts, and who is at work."""
    releases = []
    for release in store.release_ids():
        manifest = store.manifest(release).manifest
        releases.append(
            {
                "release": release,
                "name": manifest.name,
                "target": manifest.target,
                "precision": manifest.precision,
                "sequence": manifest.sequence,
                "size_bytes": sum(e.size_bytes for e in manifest.files.values()),
                "pinned": release in store.pinned(),
            }
        )
    usage = shutil.disk_usage(store.root) if store.root.exists() else None
    return {
        "runner_version": __version__,
        "root": str(store.root),
        "current": store.current(),
        "previous": store.previous(),
        "releases": releases,
        "locked_by": holder(store.lock_path),
        "disk_free_bytes": usage.free if usage else None,
    }


def history(store: Store, request: Document) -> Document:
    """The audit log's newest records."""
    last = request.get("last", 100)
    if not isinstance(last, int) or last < 1:
        raise RunnerError("'last' must be a positive number", code=USAGE)
    return {"records": store.audit.records(last)}


def verify(store: Store, request: Document) -> Document:
    """Digests every file of a release (the current one by default) again."""
    release = request.get("release") or store.current()
    if release is None:
        raise RunnerError("nothing is installed on this device", next_step="deploy a model first")
    read, _ = store.verified(check_release_id(release))
    return {"release": release, "files": len(read.manifest.files), "intact": True}


def rollback(store: Store, request: Document) -> Document:
    """Goes back to the previous release (or a named one) after digesting it; needs no host."""
    who = _who(request)
    with store.changing(who=who, verb="rollback"):
        target = request.get("release") or store.previous()
        if target is None:
            raise RunnerError(
                "there is no previous release to go back to",
                next_step="see what is installed with 'edgectl status'",
            )
        store.verified(check_release_id(target))
        before = store.switch(target, who=who, event="rollback")
        return {"current": target, "before": before}


def trust(store: Store, request: Document) -> Document:
    """Shows which keys this device trusts; adds or removes one, or sets the mode."""
    add, remove, mode = (request.get(name) for name in ("add", "remove", "mode"))
    if add is None and remove is None and mode is None:
        return store.trust.describe()
    if any(value is not None and not isinstance(value, str) for value in (add, remove, mode)):
        raise RunnerError("'add', 'remove' and 'mode' are texts", code=USAGE)
    try:
        key = None if add is None else bytes.fromhex(add)
    except ValueError as error:
        raise RunnerError("a public key is 64 hexadecimal digits", code=USAGE) from error
    who = _who(request)
    with store.changing(who=who, verb="trust"):
        store.audit.append("trust", release=None, who=who, add=add, remove=remove, mode=mode)
        return store.trust.change(add=key, remove=remove, mode=mode)


def pin(store: Store, request: Document) -> Document:
    """Marks a release as never to be collected, or takes the mark away."""
    release = check_release_id(request.get("release"))
    pinned = request.get("pinned", True) is True
    with store.changing(who=_who(request), verb="pin"):
        store.pin(release, pinned=pinned)
    return {"release": release, "pinned": pinned}


def gc(store: Store, request: Document) -> Document:
    """Removes releases that are neither current, previous nor pinned, and unused objects."""
    dry_run = request.get("dry_run", False) is True
    who = _who(request)
    with store.changing(who=who, verb="gc"):
        removed, freed = store.collect(keep=frozenset(), who=who, dry_run=dry_run)
    return {"removed": removed, "freed_bytes": freed, "dry_run": dry_run}


def uninstall(store: Store, request: Document) -> Document:
    """Removes one release, or with ``everything`` the whole root folder."""
    who = _who(request)
    if request.get("everything", False) is True:
        return _uninstall_everything(store, who, dry_run=request.get("dry_run", False) is True)
    release = check_release_id(request.get("release"))
    with store.changing(who=who, verb="uninstall"):
        store.manifest(release)
        if release == store.current():
            raise RunnerError(
                f"release {release} is the current one",
                code=USAGE,
                next_step="go back first with 'edgectl rollback', or uninstall everything",
            )
        freed = store.remove(release, who=who)
    return {"removed": [release], "freed_bytes": freed}


def _uninstall_everything(store: Store, who: str, *, dry_run: bool) -> Document:
    size = sum(p.lstat().st_size for p in store.root.rglob("*") if not p.is_symlink())
    if not dry_run:
        with store.changing(who=who, verb="uninstall"):
            # The links first: nobody may find a release that is half gone.
            for name in ("current", "previous"):
                (store.root / name).unlink(missing_ok=True)
            shutil.rmtree(store.root)
    return {"removed": [str(store.root)], "freed_bytes": size, "dry_run": dry_run}


VERBS: dict[str, Callable[[Store, Document], Document]] = {
    "facts": facts,
    "have": have,
    "install": install,
    "install-env": install_environment,
    "discard": discard,
    "run": run,
    "status": status,
    "history": history,
    "verify": verify,
    "rollback": rollback,
    "trust": trust,
    "pin": pin,
    "gc": gc,
    "uninstall": uninstall,
}


def _bundle_of(request: Document) -> tuple[ReadManifest, dict[str, list[Chunk]]]:
    text = request.get("manifest")
    if not isinstance(text, str):
        raise RunnerError("the request has no manifest", code=USAGE)
    read = read_manifest(text.encode("utf-8"))
    given = request.get("chunks")
    chunks: dict[str, list[Chunk]] = {}
    for name, entry in read.manifest.files.items():
        listed = given.get(entry.sha256) if isinstance(given, dict) else None
        chunks[entry.sha256] = _chunks(listed, name)
        total = sum(c.length for c in chunks[entry.sha256])
        if total != entry.size_bytes:
            raise RunnerError(
                f"the chunks of {name} are {total} bytes, the file is {entry.size_bytes}",
                code=USAGE,
            )
    return read, chunks


def _chunks(listed: object, where: str) -> list[Chunk]:
    if not isinstance(listed, list):
        raise RunnerError(f"the request has no chunk list for {where}", code=USAGE)
    chunks = []
    for item in listed:
        if (
            not isinstance(item, list)
            or len(item) != 2
            or not isinstance(item[0], str)
            or len(item[0]) != 64
            or type(item[1]) is not int
            or not 0 < item[1] <= MAX_CHUNK_BYTES
        ):
            raise RunnerError(f"a chunk of {where} is not a digest and a length", code=USAGE)
        chunks.append(Chunk(item[0], item[1]))
    return chunks


def _plan(
    store: Store, read: ReadManifest, chunks: dict[str, list[Chunk]]
) -> tuple[tuple[Pack, ...], int]:
    missing = {
        e.sha256: e.size_bytes
        for e in read.manifest.files.values()
        if not store.objects.has(e.sha256, e.size_bytes)
    }
    known = store.objects.known_chunks() if missing else {}
    return plan_packs(missing, chunks, known), sum(missing.values())


def _packs(request: Document) -> tuple[Pack, ...]:
    """The packs that the host says it sent: those of `have`, and repairs."""
    given = request.get("packs", [])
    if not isinstance(given, list):
        raise RunnerError("'packs' is not a list", code=USAGE)
    packs = []
    for item in given:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise RunnerError("a pack has no name", code=USAGE)
        name, whole = plain_name(item["name"]), item.get("whole")
        packs.append(
            Pack(
                name=name,
                chunks=tuple(_chunks(item.get("chunks"), name)),
                whole=whole if isinstance(whole, str) else None,
            )
        )
    return tuple(packs)


def _accept(store: Store, read: ReadManifest, request: Document) -> bytes | None:
    """All that is asked of a bundle before a byte of it is stored or run; the signer's key."""
    key = store.trust.check_install(read, request.get("signature"))
    store.check_sequence(read.manifest, allow_downgrade=request.get("allow_downgrade") is True)
    _check_fits(read)
    return key


def _check_fits(read: ReadManifest) -> None:
    check_features(read.manifest.cpu_features, read.manifest.target)
    check_runtime(read, runtime_version())


def _signature_file(request: Document) -> dict[str, bytes]:
    signature = request.get("signature")
    return {} if signature is None else {"signature.json": json.dumps(signature).encode()}


def _who(request: Document) -> str:
    who = request.get("who", "")
    return who[:200] if isinstance(who, str) else ""


def _strings(request: Document, key: str) -> list[str]:
    value = request.get(key)
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise RunnerError(f"{key!r} is not a list of names", code=USAGE)
    return value
