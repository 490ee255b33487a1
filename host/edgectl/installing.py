"""From a bundle and a device to a release that is current there: fit, prepare, push.

with connection(device, sending) as on_device:
    handle = prepare(on_device, python, settings=settings, hooks=hooks)
    push = install(on_device, handle, bundle, settings=settings, hooks=hooks)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from edgectl.errors import DeviceError
from edgectl.hooks import Hooks
from edgectl.records import Bundle
from edgectl.settings import Settings

if TYPE_CHECKING:
    from edgectl.remote import Device, Progress
    from edgectl.remote.agent_calls import RunnerHandle
    from edgectl.remote.facts import DeviceFacts
    from edgectl.remote.push import PushReport

__all__ = ["Connection", "Sending", "check_fit", "connection", "install", "prepare", "python_of"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a bundle travels: no faster than ``bytes_per_s``; an older one only if that is allowed.

    ``reconnect`` opens the device again after a broken connection; without it the first break
    ends the deployment (and the next one goes on where it stopped).
    """

    bytes_per_s: float | None = None
    allow_downgrade: bool = False
    reconnect: Callable[[], Device] | None = None
    notify: Callable[[str], None] = print


@contextmanager
def connection(device: Device, sending: Sending | None = None) -> Iterator[Connection]:
    """The device's connection, replaced after breaks; a replacement is closed at the end."""
    connection = Connection(device, sending or Sending())
    try:
        yield connection
    finally:
        if connection.device is not device:
            connection.device.close()


class Connection:
    """What is open to the device at the moment, and how bytes travel over it."""

    def __init__(self, device: Device, sending: Sending):
        self.device = device
        self.sending = sending

    def __call__(
        self, action: Callable[[Device, Progress], Result], progress: Progress | None
    ) -> Result:
        """``action`` on the device, over new connections if it breaks and may be opened again."""
        from edgectl.remote.reconnecting import Watch, with_reconnects

        reconnect, watch = self.sending.reconnect, Watch(progress)
        if reconnect is None:
            return action(self.device, watch)
        result, self.device = with_reconnects(
            self.device,
            reconnect,
            lambda device: action(device, watch),
            watch=watch,
            notify=self.sending.notify,
        )
        return result


def python_of(facts: DeviceFacts) -> str:
    """The interpreter of the device that the runner can use; ``python3`` if none is known."""
    from edgectl.remote.wheelhouse import SUPPORTED_PYTHONS

    python = facts.usable_python(SUPPORTED_PYTHONS)
    return python.path if python is not None else "python3"


def check_fit(facts: DeviceFacts, bundles: Iterable[Bundle]) -> str:
    """Makes sure that every bundle can run there; returns the interpreter for the runner.

    Raises:
        DeviceError: the device lacks something that a bundle needs.
    """
    from edgectl.codegen import load_target_or_fail
    from edgectl.doctor import preflight

    for bundle in bundles:
        preflight(
            facts,
            load_target_or_fail(bundle.manifest.target),
            needed_bytes=sum(entry.size_bytes for entry in bundle.manifest.files.values()),
            needed_inodes=len(bundle.manifest.files) + 64,
        )
    return python_of(facts)


def prepare(
    on_device: Connection, python: str, *, settings: Settings, hooks: Hooks
) -> RunnerHandle:
    """Makes sure that the runner and its packages are there."""
    from edgectl.remote.install import prepare_device

    with hooks.step("prepare the runner"), hooks.transfer("runner") as progress:
        return on_device(
            lambda device, watch: prepare_device(
                device,
                python=python,
                cache_dir=settings.cache_dir / "wheels",
                progress=watch,
                bytes_per_s=on_device.sending.bytes_per_s,
            ),
            progress,
        )


def install(
    on_device: Connection,
    handle: RunnerHandle,
    bundle: Bundle,
    *,
    settings: Settings,
    hooks: Hooks,
    still: str = "The release before it still runs",
) -> PushReport:
    """Pushes the bundle, signed by this user's key, and makes it the current release.

    ``still`` says what is so if the device goes back.

    Raises:
        DeviceError: the device found it unhealthy and went back.
    """
    from edgectl.remote.push import push_bundle
    from edgectl.signing import load_or_create_key

    name, sending = bundle.manifest.name, on_device.sending
    with hooks.step("push the bundle"), hooks.transfer(name) as progress:
        key = load_or_create_key(settings.config_dir / "keys")
        push = on_device(
            lambda device, watch: push_bundle(
                device,
                handle,
                bundle.path,
                key=key,
                progress=watch,
                bytes_per_s=sending.bytes_per_s,
                allow_downgrade=sending.allow_downgrade,
            ),
            progress,
        )
    if push.healthy is False:
        raise DeviceError(
            f"The device took {name} on probation and went back: "
            f"{push.reason or 'it did not prove healthy'}.",
            cause="The new release did not load, or did not answer as PyTorch does, there.",
            next_step=f"{still}; edgectl doctor {on_device.device.label}",
        )
    return push
