"""Tables and documents of bundles, for every command that shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgectl_runner.contract import TensorSpec, to_document

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.records import Bundle

__all__ = ["bundle_document", "print_bundle", "spec_text"]


def spec_text(spec: TensorSpec | None) -> str:
    """``1x3x224x224 float32``."""
    if spec is None:
        return ""
    shape = "x".join("?" if n is None else str(n) for n in spec.shape) or "scalar"
    return f"{shape} {spec.dtype}"


def bundle_document(bundle: Bundle) -> dict[str, Any]:
    """What ``--json`` says of a bundle."""
    return {
        "path": str(bundle.path),
        "release": bundle.digest[:16],
        "digest": bundle.digest,
        "size_bytes": bundle.path.stat().st_size,
        "manifest": to_document(bundle.manifest),
    }


def print_bundle(console: Console, bundle: Bundle) -> None:
    """The bundle as tables: what it is, its inputs and outputs, its files."""
    from rich.table import Table

    manifest = bundle.manifest
    facts = Table("", str(bundle.path), title=f"{manifest.name} for {manifest.target}")
    facts.add_row("release", bundle.digest[:16])
    facts.add_row("size", f"{bundle.path.stat().st_size / 1e6:.2f} MB")
    facts.add_row("module", f"{manifest.files[manifest.module].size_bytes / 1e6:.2f} MB")
    facts.add_row("precision", manifest.precision)
    facts.add_row("dialect", manifest.dialect)
    facts.add_row("core", f"{manifest.cpu} ({' '.join(manifest.cpu_features)})")
    source = manifest.provenance.get("source", {})
    facts.add_row("source", f"{source.get('kind')} sha256:{str(source.get('digest'))[:16]}")
    for name, version in manifest.provenance.get("tools", {}).items():
        facts.add_row(name, str(version))
    kernels = manifest.provenance.get("kernels", [])
    if kernels:
        facts.add_row("kernels", f"{sum(1 for k in kernels if k.get('kernel'))} dispatches")
    for note in manifest.provenance.get("notes", []):
        facts.add_row("note", str(note))
    console.print(facts)
    signature = Table("", "name", "shape and dtype", title="Signature")
    for entry in manifest.entry_points:
        for spec in entry.inputs:
            signature.add_row("input", spec.name, spec_text(spec))
        for state in entry.states:
            signature.add_row("state", state.spec.name, spec_text(state.spec))
        for binding in entry.outputs:
            text = spec_text(binding.spec) if binding.spec else repr(binding.literal)
            signature.add_row("output", binding.name, text)
    console.print(signature)
    files = Table("file", "bytes", "sha256", title="Files")
    for name, file in manifest.files.items():
        files.add_row(name, f"{file.size_bytes:,}", file.sha256[:16])
    console.print(files)
