"""The releases on a device: immutable folders, and two links that say which one counts.

    root/
      objects/aa/<sha256>     files by content          incoming/     what is still arriving
      releases/<id>/          manifest.json + hard links into objects; complete or not there
      current -> releases/X   previous -> releases/Y    pinned/<id>   never collected
      journal.json            a switch that is under way; the next start finishes or undoes it
      lock  audit.jsonl

Whatever dies at whatever moment, ``current`` names a complete release, the old or the new. Names
that begin with ``.tmp-`` are unfinished and are removed by the next start that holds the lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from edgectl_runner.audit import AuditLog
from edgectl_runner.durable import (
    TEMPORARY_MARK,
    fsync_directory,
    make_directories,
    sha256_of,
    temporary_name,
    write_durably,
)
from edgectl_runner.failures import DEVICE, RunnerError
from edgectl_runner.links import Links
from edgectl_runner.locking import exclusive_lock
from edgectl_runner.manifests import ReadManifest, check_release_id, read_manifest
from edgectl_runner.objects import ObjectStore
from edgectl_runner.probation import settle
from edgectl_runner.sequences import SequenceRecord
from edgectl_runner.sessions import check_session
from edgectl_runner.trust import TrustStore

__all__ = ["Store", "default_root"]


def default_root(environment: Mapping[str, str]) -> Path:
    """``$EDGECTL_ROOT``, or ``edgectl`` in the user's XDG data folder."""
    if explicit := environment.get("EDGECTL_ROOT"):
        return Path(explicit)
    data_home = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data_home) / "edgectl"


class Store:
    """Everything below one root folder."""

    def __init__(self, root: Path):
        self.root = root
        self.releases = root / "releases"
        self.incoming = root / "incoming"
        self.objects = ObjectStore(root)
        self.audit = AuditLog(root / "audit.jsonl")
        self.lock_path = root / "lock"
        self.session_path = root / "session"
        self.links = Links(root)
        self.trust = TrustStore(root)
        self.sequences = SequenceRecord(root)

    @contextlib.contextmanager
    def changing(self, *, who: str, verb: str, token: str | None = None) -> Iterator[None]:
        """Holds the lock, after putting right whatever an earlier crash left.

        ``token`` names the deployment that this is a step of.

        Raises:
            RunnerError: exit code 75 when somebody else is at work.
        """
        check_session(self.session_path, token)
        for folder in (self.releases, self.incoming, self.root / "objects"):
            make_directories(folder)
        with exclusive_lock(self.lock_path, who=who, verb=verb):
            self._recover(who)
            settle(self, who=who)
            yield

    # --- reading -----------------------------------------------------------------------------

    def release_ids(self) -> tuple[str, ...]:
        """All complete releases."""
        try:
            names = [p.name for p in self.releases.iterdir()]
        except FileNotFoundError:
            return ()
        return tuple(sorted(n for n in names if not n.startswith(".")))

    def pinned(self) -> frozenset[str]:
        """Releases that garbage collection leaves alone."""
        try:
            return frozenset(p.name for p in (self.root / "pinned").iterdir())
        except FileNotFoundError:
            return frozenset()

    def manifest(self, release: str) -> ReadManifest:
        """The manifest of an installed release.

        Raises:
            RunnerError: not installed, or its manifest was changed.
        """
        path = self.releases / check_release_id(release) / "manifest.json"
        try:
            found = read_manifest(path.read_bytes())
        except FileNotFoundError as error:
            have = ", ".join(self.release_ids()) or "none"
            raise RunnerError(
                f"release {release} is not installed on this device (installed: {have})",
                next_step="deploy it again",
            ) from error
        if found.release != release:
            raise RunnerError(
                f"release {release} is damaged: its manifest is that of {found.release}",
                cause="the card lost data, or somebody changed the file",
                next_step="deploy it again",
            )
        return found

    def signature(self, release: str) -> object:
        """The signature that a release was installed with; ``None`` without one."""
        try:
            return json.loads((self.releases / release / "signature.json").read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            return {}  # damaged: `TrustStore` refuses it as unreadable, not as absent

    def startable(self, release: str) -> tuple[ReadManifest, Path]:
        """A release that may be handed to the runtime: digests and signature checked again.

        Raises:
            RunnerError: damaged, or its key is no longer trusted.
        """
        read, folder = self.verified(release)
        self.trust.check_start(read, self.signature(release))
        return read, folder

    def verified(self, release: str) -> tuple[ReadManifest, Path]:
        """The manifest and folder of a release, after digesting every file of it again.

        Raises:
            RunnerError: a file is missing or is not what the manifest says.
        """
        found = self.manifest(release)
        folder = self.releases / release
        damaged = self.damaged_files(found)
        if damaged:
            raise _damaged(release, damaged[0])
        return found, folder

    def damaged_files(self, read: ReadManifest) -> list[str]:
        """Files of an installed release that are no longer what its manifest says."""
        folder = self.releases / read.release
        damaged = []
        for name, entry in read.manifest.files.items():
            path = folder / name
            try:
                intact = path.stat().st_size == entry.size_bytes and sha256_of(path) == entry.sha256
            except FileNotFoundError:
                intact = False
            if not intact:
                damaged.append(name)
        return damaged

    # --- changing (only inside `changing`) ---------------------------------------------------

    def stage(self, read: ReadManifest, extra: Mapping[str, bytes] | None = None) -> None:
        """Makes the release's folder out of objects that are all here; durable when it returns."""
        target = self.releases / read.release
        if target.is_dir():
            return
        temporary = temporary_name(target)
        try:
            self._fill(temporary, read, extra or {})
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        fsync_directory(self.releases)

    def _fill(self, folder: Path, read: ReadManifest, extra: Mapping[str, bytes]) -> None:
        folder.mkdir(mode=0o755)
        for name, data in {"manifest.json": read.data, **extra}.items():
            write_durably(folder / name, data, mode=0o444)
        folders = {folder}
        for name, entry in read.manifest.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            folders.update(p for p in path.parents if folder in (p, *p.parents))
            _link(self.objects.path(entry.sha256), path)
        for place in sorted(folders, key=lambda p: -len(p.parts)):
            fsync_directory(place)

    def relink(self, read: ReadManifest, names: list[str]) -> None:
        """Replaces damaged files of an installed release by intact objects, one by one."""
        folder = self.releases / read.release
        for name in names:
            path = folder / name
            make_directories(path.parent)
            temporary = temporary_name(path)
            _link(self.objects.path(read.manifest.files[name].sha256), temporary)
            temporary.replace(path)
            fsync_directory(path.parent)

    def switch(self, release: str, *, who: str, event: str) -> str | None:
        """Makes ``release`` the current one and the current one the previous.

        The audit record is written first: a disk too full for it leaves everything as it was.
        Returns what was current before.
        """
        before = self.links.current()
        if before == release:
            return before
        if release not in self.release_ids():
            raise RunnerError(f"release {release} is not installed on this device")
        self.audit.append(event, release=release, who=who, before=before)
        self.links.change(current=release, previous=before)
        return before

    def pin(self, release: str, *, pinned: bool) -> None:
        """Sets or takes away the mark that keeps a release from being collected."""
        self.manifest(release)
        mark = self.root / "pinned" / release
        make_directories(mark.parent)
        if pinned:
            write_durably(mark, b"")
        else:
            mark.unlink(missing_ok=True)
            fsync_directory(mark.parent)

    def collect(self, *, keep: frozenset[str], who: str, dry_run: bool) -> tuple[list[str], int]:
        """Removes releases that nothing needs, and their objects; (removed, bytes freed).

        Current, previous, pinned and ``keep`` stay.
        """
        needed = {self.links.current(), self.links.previous(), *self.pinned(), *keep}
        doomed = [r for r in self.release_ids() if r not in needed]
        if not dry_run:
            for release in doomed:
                self.note("collect", release=release, who=who)
                self._remove_release(release)
        kept_objects: set[str] = set()
        for release in self.release_ids():
            if not (dry_run and release in doomed):
                files = self.manifest(release).manifest.files
                kept_objects.update(entry.sha256 for entry in files.values())
        if dry_run:
            sizes = {
                e.sha256: e.size_bytes
                for r in doomed
                for e in self.manifest(r).manifest.files.values()
            }
            return doomed, sum(s for sha, s in sizes.items() if sha not in kept_objects)
        freed = self.objects.remove_unreferenced(frozenset(kept_objects))
        for path in self.incoming.iterdir():
            freed += path.stat().st_size if path.is_file() else 0
            _remove(path)
        return doomed, freed

    def remove(self, release: str, *, who: str) -> int:
        """Removes one release and the objects that only it needed; returns the bytes freed."""
        self.note("uninstall", release=release, who=who)
        if self.links.previous() == release:
            self.links.change(current=self.links.current(), previous=None)
        (self.root / "pinned" / release).unlink(missing_ok=True)
        self._remove_release(release)
        return self.objects.remove_unreferenced(self._referenced())

    def only_used_by(self, release: str) -> int:
        """Bytes of the objects that no other release has; what `remove` would free."""
        mine = {e.sha256: e.size_bytes for e in self.manifest(release).manifest.files.values()}
        others = {
            entry.sha256
            for other in self.release_ids()
            if other != release
            for entry in self.manifest(other).manifest.files.values()
        }
        return sum(size for sha256, size in mine.items() if sha256 not in others)

    def _referenced(self) -> frozenset[str]:
        return frozenset(
            entry.sha256
            for release in self.release_ids()
            for entry in self.manifest(release).manifest.files.values()
        )

    def _remove_release(self, release: str) -> None:
        # Renamed first, so that a kill half way through leaves no release with files missing.
        doomed = temporary_name(self.releases / release)
        (self.releases / release).rename(doomed)
        fsync_directory(self.releases)
        shutil.rmtree(doomed)

    def _recover(self, who: str) -> None:
        leftovers = [
            path
            for folder in (self.root, *self._folders_with_leftovers())
            for path in folder.iterdir()
            if path.name.startswith(TEMPORARY_MARK)
        ]
        for path in leftovers:
            _remove(path)
        outcome = self.links.recover()
        if outcome is not None:
            self.note("recover", release=self.links.current(), who=who, switch=outcome)

    def note(self, event: str, *, release: str | None, who: str, **details: object) -> None:
        """An audit record of something that makes room or puts right; a full disk may lose it."""
        with contextlib.suppress(OSError):
            self.audit.append(event, release=release, who=who, **details)

    def _folders_with_leftovers(self) -> list[Path]:
        names = ("releases", "incoming", "pinned", "env", "runner", "objects")
        top = [self.root / name for name in names if (self.root / name).is_dir()]
        return [*top, *(p for p in (self.root / "objects").iterdir() if p.is_dir())]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # File systems without hard links (exFAT) and objects with too many of them.
        with source.open("rb") as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _damaged(release: str, name: str) -> RunnerError:
    return RunnerError(
        f"release {release} is damaged: {name} is not what its manifest says",
        code=DEVICE,
        cause="the card lost data, or somebody changed the file",
        next_step="deploy it again, or go back with 'edgectl rollback'",
    )
