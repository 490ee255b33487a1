"""Text to token ids, by a tokenizer of transformers that lies on this computer."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from edgectl.errors import UsageError
from edgectl.sources.options import GivenInput

__all__ = ["text_inputs"]


def text_inputs(path: Path, tokenizer: str) -> list[GivenInput]:
    """``input_ids``, ``attention_mask``... as int64 [lines, tokens]; one row per line of text.

    Raises:
        UsageError: transformers is not installed, or there is no such tokenizer, or the file is
            not UTF-8 text.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UsageError(
            "--tokenizer needs the package transformers, which is not installed.",
            next_step="pip install transformers, or give the token ids as .npy.",
        )
    import transformers

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}).",
            next_step="Save the token ids with np.save.",
        ) from error
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no text.", next_step="Write one sentence per line.")
    try:
        encode = transformers.AutoTokenizer.from_pretrained(
            tokenizer, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise UsageError(
            f"There is no tokenizer {tokenizer!r} on this computer: "
            f"{(str(error).splitlines() or [''])[0][:200]}",
            cause="edgectl asks no model hub.",
            next_step="Name the folder that holds tokenizer.json.",
        ) from error
    encoded = encode(lines, padding=True, return_tensors="np")
    return [
        GivenInput(name=name, array=np.asarray(ids).astype(np.int64))
        for name, ids in encoded.items()
    ]
