"""The verbs: what the host can ask this device to do, each a function from document to document.

    VERBS["status"](store, {}) -> {"current": ..., "previous": ..., "releases": [...]}

Requests are checked here; the store is only reached with values of the right type. Nothing here
imports NumPy or the IREE runtime (`run` does, in a child).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager

from edgectl_runner import __version__
from edgectl_runner.contract import ContractError, RunRequest, from_document, to_document
from edgectl_runner.durable import make_directories
from edgectl_runner.failures import USAGE, RunnerError
from edgectl_runner.isolation import run_isolated
from edgectl_runner.locking import holder
from edgectl_runner.manifests import ReadManifest, check_release_id, plain_name
from edgectl_runner.objects import Chunk, Pack, plan_packs
from edgectl_runner.probation import HealthCheck, activate, on_probation
from edgectl_runner.process_facts import runtime_version
from edgectl_runner.processor import check_architecture, check_features
from edgectl_runner.requests import Document, bundle_of, packs_of, strings_of, who_of
from edgectl_runner.sessions import check_session, check_token, hold_session, release_session
from edgectl_runner.space import check_memory, check_space
from edgectl_runner.store import Store
from edgectl_runner.trust import check_runtime
from edgectl_runner.versions import collect_versions

__all__ = ["VERBS"]


def facts(store: Store, request: Document) -> Document:  # noqa: ARG001
    """What this device is."""
    from edgectl_runner.system_facts import collect

    return {"runner_version": __version__, **collect()}


def have(store: Store, request: Document) -> Document:
    """Which bytes of a bundle must travel. Stores nothing; only too long partials are removed."""
    check_session(store.session_path, check_token(request.get("token")))
    read, chunks = bundle_of(request)
    _accept(store, read, request)
    installed = read.release in store.release_ids()
    damaged = store.damaged_files(read) if installed else []
    if installed and not damaged:
        return {
            "release": read.release,
            "installed": True,
            "current": store.links.current() == read.release,
            "packs": [],
            "missing_bytes": 0,
        }
    packs, missing = _plan(store, read, chunks, damaged)
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
    """`_install`, and the end of the deployment that it was the last step of."""
    answer = _install(store, request)
    token = check_token(request.get("token"))
    if token is not None and answer["installed"]:
        release_session(store.session_path, token)
    return answer


def _install(store: Store, request: Document) -> Document:
    """Makes a release out of what arrived, switches to it, and back if it is not healthy.

    Chunks that arrived damaged are named in ``bad_chunks``; nothing was installed then, and the
    host sends just those again in one more of the ``packs``.
    """
    read, chunks = bundle_of(request)
    who = who_of(request)
    health = HealthCheck.from_document(request.get("health"))
    with _changing(store, request, "install"):
        key = _accept(store, read, request)
        before = store.links.current()
        already = read.release in store.release_ids()
        damaged = store.damaged_files(read) if already else []
        if not already or damaged:
            lost = _adopt(store, read, chunks, damaged, packs_of(request))
            if lost:
                return {"release": read.release, "installed": False, "bad_chunks": lost}
            module = store.objects.path(read.manifest.files[read.manifest.module].sha256)
            check_architecture(module, read.manifest.architecture)
            store.relink(read, damaged)
            store.stage(read, _signature_file(request))
            store.objects.discard(packs_of(request))
        store.trust.remember(key, request.get("signature"), read.release)
        store.sequences.note(read.manifest)
        verdict: Document = {"healthy": None, "reason": None, "code": None}
        if request.get("activate", True):
            verdict = activate(store, read.release, who=who, health=health)
        return {
            "release": read.release,
            "installed": True,
            "already_installed": already,
            "bad_chunks": [],
            "current": store.links.current(),
            "previous": store.links.previous(),
            "before": before,
            **verdict,
        }


def install_env(store: Store, request: Document) -> Document:
    """Unpacks the runner's packages; see `bootstrap`."""
    from edgectl_runner.bootstrap import install_environment  # brings zipfile along

    return install_environment(store, request)


def _adopt(
    store: Store,
    read: ReadManifest,
    chunks: dict[str, list[Chunk]],
    damaged: list[str],
    packs: tuple[Pack, ...],
) -> list[list[object]]:
    """Makes all missing objects; the chunks that are still lacking, if any."""
    known = store.objects.known_chunks()
    lost: dict[str, int] = {}
    for sha256 in _missing(store, read, damaged):
        for chunk in store.objects.adopt(sha256, chunks[sha256], packs, known):
            lost[chunk.sha256] = chunk.length
    return [[sha256, length] for sha256, length in lost.items()]


def hold(store: Store, request: Document) -> Document:
    """Holds the device for one deployment; ends when released or when nobody listens."""
    token = check_token(request.get("token"))
    if token is None:
        raise RunnerError("'hold' needs a token", code=USAGE)
    make_directories(store.root)
    return {"held_s": hold_session(store.session_path, who=who_of(request), token=token)}


def release_hold(store: Store, request: Document) -> Document:
    """Ends the `hold` of a token."""
    token = check_token(request.get("token"))
    if token is not None:
        release_session(store.session_path, token)
    return {"released": token is not None}


def settle(store: Store, request: Document) -> Document:
    """Puts right what a crash or a power cut left; for service starts."""
    with _changing(store, request, "settle"):
        return {"current": store.links.current(), "previous": store.links.previous()}


def discard(store: Store, request: Document) -> Document:
    """Removes files from ``incoming/`` by name (partial transfers, inputs, outputs of runs)."""
    names = [plain_name(name) for name in strings_of(request, "names")]
    return {"removed": sum(store.objects.discard_named(name) for name in names)}


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

    def execute_in_child(_beat: Callable[[], None]) -> Document:
        from edgectl_runner.execution import execute

        return to_document(
            execute(read.manifest, folder, asked, store.incoming, agent_pid=agent_pid)
        )

    return run_isolated(
        execute_in_child, features=read.manifest.cpu_features, processor=read.manifest.cpu
    )


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
        "current": store.links.current(),
        "previous": store.links.previous(),
        "releases": releases,
        "on_probation": on_probation(store),
        "locked_by": holder(store.lock_path) or holder(store.session_path),
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
    release = request.get("release") or store.links.current()
    if release is None:
        raise RunnerError("nothing is installed on this device", next_step="deploy a model first")
    read, _ = store.verified(check_release_id(release))
    return {"release": release, "files": len(read.manifest.files), "intact": True}


def rollback(store: Store, request: Document) -> Document:
    """Goes back to the previous release (or a named one) after digesting it; needs no host."""
    who = who_of(request)
    with _changing(store, request, "rollback"):
        target = request.get("release") or store.links.previous()
        if target is None:
            raise RunnerError(
                "there is no previous release to go back to",
                next_step="see what is installed with 'edgectl status'",
            )
        store.startable(check_release_id(target))
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
    who = who_of(request)
    with _changing(store, request, "trust"):
        store.audit.append("trust", release=None, who=who, add=add, remove=remove, mode=mode)
        return store.trust.change(add=key, remove=remove, mode=mode)


def pin(store: Store, request: Document) -> Document:
    """Marks a release as never to be collected, or takes the mark away."""
    release = check_release_id(request.get("release"))
    pinned = request.get("pinned", True) is True
    with _changing(store, request, "pin"):
        store.pin(release, pinned=pinned)
    return {"release": release, "pinned": pinned}


def gc(store: Store, request: Document) -> Document:
    """Removes releases that are neither current, previous nor pinned, and all that is unused."""
    dry_run = request.get("dry_run", False) is True
    who = who_of(request)
    with _changing(store, request, "gc"):
        removed, freed = store.collect(keep=frozenset(), who=who, dry_run=dry_run)
        versions, version_bytes = collect_versions(store.root, dry_run=dry_run)
    removed, freed = removed + versions, freed + version_bytes
    return {"removed": removed, "freed_bytes": freed, "dry_run": dry_run}


def uninstall(store: Store, request: Document) -> Document:
    """Removes one release, or with ``everything`` the whole root folder."""
    who = who_of(request)
    dry_run = request.get("dry_run", False) is True
    if request.get("everything", False) is True:
        return _uninstall_everything(store, request, dry_run=dry_run)
    release = check_release_id(request.get("release"))
    with _changing(store, request, "uninstall"):
        store.manifest(release)
        if release == store.links.current():
            raise RunnerError(
                f"release {release} is the current one",
                code=USAGE,
                next_step="go back first with 'edgectl rollback', or uninstall everything",
            )
        freed = store.only_used_by(release) if dry_run else store.remove(release, who=who)
    return {"removed": [release], "freed_bytes": freed, "dry_run": dry_run}


def _uninstall_everything(store: Store, request: Document, *, dry_run: bool) -> Document:
    size = sum(p.lstat().st_size for p in store.root.rglob("*") if not p.is_symlink())
    if not dry_run:
        with _changing(store, request, "uninstall"):
            # The links first: nobody may find a release that is half gone.
            for name in ("current", "previous"):
                (store.root / name).unlink(missing_ok=True)
            shutil.rmtree(store.root)
    return {"removed": [str(store.root)], "freed_bytes": size, "dry_run": dry_run}


VERBS: dict[str, Callable[[Store, Document], Document]] = {
    "facts": facts,
    "have": have,
    "install": install,
    "install-env": install_env,
    "discard": discard,
    "hold": hold,
    "release-hold": release_hold,
    "settle": settle,
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


def _missing(store: Store, read: ReadManifest, damaged: list[str]) -> dict[str, int]:
    broken = {read.manifest.files[name].sha256 for name in damaged}
    return {
        e.sha256: e.size_bytes
        for e in read.manifest.files.values()
        if e.sha256 in broken or not store.objects.has(e.sha256, e.size_bytes)
    }


def _plan(
    store: Store, read: ReadManifest, chunks: dict[str, list[Chunk]], damaged: list[str]
) -> tuple[tuple[Pack, ...], int]:
    missing = _missing(store, read, damaged)
    known = store.objects.known_chunks() if missing else {}
    return plan_packs(missing, chunks, known), sum(missing.values())


def _accept(store: Store, read: ReadManifest, request: Document) -> bytes | None:
    """All that is asked of a bundle before a byte of it is stored or run; the signer's key."""
    key = store.trust.check_install(read, request.get("signature"))
    store.sequences.check(read.manifest, allow_downgrade=request.get("allow_downgrade") is True)
    _check_fits(read)
    return key


def _check_fits(read: ReadManifest) -> None:
    check_features(read.manifest.cpu_features, read.manifest.target)
    check_runtime(read, runtime_version())
    check_memory(read.manifest.files[read.manifest.module].size_bytes)


def _signature_file(request: Document) -> dict[str, bytes]:
    signature = request.get("signature")
    return {} if signature is None else {"signature.json": json.dumps(signature).encode()}


def _changing(store: Store, request: Document, verb: str) -> AbstractContextManager[None]:
    return store.changing(who=who_of(request), verb=verb, token=check_token(request.get("token")))
