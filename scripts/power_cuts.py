"""Takes the power from a whole virtual Pi at random moments of deployments and rollbacks.

    scripts/power-cuts                     200 cuts; about half an hour on two cores
    scripts/power-cuts --cuts 24 --boots 1

The machine has its own kernel, ext4 and a card whose write cache is lost with the power, in part
and out of order (`edgectl.emulator.full.card`). Each round goes on from a snapshot with an old
release on it, deploys a new one over SSH with a health check, and rolls back. At random moments
the card leaves an image of what a power cut then would have left on it; the round ends with the
machine killed for real, and in some rounds booted again from what is left.

Of each image:

- the file system is whole once its journal was replayed (e2fsck -p finds nothing beyond it);
- ``current`` is a complete release with every digest right: the old or the new one, and after
  the deployment said that it succeeded, only the new;
- what the next start does with it (`settle`) leaves a complete release and no rubbish;
- the next deployment succeeds (install and switch; its health check needs an aarch64 processor
  and is part of those attempts that really boot).

Prints cuts by stage; ends in 1 if anything did not survive.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(REPOSITORY / "device"),
    str(REPOSITORY / "host"),
    str(REPOSITORY / "tests" / "integration" / "runner"),
]

ROOT = "/home/pi/.local/share/edgectl"
SNAPSHOT = "before-deployment"
STAGES = ("plan", "transfer", "install, switch, probation", "deployed", "rollback", "rolled back")


@dataclass
class Cut:
    """One image: where it is, at which stage it was taken, what may be current in it."""

    image: Path
    stage: str
    allowed: frozenset[str]
    lost_sectors: int = 0
    unsafe_sectors: int = 0


@dataclass
class Survey:
    tried: Counter[str] = field(default_factory=Counter)
    new: Counter[str] = field(default_factory=Counter)
    unsafe: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    boots: int = 0
    kills: int = 0

    def note(self, cut: Cut, current: str | None, new: str, problem: str | None) -> None:
        self.tried[cut.stage] += 1
        self.unsafe[cut.stage] += cut.unsafe_sectors
        self.lost[cut.stage] += cut.lost_sectors
        self.new[cut.stage] += current == new
        if problem is not None:
            self.fail(cut.stage, problem)

    def fail(self, stage: str, problem: str) -> None:
        self.failed[stage] += 1
        self.failures.append(f"{stage}: {problem}")
        print(f"NOT SURVIVED {stage}: {problem}", file=sys.stderr)

    def table(self) -> str:
        head = f"{'cut during':<28}{'cuts':>6}{'old':>6}{'new':>6}{'not flushed':>14}{'lost':>9}"
        lines = [f"{head}{'survived':>11}"]
        for stage in STAGES:
            tried = self.tried[stage]
            if tried:
                survived = tried - self.failed[stage]
                lines.append(
                    f"{stage:<28}{tried:>6}{tried - self.new[stage]:>6}{self.new[stage]:>6}"
                    f"{self.unsafe[stage]:>14}{self.lost[stage]:>9}{f'{survived}/{tried}':>11}"
                )
        lines.append("(not flushed, lost: sectors of 512 bytes)")
        lines.append(
            f"{sum(self.tried.values())} cuts, {self.kills} of them by killing the machine, "
            f"{self.boots} booted again; {len(self.failures)} failures"
        )
        return "\n".join(lines)


class Campaign:
    def __init__(self, work: Path, cache: Path, dice: random.Random):
        from edgectl.emulator.full.image import ensure_image
        from edgectl.emulator.full.machine import MachineSpec

        self.work = work
        self.dice = dice
        self.cache = cache
        self.survey = Survey()
        self.image = ensure_image(cache, on_step=say)
        self.spec = MachineSpec(target="rpi4", cpu="cortex-a72", cores=2, memory_mb=512)
        self.folder = work / "machine"
        self.cycle_s = 0.0
        self.bundles = tuple(self._bundle(name, seed) for seed, name in enumerate(("old", "new")))
        self.old = self.new = ""

    def _bundle(self, name: str, seed: int) -> Path:
        from tiny_bundles import AFFINE, affine_bundle, compile_mlir

        # Larger than a chunk; smaller than what is worth a second process on the device.
        return affine_bundle(
            self.work / f"{name}.edgectl",
            module=compile_mlir(AFFINE, "aarch64"),
            architecture="aarch64",
            target="rpi4",
            cpu="cortex-a72",
            precision=name,
            extra={"weights.bin": random.Random(seed).randbytes(700_000)},
        )

    def connect(self, machine: Any) -> Any:
        from edgectl.remote.ssh import connect
        from edgectl.remote.ssh_options import SshOptions

        (self.work / "ssh_config").touch()
        options = SshOptions(
            identity_file=self.work / "id_ed25519",
            known_hosts_file=self.work / "known_hosts",
            config_file=self.work / "ssh_config",
            system_config_file=self.work / "ssh_config",
            agent_socket=None,
            home=self.work,
            emulated=True,
            connect_timeout_s=60.0,
            banner_timeout_s=60.0,
            auth_timeout_s=60.0,
            channel_timeout_s=60.0,
        )
        return connect(f"pi@127.0.0.1:{machine.port}", options=options)

    def prepare(self) -> None:
        """The snapshot: the runner and the old release are on the machine, all of it flushed."""
        from edgectl.emulator.full.machine import start
        from edgectl.remote.install import prepare_device
        from edgectl.remote.push import push_bundle

        began = time.monotonic()
        machine = start(self.folder, self.image, self.spec)
        say(f"booted in {time.monotonic() - began:.1f} s")
        with contextlib.closing(self.connect(machine)) as device:
            handle = prepare_device(device, cache_dir=self.cache / "wheels")
            self.old = push_bundle(device, handle, self.bundles[0], health=False).release
        machine.run("sync")
        machine.save(SNAPSHOT)
        with contextlib.closing(self.connect(machine)) as device:
            self.handle = handle
            began = time.monotonic()
            pushed = push_bundle(device, handle, self.bundles[1])
            self.new = pushed.release
            self.go_back(device)
            self.cycle_s = time.monotonic() - began
        machine.cut_power()
        if pushed.healthy is not True:
            raise SystemExit(f"the new release is not healthy by itself: {pushed.reason}")
        say(f"a deployment and a rollback take {self.cycle_s:.1f} s")

    def go_back(self, device: Any) -> None:
        from edgectl.remote.releases import rollback

        rollback(device, self.handle)

    def round(self, count: int, *, boot: bool) -> None:
        """One deployment and rollback, cut ``count`` times; the last time for real."""
        from edgectl.emulator.full.machine import start

        shutil.rmtree(self.folder / "cuts", ignore_errors=True)
        seed = self.dice.randrange(1 << 31)
        machine = start(self.folder, self.image, self.spec, snapshot=SNAPSHOT, seed=seed)
        state = {"stage": "plan"}
        device = self.connect(machine)
        worker = threading.Thread(target=self._work, args=(device, state), daemon=True)
        moments = sorted(self.dice.uniform(0.0, 1.2 * self.cycle_s) for _ in range(count))
        cuts: list[Cut] = []
        began = time.monotonic()
        worker.start()
        for number, moment in enumerate(moments):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            stage = state["stage"]
            cut = Cut(Path(), stage, self._allowed(stage))
            if number < count - 1:
                cut.image = self.folder / "cuts" / f"{number:03}.img"
                os.kill(machine.card_pid, signal.SIGUSR1)
                note = _wait_for(cut.image.with_suffix(".json"))
                cut.lost_sectors, cut.unsafe_sectors = note["lost_sectors"], note["unsafe_sectors"]
            else:
                cut.lost_sectors, cut.unsafe_sectors = machine.cut_power()
                cut.image = machine.disk
                self.survey.kills += 1
            # What ended between reading the stage and the cut may count or not.
            cut.allowed |= self._allowed(state["stage"])
            cuts.append(cut)
        worker.join(timeout=120)
        with contextlib.suppress(Exception):
            device.close()
        if "error" in state and "expected" not in state:
            self.survey.fail(state["stage"], f"the deployment itself failed: {state['error']}")
        if boot:
            self._boot_again(cuts[-1])
        for cut in cuts:
            self._judge(cut)
            if cut.image.parent.name == "cuts":
                cut.image.unlink()

    def _work(self, device: Any, state: dict[str, str]) -> None:
        from edgectl.errors import ConnectionFailedError, EdgectlError
        from edgectl.remote.push import push_bundle

        def progress(done: int, total: int) -> None:
            state["stage"] = "transfer" if done < total else "install, switch, probation"

        try:
            pushed = push_bundle(device, self.handle, self.bundles[1], progress=progress)
            if pushed.healthy is not True:
                state["error"] = f"not healthy: {pushed.reason}"
                return
            state["stage"] = "deployed"
            time.sleep(0.02 * self.cycle_s)
            state["stage"] = "rollback"
            self.go_back(device)
            state["stage"] = "rolled back"
        except ConnectionFailedError as error:
            state["error"] = str(error)
            state["expected"] = "the machine was killed"
        except EdgectlError as error:
            state["error"] = str(error)

    def _allowed(self, stage: str) -> frozenset[str]:
        if stage == "deployed":
            return frozenset({self.new})
        if stage == "rolled back":
            return frozenset({self.old})
        return frozenset({self.old, self.new})

    def _judge(self, cut: Cut) -> None:
        with tempfile.TemporaryDirectory(dir=self.work, prefix="store-") as folder:
            problem = mend_file_system(cut.image)
            current = None
            if problem is None:
                store = Path(folder) / "edgectl"
                extract(cut.image, store)
                current, problem = self._problem_with(store, cut.allowed)
        self.survey.note(cut, current, self.new, problem)

    def _problem_with(self, root: Path, allowed: frozenset[str]) -> tuple[str | None, str | None]:
        from edgectl_runner.agent import VERBS
        from edgectl_runner.failures import RunnerError
        from edgectl_runner.store import Store

        store = Store(root)
        current = store.links.current()
        try:
            if current not in allowed:
                return current, f"current is {current}, not of {sorted(allowed)}"
            store.verified(current)
            VERBS["settle"](store, {})
            after = store.links.current()
            if after not in (self.old, self.new):
                return current, f"after settling, current is {after}"
            store.verified(after)
            deliver(root, self.bundles[1])
            store.verified(self.new)
            if store.links.current() != self.new:
                return current, "the next deployment did not become current"
            rubbish = [*root.rglob(".tmp-*"), *(root / "incoming").iterdir()]
            rubbish += [p for p in (root / "journal.json", root / "probation.json") if p.exists()]
            if rubbish:
                return current, f"rubbish is left: {rubbish[0].name}"
        except (RunnerError, OSError, ValueError) as error:
            return current, f"{type(error).__name__}: {error}"
        return current, None

    def _boot_again(self, cut: Cut) -> None:
        """The machine starts from what is left, and the same deployment succeeds."""
        from edgectl.emulator.full.machine import start
        from edgectl.errors import EdgectlError
        from edgectl.remote.push import push_bundle

        copy = cut.image.with_name("left.img")
        subprocess.run(["cp", "--sparse=always", cut.image, copy], check=True)
        self.survey.boots += 1
        try:
            machine = start(self.folder, self.image, self.spec)
            with contextlib.closing(self.connect(machine)) as device:
                pushed = push_bundle(device, self.handle, self.bundles[1])
            current = machine.run(f"readlink {ROOT}/current").strip()
            failed = machine.run("systemctl --failed --no-legend").strip()
            machine.cut_power()
            # Already current before: nothing to prove, and nothing was asked of it.
            fine = pushed.healthy is not False and current == f"releases/{self.new}" and not failed
            if not fine:
                self.survey.fail(cut.stage, f"booted again: {pushed}, {current}, {failed}")
        except EdgectlError as error:
            self.survey.fail(cut.stage, f"booted again: {error}")
        copy.replace(cut.image)


def mend_file_system(image: Path) -> str | None:
    """Replays the journal; what is broken beyond what that puts right, if anything."""
    from edgectl.emulator.full.disk import tool

    done = subprocess.run(
        [tool("e2fsck"), "-f", "-p", str(image)], capture_output=True, text=True, check=False
    )
    # Preening stops (4) at anything that a crash of an ext4 with a journal must not leave.
    if done.returncode >= 4:
        return f"the file system is broken: {done.stdout[-300:]}"
    return None


def extract(image: Path, store: Path) -> None:
    """Copies the store out of the image, without the runner and its packages."""
    from edgectl.emulator.full.disk import tool

    store.mkdir()
    listed = subprocess.run(
        [tool("debugfs"), "-R", f"ls -p {ROOT}", str(image)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    # /INODE/MODE/UID/GID/NAME/SIZE/
    names = [line.split("/")[5] for line in listed.splitlines() if line.startswith("/")]
    wanted = [n for n in names if n not in (".", "..", "env", "runner")]
    commands = "\n".join(f"rdump {ROOT}/{name} {store}" for name in wanted)
    subprocess.run(
        [tool("debugfs"), "-f", "-", str(image)],
        input=commands, text=True, check=True, capture_output=True,
    )  # fmt: skip


def deliver(root: Path, bundle: Path) -> None:
    """The next attempt, as the host makes it; without what needs the device's processor."""
    import zipfile
    from unittest import mock

    from edgectl.remote.bundle_contents import install_request, read_chunks, read_contents
    from edgectl_runner import agent
    from edgectl_runner.store import Store

    with (
        zipfile.ZipFile(bundle) as archive,
        mock.patch.multiple(agent, check_architecture=mock.DEFAULT, _check_fits=mock.DEFAULT),
    ):
        contents = read_contents(archive)
        request = install_request(
            contents, who="campaign", activate=True, key=None, allow_downgrade=False, health=False
        )
        plan = agent.VERBS["have"](Store(root), request)
        (root / "incoming").mkdir(exist_ok=True)
        for pack in plan["packs"]:
            data = b"".join(read_chunks(archive, contents, pack["chunks"]))
            arrived = root / "incoming" / (pack["name"] + ".part")
            # As a transfer goes on: what is there stays, the rest is added.
            there = int(pack["received_bytes"])
            complete = root / "incoming" / pack["name"]
            if complete.exists():
                continue
            with arrived.open("r+b" if arrived.exists() else "wb") as file:
                file.truncate(there)
                file.seek(there)
                file.write(data[there:])
            arrived.replace(complete)
        answer = agent.VERBS["install"](Store(root), {**request, "packs": plan["packs"]})
        if not answer["installed"] and answer["bad_chunks"]:
            # Chunks that the cut spoilt in the part that had arrived are sent again.
            data = b"".join(read_chunks(archive, contents, answer["bad_chunks"]))
            (root / "incoming" / "repair.pack").write_bytes(data)
            repair = {"name": "repair.pack", "whole": None, "chunks": answer["bad_chunks"]}
            request["packs"] = [*plan["packs"], repair]
            answer = agent.VERBS["install"](Store(root), request)
        if not answer["installed"]:
            raise ValueError(f"the next deployment failed: {answer}")


def _wait_for(path: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"the card left no image ({path})")
        time.sleep(0.01)
    note: dict[str, Any] = json.loads(path.read_text())
    return note


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    from edgectl.settings import load_settings

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=204)
    parser.add_argument("--per-round", type=int, default=12)
    parser.add_argument("--boots", type=int, default=4, help="rounds that end with a boot")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no round after that")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rounds = max(1, options.cuts // options.per_round)
    end = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="power-cuts-") as folder:
        campaign = Campaign(Path(folder), load_settings().cache_dir, random.Random(options.seed))
        try:
            campaign.prepare()
            for number in range(rounds):
                if time.monotonic() > end:
                    break
                boot = options.boots > 0 and number % max(1, rounds // options.boots) == 0
                campaign.round(options.per_round, boot=boot)
                say(f"round {number + 1} of {rounds}: {len(campaign.survey.failures)} failures")
        finally:
            from edgectl.emulator.full.machine import find

            machine = find(campaign.folder)
            if machine is not None:
                machine.cut_power()
            # Half an hour that was interrupted is worth its numbers.
            print(campaign.survey.table(), flush=True)
    return 1 if campaign.survey.failures else 0


if __name__ == "__main__":
    sys.exit(main())
