"""Files that people take for a model and that are something else, by their first bytes."""

from __future__ import annotations

from edgectl.errors import UsageError
from edgectl.sources.source_file import SourceFile

__all__ = ["not_a_model"]

_EXPORT = "Save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
_KNOWN: tuple[tuple[bytes, str, str], ...] = (
    (
        b"<!DOCTYPE",
        "a web page",
        "The link led to a page about the file; download the file itself.",
    ),
    (b"<html", "a web page", "The link led to a page about the file; download the file itself."),
    (b"\x89HDF", "an HDF5 file (Keras)", "Convert it to ONNX or TFLite with its own tools."),
    (b"GGUF", "a GGUF file (llama.cpp)", "Take the original weights as .safetensors."),
    (b"\x93NUMPY", "a NumPy array", "Give it as --input; the model comes first."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it first (gunzip, tar xzf)."),
    (b"BZh", "a bzip2 archive", "Unpack it first."),
    (b"\xfd7zXZ", "an xz archive", "Unpack it first."),
    (b"\x7fELF", "a program for this or another computer", _EXPORT),
    (b"\x80\x02", "a plain pickle", "Save it with torch.save(module, path) instead."),
    (b"\x80\x03", "a plain pickle", "Save it with torch.save(module, path) instead."),
    (b"\x80\x04", "a plain pickle", "Save it with torch.save(module, path) instead."),
    (b"\x80\x05", "a plain pickle", "Save it with torch.save(module, path) instead."),
    (b"\xff\xd8\xff", "a picture", "Give it as --input; the model comes first."),
    (b"\x89PNG", "a picture", "Give it as --input; the model comes first."),
)


def not_a_model(file: SourceFile) -> UsageError:
    """The error for a file of no kind that edgectl loads."""
    for magic, what, next_step in _KNOWN:
        if file.head.lstrip().lower().startswith(magic.lower()):
            return UsageError(f"{file.path} is {what}, not a model.", next_step=next_step)
    if file.is_zip:
        names = ", ".join(list(file.members)[:4])
        return UsageError(
            f"{file.path} is a ZIP archive without a model in it ({names}).",
            next_step="Unpack it and name the model file.",
        )
    return UsageError(
        f"{file.path} is not a model that edgectl knows: it begins with {file.head[:8]!r}.",
        cause="Known are files of torch.export, torch.save, torch.jit and safetensors, ONNX, "
        "TFLite and TOSA.",
        next_step=_EXPORT,
    )
