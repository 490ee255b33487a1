"""Where a benchmark was made, with what, and of what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgectl import __version__
from edgectl.benchmarking.records import Provenance
from edgectl.benchmarking.session import Session
from edgectl.records import Bundle
from edgectl_runner.contract import RunReport

__all__ = ["provenance_of"]


def provenance_of(
    session: Session, bundle: Bundle, report: RunReport, *, command: Sequence[str] = ()
) -> Provenance:
    """Of one bundle on one device; ``report`` is any of its runs there."""
    facts, manifest = session.facts, bundle.manifest
    made: dict[str, Any] = manifest.provenance
    libc = " ".join(word for word in (facts.libc, facts.libc_version) if word)
    return Provenance(
        board=facts.board_model,
        core=facts.core,
        cpu_count=facts.cpu_count,
        memory_total_bytes=facts.memory_total_bytes,
        os=facts.os_name,
        kernel=facts.kernel,
        libc=libc or None,
        governor=report.before.governor,
        throttle_source=facts.throttle_source,
        python=".".join(str(n) for n in session.handle.python_version),
        runner_version=report.runner_version,
        edgectl_version=__version__,
        iree_version=manifest.iree_version,
        bundle_sha256=bundle.digest,
        module_sha256=manifest.files[manifest.module].sha256,
        release=report.release,
        source_sha256=made.get("source", {}).get("digest"),
        compiler_flags=tuple(made.get("flags", ())),
        tools=dict(made.get("tools", {})),
        command=tuple(command),
    )
