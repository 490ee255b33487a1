"""Breaks the device's agent at every point where it changes anything, and looks at what is left.

    scripts/fault-campaign                 the short form: a sample of each kind of fault, minutes
    scripts/fault-campaign --long          every point, 2,000 random kills, 200 power cuts

Faults, each against install (with switch and health check), rollback and clean-up:

- ``kill``: SIGKILL on entering the n-th call of each system call that changes files, for every
  call there is (``strace --inject``). Between two such calls nothing on disk changes, so these
  are all the states that a kill can leave.
- ``ENOSPC``, ``EIO``, ``EROFS``: the same calls fail.
- ``random kill``: SIGKILL after a random time.
- ``power cut``: the store lies in an ext4 image on a loop device; at a random time, or at the
  moment of exit 0, the image is copied as it is and the copy mounted (root only). Only what
  reached the block device is in it.

After each fault: ``current`` is a complete release, the old or the new, with every digest right
(after exit 0: the new), and the next attempt succeeds without help and leaves no rubbish. Prints
a table of fault by stage, tried and survived; ends in 1 if anything did not survive.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(REPOSITORY / "device"),
    str(REPOSITORY / "host"),
    str(REPOSITORY / "tests" / "integration" / "runner"),
]

CHANGING_CALLS = (
    "write,pwrite64,ftruncate,fsync,fdatasync,sync,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,symlink,symlinkat,mkdir,mkdirat,rmdir,fchmod,chmod,fchmodat,sendfile,copy_file_range"
)
CREATING = "openat"
ERRORS = ("ENOSPC", "EIO", "EROFS")


@dataclass(frozen=True)
class Stage:
    """One verb: its request, what is there before, and what may be current afterwards."""

    name: str
    verb: str
    request: dict[str, Any]
    template: Path
    old: str
    new: str


def environment(root: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(root.parent),
        "EDGECTL_ROOT": str(root),
        "PYTHONPATH": str(REPOSITORY / "device"),
        # Compiled files would be written by the traced process at some runs and not at others.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


def agent_command(verb: str) -> list[str]:
    return [sys.executable, "-P", "-m", "edgectl_runner", verb]


def call(root: Path, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """One verb without faults, in this process."""
    from edgectl_runner.agent import VERBS
    from edgectl_runner.store import Store

    return VERBS[verb](Store(root), request)


def bundle_request(bundle: Path) -> tuple[dict[str, Any], Any, Any]:
    import zipfile

    from edgectl.remote.bundle_contents import install_request, read_contents

    archive = zipfile.ZipFile(bundle)
    contents = read_contents(archive)
    request = install_request(
        contents, who="campaign", activate=True, key=None, allow_downgrade=False, health=True
    )
    return request, archive, contents


def deliver(root: Path, bundle: Path, *, install: bool) -> dict[str, Any]:
    """What the host does: ask what lacks, send it, and (if ``install``) install it."""
    from edgectl.remote.bundle_contents import read_chunks

    request, archive, contents = bundle_request(bundle)
    plan = call(root, "have", request)
    (root / "incoming").mkdir(parents=True, exist_ok=True)
    for pack in plan["packs"]:
        data = b"".join(read_chunks(archive, contents, pack["chunks"]))
        (root / "incoming" / pack["name"]).write_bytes(data)
    request["packs"] = plan["packs"]
    if install and not (plan["installed"] and plan["current"]):
        answer = call(root, "install", request)
        if not answer["installed"] or answer["healthy"] is False:
            raise RuntimeError(f"the next attempt failed: {answer}")
    return request


def make_stages(work: Path) -> list[Stage]:
    """Stores in the state before each stage."""
    from tiny_bundles import affine_bundle

    old = affine_bundle(work / "old.edgectl", precision="old")
    # Larger than a chunk, so that delta, packs and whole files are all on the way.
    extra = {"weights.bin": random.Random(1).randbytes(700_000)}
    new = affine_bundle(work / "new.edgectl", precision="new", extra=extra)
    base = work / "base"
    deliver(base, old, install=True)
    before_install = work / "before-install"
    shutil.copytree(base, before_install, symlinks=True)
    request = deliver(before_install, new, install=False)
    before_rollback = work / "before-rollback"
    copy_store(base, before_rollback)
    deliver(before_rollback, new, install=True)
    ids = [call(root, "status", {})["current"] for root in (base, before_rollback)]
    before_gc = work / "before-gc"
    copy_store(before_rollback, before_gc)
    third = affine_bundle(work / "third.edgectl", precision="third")
    deliver(before_gc, third, install=True)
    third_id = call(before_gc, "status", {})["current"]
    return [
        Stage("install+switch", "install", request, before_install, ids[0], ids[1]),
        Stage("rollback", "rollback", {"who": "campaign"}, before_rollback, ids[1], ids[0]),
        Stage("clean-up", "gc", {"who": "campaign"}, before_gc, third_id, third_id),
    ]


def copy_store(source: Path, target: Path) -> None:
    """A copy with the same hard links."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


class Survey:
    """What was tried and what did not survive."""

    def __init__(self) -> None:
        self.tried: Counter[tuple[str, str]] = Counter()
        self.failed: dict[tuple[str, str], list[str]] = defaultdict(list)

    def note(self, fault: str, stage: str, what: str, problem: str | None) -> None:
        self.tried[fault, stage] += 1
        if problem is not None:
            self.failed[fault, stage].append(f"{what}: {problem}")
            print(f"NOT SURVIVED {stage} / {fault} / {what}: {problem}", file=sys.stderr)

    def table(self, stages: list[Stage]) -> str:
        names = [s.name for s in stages]
        lines = ["fault        " + "".join(f"{n:>22}" for n in names)]
        for fault in dict.fromkeys(f for f, _ in self.tried):
            cells = []
            for name in names:
                tried = self.tried[fault, name]
                survived = tried - len(self.failed[fault, name])
                cells.append(f"{f'{survived}/{tried}' if tried else '-':>22}")
            lines.append(f"{fault:<13}" + "".join(cells))
        total = sum(self.tried.values())
        lost = sum(len(f) for f in self.failed.values())
        return "\n".join([*lines, f"survived {total - lost} of {total}"])


def problem_with(root: Path, stage: Stage, bundle: Path, *, must_be_new: bool) -> str | None:
    """What is wrong with a store after a fault, if anything; then tries again."""
    from edgectl_runner.failures import RunnerError
    from edgectl_runner.store import Store

    store = Store(root)
    current = store.links.current()
    if current not in (stage.old, stage.new):
        return f"current is {current}"
    if must_be_new and current != stage.new:
        return "the agent reported success and the old release is current"
    try:
        store.startable(current)
        for release in store.release_ids():
            store.verified(release)
        if stage.verb == "install":
            deliver(root, bundle, install=True)
        elif stage.verb == "rollback":
            call(root, "settle", {})
            if store.links.current() == stage.old:
                call(root, "rollback", stage.request)
        else:
            call(root, "gc", stage.request)
        if store.links.current() != stage.new:
            return f"after the next attempt current is {store.links.current()}"
        store.startable(stage.new)
        call(root, "settle", {})
    except (RunnerError, RuntimeError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    rubbish = [str(p.relative_to(root)) for p in root.rglob(".tmp-*")]
    rubbish += [p.name for p in root.glob("*.json") if p.name in ("journal.json", "probation.json")]
    return f"left over: {', '.join(rubbish)}" if rubbish else None


def traced_calls(stage: Stage, work: Path) -> list[tuple[str, int]]:
    """Every (system call, n) of a run that changes files."""
    root = work / "counting"
    copy_store(stage.template, root)
    log = work / "strace.log"
    subprocess.run(
        ["strace", "-o", str(log), "-e", f"trace={CHANGING_CALLS},{CREATING}",
         *agent_command(stage.verb)],
        input=json.dumps(stage.request).encode(), env=environment(root), check=True,
        capture_output=True,
    )  # fmt: skip
    shutil.rmtree(root)
    counts: Counter[str] = Counter()
    points: list[tuple[str, int]] = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(\w+)\(", line)
        if match is None:
            continue
        counts[match[1]] += 1
        # Opening files to read changes nothing; the counter of strace counts them all the same.
        if match[1] != CREATING or "O_CREAT" in line:
            points.append((match[1], counts[match[1]]))
    return points


def inject(stage: Stage, root: Path, name: str, number: int, fault: str) -> int:
    action = "signal=KILL" if fault == "kill" else f"error={fault}"
    done = subprocess.run(
        ["strace", "-o", "/dev/null", "-e", f"trace={name}",
         "-e", f"inject={name}:{action}:when={number}", *agent_command(stage.verb)],
        input=json.dumps(stage.request).encode(), env=environment(root), capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip
    return done.returncode


def injected(stages: list[Stage], work: Path, survey: Survey, bundle: Path, every: int) -> None:
    for stage in stages:
        points = traced_calls(stage, work)
        for fault in ("kill", *ERRORS):
            for index, (name, number) in enumerate(points):
                if (index + hash_of(fault)) % every:
                    continue
                root = work / "run"
                copy_store(stage.template, root)
                code = inject(stage, root, name, number, fault)
                new = stage.verb != "gc" and code == 0
                problem = problem_with(root, stage, bundle, must_be_new=new)
                survey.note(fault, stage.name, f"{name} #{number}", problem)
                shutil.rmtree(root)


def hash_of(text: str) -> int:
    return sum(text.encode())


def random_kills(
    stages: list[Stage], work: Path, survey: Survey, bundle: Path, count: int, dice: random.Random
) -> None:
    for stage, cycle in ((s, cycle_s(s, work)) for s in stages):
        for _ in range(count // len(stages)):
            root = work / "run"
            copy_store(stage.template, root)
            delay = dice.uniform(0.0, 1.1 * cycle)
            code = killed_after(stage, root, delay)
            new = stage.verb != "gc" and code == 0
            problem = problem_with(root, stage, bundle, must_be_new=new)
            survey.note("random kill", stage.name, f"after {delay * 1000:.1f} ms", problem)
            shutil.rmtree(root)


def killed_after(stage: Stage, root: Path, delay_s: float) -> int:
    process = subprocess.Popen(
        agent_command(stage.verb),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(root),
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(stage.request).encode())
    process.stdin.close()
    try:
        return process.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return process.wait()


def cycle_s(stage: Stage, work: Path) -> float:
    root = work / "run"
    copy_store(stage.template, root)
    start = time.monotonic()
    killed_after(stage, root, 120.0)
    shutil.rmtree(root)
    return time.monotonic() - start


def power_cuts(
    stages: list[Stage], work: Path, survey: Survey, bundle: Path, count: int, dice: random.Random
) -> None:
    for stage, cycle in ((s, cycle_s(s, work)) for s in stages):
        for number in range(count // len(stages)):
            at_exit = number % 4 == 0
            delay = 120.0 if at_exit else dice.uniform(0.0, 1.1 * cycle)
            with mounted_image(work, stage.template) as (image, root):
                code = killed_after(stage, root, delay)
                # The bytes of the backing file are what the block device was given.
                subprocess.run(["cp", "--sparse=always", image, work / "cut.img"], check=True)
            with mounted(work / "cut.img", work / "cut") as folder:
                problem = problem_with(
                    folder / "store", stage, bundle, must_be_new=stage.verb != "gc" and code == 0
                )
            what = "at exit" if at_exit else f"after {delay * 1000:.1f} ms"
            survey.note("power cut", stage.name, what, problem)


class mounted:  # noqa: N801 - a context manager
    """An ext4 image, mounted (which replays its journal)."""

    def __init__(self, image: Path, folder: Path):
        self._image, self._folder = image, folder

    def __enter__(self) -> Path:
        self._folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", "loop", self._image, self._folder], check=True)
        return self._folder

    def __exit__(self, *_: object) -> None:
        # A process that was killed a moment ago may still have files open there.
        for _attempt in range(50):
            if subprocess.run(["umount", self._folder], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        subprocess.run(["umount", "--lazy", self._folder], check=True)


class mounted_image:  # noqa: N801 - a context manager
    """A fresh ext4 image with a store in it, all of it durable."""

    def __init__(self, work: Path, template: Path):
        self._image, self._template = work / "disk.img", template
        self._mount = mounted(self._image, work / "disk")

    def __enter__(self) -> tuple[Path, Path]:
        self._image.unlink(missing_ok=True)
        with self._image.open("wb") as file:
            file.truncate(48 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)
        folder = self._mount.__enter__()
        copy_store(self._template, folder / "store")
        subprocess.run(["sync", "-f", folder], check=True)
        return self._image, folder / "store"

    def __exit__(self, *_: object) -> None:
        self._mount.__exit__()


def can_cut_power(work: Path) -> str | None:
    """Why power cuts cannot be tried here, if they cannot."""
    if os.geteuid() != 0:
        return "mounting an image needs root"
    if shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 is not installed (sudo apt install e2fsprogs)"
    probe = work / "probe"
    probe.mkdir()
    try:
        with mounted_image(work, probe):
            return None
    except subprocess.CalledProcessError as error:
        return f"an image cannot be mounted here ({error})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="every point")
    parser.add_argument("--every", type=int, help="inject at every N-th point")
    parser.add_argument("--random-kills", type=int)
    parser.add_argument("--power-cuts", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every = options.every or (1 if options.long else 12)
    kills = options.random_kills if options.random_kills is not None else (
        2001 if options.long else 30
    )  # fmt: skip
    cuts = options.power_cuts if options.power_cuts is not None else (
        201 if options.long else 9
    )  # fmt: skip
    if shutil.which("strace") is None:
        print("strace is not installed: sudo apt install strace", file=sys.stderr)
        return 2
    dice = random.Random(options.seed)
    survey = Survey()
    with tempfile.TemporaryDirectory(prefix="fault-campaign-") as folder:
        work = Path(folder)
        stages = make_stages(work)
        bundle = work / "new.edgectl"
        try:
            injected(stages, work, survey, bundle, every)
            random_kills(stages, work, survey, bundle, kills, dice)
            if cuts and (why := can_cut_power(work)) is not None:
                print(f"power cuts were not tried: {why}", file=sys.stderr)
            elif cuts:
                power_cuts(stages, work, survey, bundle, cuts, dice)
        finally:
            # Hours of an interrupted long form are worth their numbers.
            print(survey.table(stages))
    return 1 if any(survey.failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
