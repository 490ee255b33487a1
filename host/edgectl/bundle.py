"""CompiledModule -> Bundle: one file with the module, its golden calls and where it came from.

A bundle is a ZIP whose members are stored, not compressed (the device maps the module from
disk). ``manifest.json`` names every other member with its sha256 and size; reading checks all of
them, so that a truncated, altered or hostile file is refused before anything believes it.
Nothing in a bundle but its number depends on the time or the computer: the same inputs give the
same bytes, and a second deploy has nothing to send.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgectl.errors import UsageError
from edgectl.records import Bundle, CompiledModule, Coverage, Program, QuantizedModel
from edgectl_runner.contract import (
    MANIFEST_VERSION,
    ContractError,
    FileEntry,
    GoldenCall,
    GoldenLimits,
    Manifest,
    from_document,
    to_document,
)

__all__ = [
    "BUNDLE_SUFFIX",
    "canonical_json",
    "float_output_name",
    "read_bundle",
    "read_member",
    "read_program",
    "write_bundle",
]

BUNDLE_SUFFIX = ".edgectl"
_PROGRAM = "program.json"
_MAX_MANIFEST_BYTES = 16 << 20
_MAX_MEMBERS = 10_000
_MAX_TOTAL_BYTES = 8 << 30
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a ZIP can say


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """The one spelling of a document that digests and signatures are made over."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def write_bundle(
    compiled: CompiledModule,
    path: Path,
    *,
    precision: str = "fp32",
    limits: GoldenLimits | None = None,
    quantized: QuantizedModel | None = None,
    sequence: int | Callable[[Manifest], int] = 0,
) -> Bundle:
    """Writes a bundle beside ``path`` and renames it into place.

    ``sequence`` is the model's number (see `edgectl.numbering`), or what gives it one.

    Raises:
        UsageError: the file cannot be written.
    """
    members = {"module.vmfb": compiled.vmfb}
    golden = _golden_members(compiled, members)
    for name, value in compiled.lowered.initial_states.items():
        members[name] = _npy(value)
    members["coverage.json"] = canonical_json(_coverage_document(compiled.lowered.coverage))
    members[_PROGRAM] = canonical_json({"schema_version": 1, **to_document(compiled.program)})
    if quantized is not None:
        members["recipe.json"] = canonical_json(
            {"name": quantized.recipe_name, "recipe": quantized.recipe, "report": quantized.report}
        )
        for number, call in enumerate(quantized.float_model.calls):
            for index, value in enumerate(call.outputs):
                if isinstance(value, np.ndarray):
                    members[float_output_name(number, index)] = _npy(value)
    target = compiled.target
    model = compiled.lowered.model
    manifest = Manifest(
        name=model.name,
        target=target.name,
        cpu=target.cpu,
        cpu_features=tuple(f[1:] for f in target.cpu_features if f.startswith("+")),
        architecture=target.architecture,
        iree_version=compiled.tools["iree-base-compiler"],
        precision=precision,
        dialect=str(compiled.lowered.dialect),
        module="module.vmfb",
        entry_points=compiled.lowered.entry_points,
        golden=golden,
        golden_limits=limits or GoldenLimits(),
        files={
            name: FileEntry(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
            for name, data in sorted(members.items())
        },
        provenance={
            "source": {"kind": model.source_kind, "digest": model.digest},
            "tools": dict(compiled.tools),
            "flags": list(compiled.flags),
            "kernels": [to_document(choice) for choice in compiled.kernels],
            "notes": [*model.notes, *compiled.lowered.notes],
            "recipe": quantized.recipe_name if quantized is not None else None,
        },
    )
    number = sequence if isinstance(sequence, int) else sequence(manifest)
    manifest = replace(manifest, sequence=number)
    text = canonical_json(to_document(manifest))
    _write_zip(path, {"manifest.json": text, **members})
    return Bundle(path=path, digest=hashlib.sha256(text).hexdigest(), manifest=manifest)


def read_bundle(path: Path) -> Bundle:
    """Opens a bundle and checks every byte of it against its manifest.

    Raises:
        UsageError: it is not there, not a bundle, truncated, altered, of a newer version, or made
            to do harm (paths that leave the bundle, members that unpack to more than they say).
    """
    if not path.is_file():
        raise UsageError(f"There is no bundle {path}.", next_step="edgectl compile MODEL -o FILE")
    try:
        with zipfile.ZipFile(path) as archive:
            infos = _checked_members(archive, path)
            text = archive.read("manifest.json")
            manifest = _parse_manifest(text, path)
            if set(infos) - set(manifest.files) - {"manifest.json", "signature.json"}:
                raise _bad(path, "it holds files that its manifest does not name")
            for name, entry in manifest.files.items():
                info = infos.get(name)
                if info is None or info.file_size != entry.size_bytes:
                    raise _bad(path, f"{name} is missing or has another size than it should")
                if _digest(archive, info) != entry.sha256:
                    raise _bad(path, f"{name} was altered")
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise _bad(path, f"it is truncated or not a bundle ({error})") from error
    return Bundle(path=path, digest=hashlib.sha256(text).hexdigest(), manifest=manifest)


def read_member(bundle: Bundle, name: str) -> bytes:
    """The bytes of one file of a bundle, checked against its manifest again."""
    with zipfile.ZipFile(bundle.path) as archive:
        data = archive.read(name)
    if hashlib.sha256(data).hexdigest() != bundle.manifest.files[name].sha256:
        raise _bad(bundle.path, f"{name} was altered")
    return data


def read_program(bundle: Bundle) -> Program:
    """The dispatches of the bundle's module with the layers they compute; empty if it has none.

    Raises:
        UsageError: the table is there and cannot be read.
    """
    if _PROGRAM not in bundle.manifest.files:
        return Program()
    try:
        return from_document(Program, json.loads(read_member(bundle, _PROGRAM)))
    except (ValueError, RecursionError) as error:
        raise _bad(bundle.path, f"its {_PROGRAM} is wrong: {error}") from error


def _golden_members(compiled: CompiledModule, members: dict[str, bytes]) -> tuple[GoldenCall, ...]:
    calls = []
    for number, call in enumerate(compiled.lowered.model.calls):
        inputs, outputs = [], []
        for index, value in enumerate(call.inputs):
            name = f"golden/{number}/input_{index}.npy"
            members[name] = _npy(value)
            inputs.append(name)
        for index, value in enumerate(call.outputs):
            if isinstance(value, np.ndarray):
                name = f"golden/{number}/output_{index}.npy"
                members[name] = _npy(value)
                outputs.append(name)
        calls.append(GoldenCall(entry_point=0, inputs=tuple(inputs), outputs=tuple(outputs)))
    return tuple(calls)


def float_output_name(call: int, index: int) -> str:
    """The file with an output of the float32 model, in the bundle of a quantized one."""
    return f"float/{call}/output_{index}.npy"


def _coverage_document(coverage: Coverage) -> dict[str, Any]:
    return {"schema_version": 1, "operators": [to_document(v) for v in coverage.operators]}


def _npy(value: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(value).reshape(value.shape), allow_pickle=False)
    return buffer.getvalue()


def _write_zip(path: Path, members: Mapping[str, bytes]) -> None:
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for member, data in members.items():
                archive.writestr(zipfile.ZipInfo(member, _EPOCH), data)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"The bundle {path} cannot be written: {error.strerror or error}.",
            next_step="Name another file with --output.",
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()


def _checked_members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    if len(infos) > _MAX_MEMBERS or sum(i.file_size for i in infos) > _MAX_TOTAL_BYTES:
        raise _bad(path, "it claims more content than any bundle has")
    for info in infos:
        parts = PurePosixPath(info.filename).parts
        if ".." in parts or info.filename.startswith("/") or "\\" in info.filename:
            raise _bad(path, f"the member name {info.filename!r} leaves the bundle")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise _bad(path, f"{info.filename!r} is compressed; members of a bundle are stored")
    named = {info.filename: info for info in infos}
    if len(named) != len(infos):
        raise _bad(path, "a member is there twice")
    if "manifest.json" not in named:
        raise _bad(path, "it has no manifest.json")
    if named["manifest.json"].file_size > _MAX_MANIFEST_BYTES:
        raise _bad(path, "its manifest is larger than any manifest is")
    return named


def _parse_manifest(text: bytes, path: Path) -> Manifest:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, "its manifest is not JSON") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > MANIFEST_VERSION:
        raise UsageError(
            f"The bundle {path} is of version {version}; this edgectl reads up to "
            f"{MANIFEST_VERSION}.",
            cause="A newer edgectl made it.",
            next_step="Upgrade edgectl, or compile the model again with this one.",
        )
    try:
        return from_document(Manifest, document)
    except ContractError as error:
        raise _bad(path, f"its manifest is wrong: {error}") from error


def _digest(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    digest = hashlib.sha256()
    with archive.open(info) as member:
        while chunk := member.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _bad(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} is not a bundle that can be trusted: {reason}.",
        cause="The file was cut short or changed on its way here, or is something else.",
        next_step="Make it again: edgectl compile MODEL --target TARGET -o FILE",
    )
