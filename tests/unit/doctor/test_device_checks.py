"""Each thing that can be wrong with a device, its verdict, and that a fix is offered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgectl.doctor import Needs, Status, preflight, run_checks
from edgectl.doctor.device import DEVICE_CHECKS
from edgectl.errors import DeviceError
from edgectl.remote.facts import DeviceFacts
from edgectl_runner.contract import SystemSample
from edgectl_toolchains import load_target
from support.device_facts import GOOD_DISK, HEALTHY_PI4, python, spoiled

RPI4 = load_target("rpi4")
SAMPLE = HEALTHY_PI4.sample


def verdicts(facts: DeviceFacts, target: str = "rpi4") -> dict[str, tuple[Status, str]]:
    needs = Needs(target=load_target(target))
    results = [check(facts, needs) for check in DEVICE_CHECKS]
    for result in results:
        assert (result.fix is None) is (result.status is Status.OK), result
    return {result.name: (result.status, result.message) for result in results}


def test_healthy_pi_has_nothing_to_complain_about() -> None:
    found = verdicts(HEALTHY_PI4)
    assert {status for status, _ in found.values()} == {Status.OK}
    assert len(found) == len(DEVICE_CHECKS)


FATAL = {
    "armv7l": (spoiled(kernel_architecture="armv7l", userland_bits=32), "architecture", "32-bit"),
    "x86": (spoiled(kernel_architecture="x86_64"), "architecture", "x86_64"),
    "32-bit userland": (spoiled(userland_bits=32), "userland", "programs are 32-bit"),
    "musl": (spoiled(libc="musl", libc_version=None), "C library", "musl"),
    "old glibc": (spoiled(libc_version="2.24"), "C library", "2.24"),
    "no Python": (spoiled(pythons=()), "Python", "no Python 3"),
    "Python 3.9": (spoiled(pythons=(python("3.9.2"),)), "Python", "3.11 to 3.13"),
    "Python 3.15": (spoiled(pythons=(python("3.15.0"),)), "Python", "3.15.0"),
    "32-bit Python": (spoiled(pythons=(python("3.11.2", bits=32),)), "Python", "32-bit"),
    "free-threaded": (spoiled(pythons=(python("3.13.1", free_threaded=True),)), "Python", "cp313t"),
    "PyPy": (spoiled(pythons=(python("3.11.2", implementation="pypy"),)), "Python", "pypy"),
    "no NEON crc": (spoiled(cpu_features=("fp", "asimd")), "core", "lacks crc"),
    "read-only": (
        spoiled(root_disk=replace(GOOD_DISK, read_only=True)),
        "edgectl's folder",
        "read",
    ),
    "foreign folder": (
        spoiled(root_disk=replace(GOOD_DISK, writable=False)),
        "edgectl's folder",
        "may not write",
    ),
    "full disk": (spoiled(root_disk=replace(GOOD_DISK, free_bytes=10**7)), "disk", "10.0 MB free"),
    "no inodes": (spoiled(root_disk=replace(GOOD_DISK, free_inodes=12)), "inodes", "12 free"),
}


@pytest.mark.parametrize("name", FATAL)
def test_fatal_problems(name: str) -> None:
    facts, check, words = FATAL[name]
    status, message = verdicts(facts)[check]
    assert status is Status.FAILED
    assert words in message
    with pytest.raises(DeviceError) as caught:
        preflight(facts, RPI4, needed_bytes=10**8, needed_inodes=100)
    assert words in caught.value.message
    assert caught.value.next_step
    assert caught.value.exit_code == 7


def sample(**changes: object) -> SystemSample:
    return replace(SAMPLE, **changes)  # type: ignore[arg-type]


WARNINGS = {
    "other core": (spoiled(cpu_part="0xd0b"), "core", "Cortex-A76"),
    "little memory": (spoiled(memory_available_bytes=50 << 20), "memory", "50 MiB"),
    "overlay": (
        spoiled(root_disk=replace(GOOD_DISK, filesystem="overlay")),
        "edgectl's folder",
        "gone after a restart",
    ),
    "RAM disk": (
        spoiled(root_disk=replace(GOOD_DISK, filesystem="tmpfs")),
        "edgectl's folder",
        "tmpfs",
    ),
    "full /tmp": (
        spoiled(tmp_disk=replace(GOOD_DISK, path="/tmp", free_bytes=0)),
        "temporary folder",
        "/tmp",
    ),
    "clock in 1970": (spoiled(clock_skew_s=-1.79e9), "clock", "days behind"),
    "clock ahead": (spoiled(clock_skew_s=7400.0), "clock", "2 hours ahead of"),
    "not synchronized": (spoiled(clock_synchronized=False), "clock", "not kept so"),
    "powersave": (spoiled(sample=sample(governor="powersave")), "governor", "powersave"),
    "ondemand": (spoiled(sample=sample(governor="ondemand")), "governor", "ondemand"),
    "under-voltage": (
        spoiled(sample=sample(throttle_flags=0x50005)),
        "throttling",
        "under-voltage",
    ),
    "was hot": (spoiled(sample=sample(throttle_flags=0x80000)), "throttling", "since boot"),
    "hot": (spoiled(sample=sample(temperature_celsius=79.0)), "temperature", "79"),
    "no systemd": (spoiled(systemd=False), "systemd", "service"),
    "Python beside": (
        spoiled(pythons=(python("3.9.2"), python("3.12.1", default=False))),
        "Python",
        "python3.12 (3.12.1) is used",
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings_do_not_stop_a_deployment(name: str) -> None:
    facts, check, words = WARNINGS[name]
    status, message = verdicts(facts)[check]
    assert status is Status.WARNING
    assert words in message
    preflight(facts, RPI4, needed_bytes=10**6, needed_inodes=100)


UNKNOWN = {
    "throttling": spoiled(sample=sample(throttle_flags=None), throttle_source=None),
    "temperature": spoiled(sample=sample(temperature_celsius=None)),
    "governor": spoiled(sample=sample(governor=None)),
    "clock": spoiled(clock_skew_s=None),
    "memory": spoiled(memory_available_bytes=None),
    "userland": spoiled(userland_bits=None),
    "C library": spoiled(libc=None, libc_version=None),
    "core": spoiled(cpu_features=()),
    "disk": spoiled(root_disk=None),
    "inodes": spoiled(root_disk=None),
    "edgectl's folder": spoiled(root_disk=None),
    "temporary folder": spoiled(tmp_disk=None),
}


@pytest.mark.parametrize("check", UNKNOWN)
def test_what_is_not_told_is_unknown_and_never_ok(check: str) -> None:
    assert verdicts(UNKNOWN[check])[check][0] is Status.UNKNOWN


def test_emulated_devices_are_not_blamed_for_lacking_a_board() -> None:
    bare = spoiled(
        emulated=True,
        sample=SystemSample(),
        systemd=False,
        throttle_source=None,
        root_disk=replace(GOOD_DISK, filesystem="overlay"),
        clock_synchronized=False,
    )
    found = verdicts(bare)
    assert {status for status, _ in found.values()} == {Status.OK}


def test_model_for_a_newer_core_is_refused_and_says_what_is_missing() -> None:
    status, message = verdicts(HEALTHY_PI4, target="rpi5")["core"]
    assert status is Status.FAILED
    for feature in ("dotprod", "fullfp16", "lse"):
        assert feature in message


def test_preflight_collects_everything_that_is_fatal() -> None:
    facts = spoiled(userland_bits=32, libc_version="2.24", pythons=())
    with pytest.raises(DeviceError) as caught:
        preflight(facts, RPI4, needed_bytes=1, needed_inodes=1)
    for words in ("programs are 32-bit", "glibc 2.24", "no Python 3"):
        assert words in caught.value.message


def test_preflight_refuses_when_the_disk_is_one_byte_short() -> None:
    from edgectl.doctor.needs import RESERVE_BYTES

    disk = replace(GOOD_DISK, free_bytes=1_000_000 + RESERVE_BYTES)
    preflight(spoiled(root_disk=disk), RPI4, needed_bytes=1_000_000, needed_inodes=1)
    with pytest.raises(DeviceError, match="disk"):
        preflight(spoiled(root_disk=disk), RPI4, needed_bytes=1_000_001, needed_inodes=1)


def test_preflight_counts_inodes_only_where_they_are_counted() -> None:
    disk = replace(GOOD_DISK, free_inodes=99)
    with pytest.raises(DeviceError, match="99 free"):
        preflight(spoiled(root_disk=disk), RPI4, needed_bytes=1, needed_inodes=100)
    unlimited = replace(GOOD_DISK, free_inodes=None)
    preflight(spoiled(root_disk=unlimited), RPI4, needed_bytes=1, needed_inodes=10**9)


def test_run_checks_covers_host_and_device() -> None:
    results = run_checks(facts=HEALTHY_PI4, target=RPI4)
    assert {result.where for result in results} == {"host", "device"}
    assert {r.where for r in run_checks(facts=HEALTHY_PI4, host=False)} == {"device"}
    assert {r.where for r in run_checks()} == {"host"}


def test_preflight_refuses_a_model_whose_peak_does_not_fit() -> None:
    facts = spoiled(memory_available_bytes=100 << 20)
    preflight(facts, RPI4, needed_bytes=1, needed_inodes=1, needed_memory_bytes=100 << 20)
    with pytest.raises(DeviceError, match="100 MiB available of 4096; 101 MiB are needed"):
        preflight(facts, RPI4, needed_bytes=1, needed_inodes=1, needed_memory_bytes=101 << 20)
