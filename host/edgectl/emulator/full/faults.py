"""What can go wrong with a machine, each brought about for real and taken back again.

FAULTS["disk-full"].bring(machine); ...; FAULTS["disk-full"].take_back(machine)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgectl.emulator.full.machine import Machine

__all__ = ["FAULTS", "Fault"]

_FILLER = "/var/tmp/edgectl-filler"  # noqa: S108 - on the virtual machine
# Leaves nothing at all, not even what is kept for root. Most of it is only set aside, which is
# quick; the last megabytes are written.
_FILL = (
    "set -- $(stat -f -c '%f %S' /); "
    f"fallocate -l $(( $1 * $2 - 4194304 )) {_FILLER}; "
    f"cat /dev/zero >> {_FILLER} 2>/dev/null; sync; true"
)
_READ_ONLY = "sync; echo u > /proc/sysrq-trigger; sleep 1; ! touch /edgectl-probe 2>/dev/null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: what it is for, how it is brought about, and how it ends."""

    title: str
    bring: Callable[[Machine], None]
    take_back: Callable[[Machine], None]


def _shell(command: str) -> Callable[[Machine], None]:
    def run(machine: Machine) -> None:
        machine.run(command)

    return run


def _cable(*, plugged: bool) -> Callable[[Machine], None]:
    def turn(machine: Machine) -> None:
        with machine.qmp() as qmp:
            qmp("set_link", name="nic0", up=plugged)

    return turn


_NETEM = "tc qdisc replace dev eth0 root netem"
_NO_NETEM = _shell("tc qdisc replace dev eth0 root fq_codel")

FAULTS: dict[str, Fault] = {
    "disk-full": Fault(
        title="not a byte left on the card",
        bring=_shell(_FILL),
        take_back=_shell(f"rm -f {_FILLER}; sync"),
    ),
    "read-only": Fault(
        title="the card's file system turned read-only, as after an error",
        bring=_shell(_READ_ONLY),
        take_back=_shell("mount -o remount,rw /"),
    ),
    "clock-1970": Fault(
        title="the clock of a board that has no battery and found no network",
        # Not its first day: the kernel takes no time before the machine's own start.
        bring=_shell("date -s 1970-01-02T00:00:00Z"),
        take_back=_shell("hwclock --hctosys --utc 2>/dev/null || date -s @$(stat -c %Y /run)"),
    ),
    "network-down": Fault(
        title="the cable is pulled: nothing arrives, nothing is refused",
        bring=_cable(plugged=False),
        take_back=_cable(plugged=True),
    ),
    "network-slow": Fault(
        title="300 ms of delay and 1 Mbit/s, as over a phone",
        bring=_shell(f"{_NETEM} delay 300ms rate 1mbit"),
        take_back=_NO_NETEM,
    ),
    "network-lossy": Fault(
        title="one packet in ten is lost",
        bring=_shell(f"{_NETEM} loss 10%"),
        take_back=_NO_NETEM,
    ),
}
