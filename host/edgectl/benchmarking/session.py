"""A device made ready for many runs: looked at, prepared and given its bundles once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgectl.deployment import mismatch
from edgectl.errors import DeviceError
from edgectl.hooks import Hooks
from edgectl.installing import check_fit, connection, prepare
from edgectl.records import Bundle
from edgectl.settings import Settings, load_settings
from edgectl_runner.contract import LoadPlan, RunReport, RunRequest

if TYPE_CHECKING:
    from edgectl.remote import Device
    from edgectl.remote.agent_calls import RunnerHandle
    from edgectl.remote.facts import DeviceFacts

__all__ = ["Session", "open_session"]

_LOADING_S = 600.0
_EMULATED_SLOWNESS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A prepared device and what it was like before the first run."""

    device: Device
    handle: RunnerHandle
    facts: DeviceFacts
    settings: Settings
    hooks: Hooks

    @property
    def emulated(self) -> bool:
        """Whether this is a virtual Pi."""
        return self.device.emulated or self.facts.emulated

    def install(self, bundle: Bundle) -> str:
        """Brings a bundle onto the device beside the current release, which stays so; its id."""
        from edgectl.remote.push import push_bundle
        from edgectl.signing import load_or_create_key

        name = bundle.manifest.name
        key = load_or_create_key(self.settings.config_dir / "keys")
        with self.hooks.step(f"push {name}"), self.hooks.transfer(name) as progress:
            push = push_bundle(
                self.device,
                self.handle,
                bundle.path,
                key=key,
                progress=progress,
                activate=False,
                allow_downgrade=True,
            )
        return push.release

    def run(
        self,
        release: str,
        plan: LoadPlan,
        *,
        threads: int | None = None,
        cpu_affinity: tuple[int, ...] | None = None,
    ) -> RunReport:
        """One run of a release.

        Raises:
            OutputMismatchError: an output was wrong, before or after the timing.
            DeviceError: the run failed.
        """
        from edgectl.remote.push import run_release

        request = RunRequest(release=release, threads=threads, cpu_affinity=cpu_affinity, load=plan)
        slowness = _EMULATED_SLOWNESS if self.emulated else 1.0
        patience = _LOADING_S * slowness + 2 * (plan.max_seconds + plan.max_warmup_seconds)
        report = run_release(self.device, self.handle, request, timeout_s=patience)
        error = mismatch(report)
        if error is not None:
            raise error
        if report.load is None or not report.latencies_ms:
            raise DeviceError(
                f"{self.device.label}: the runner timed nothing.",
                cause="The run was cut short.",
                next_step="Run the command again.",
            )
        return report


def open_session(
    device: Device,
    bundles: tuple[Bundle, ...],
    *,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
    look: Callable[[Device], DeviceFacts] | None = None,
) -> Session:
    """Looks at the device, checks that every bundle can run there, and prepares the runner.

    Raises:
        DeviceError: the device lacks something that a bundle needs.
    """
    from edgectl.remote.facts import gather_facts

    settings, hooks = settings or load_settings(), hooks or Hooks()
    with hooks.step(f"look at {device.label}"):
        facts = (look or gather_facts)(device)
        python = check_fit(facts, bundles)
    with connection(device) as on_device:
        handle = prepare(on_device, python, settings=settings, hooks=hooks)
    return Session(device=device, handle=handle, facts=facts, settings=settings, hooks=hooks)
