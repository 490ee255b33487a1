"""Files that hold weights only: a state dict by ``torch.save``, or ``.safetensors``.

Neither can run code: the pickle is read with ``weights_only=True``. Which module they belong to
has to be said (``--arch``).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import torch

from edgectl.errors import UsageError
from edgectl.sources.architectures import build_architecture
from edgectl.sources.loaded import Loaded
from edgectl.sources.options import LoadOptions
from edgectl.sources.pickle_globals import pickle_names
from edgectl.sources.safetensors_file import is_safetensors, read_safetensors
from edgectl.sources.source_file import SourceFile

__all__ = ["SafetensorsFile", "StateDictFile", "load_weights"]

_USUAL_KEYS = ("state_dict", "model_state_dict", "model", "net", "params", "weights", "ema")
_WRAPPERS = ("module.", "_orig_mod.", "model.")
_LISTED = 6


class SafetensorsFile:
    """Weights in ``.safetensors``."""

    name = "safetensors"
    title = "weights (safetensors)"
    runs_code = False

    def detect(self, file: SourceFile) -> bool:
        """By its header."""
        return is_safetensors(file)

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Reads the tensors and puts them into the architecture."""
        return load_weights(file, read_safetensors(file), options)


class StateDictFile:
    """A dict of tensors by ``torch.save``, possibly inside a training checkpoint."""

    name = "state-dict"
    title = "weights (a state dict)"
    runs_code = False

    def detect(self, file: SourceFile) -> bool:
        """A pickle whose outermost object is a dict and that names nothing but tensors."""
        if "constants.pkl" in file.members:
            return False
        names = pickle_names(file)
        return names is not None and names.dictionary and not names.foreign

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Reads the tensors and puts them into the architecture."""
        try:
            value = torch.load(file.path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
            raise UsageError(
                f"{file.path} cannot be read as weights: "
                f"{(str(error).strip().splitlines() or [''])[0][:200]}",
                cause=f"It is damaged or cut off ({file.size} bytes, sha256 {file.sha256}).",
                next_step="Compare size and sha256 with the original, and download it again.",
            ) from error
        return load_weights(file, value, options)


def load_weights(file: SourceFile, value: Any, options: LoadOptions) -> Loaded:
    """A module of ``options.architecture`` with these weights.

    Raises:
        UsageError: there are no weights in ``value``, no architecture was named, or names or
            shapes do not fit.
    """
    notes: list[str] = []
    state = _state(file, value, options, notes)
    count = sum(tensor.numel() for tensor in state.values())
    if options.architecture is None:
        raise UsageError(
            f"{file.path} holds only weights ({len(state)} tensors, {count:,} numbers): nothing "
            "says what to compute with them.",
            cause="A state dict has no code in it.",
            next_step="Add --arch file.py:function that returns the module (or timm:NAME, "
            "transformers:FOLDER).",
        )
    module, example = build_architecture(options.architecture)
    own = module.state_dict()
    state = _unwrapped(state, own, notes)
    # Buffers that a later version of the code no longer saves, such as a table of positions.
    constants = dict(module.named_buffers())
    state = {
        key: value
        for key, value in state.items()
        if key in own or key not in constants or not torch.equal(value, constants[key])
    }
    _check_keys(file, state, own, options.architecture)
    halves = {str(t.dtype).removeprefix("torch.") for t in state.values() if t.dtype in _HALVES}
    if halves and any(own[key].dtype not in _HALVES for key in state if key in own):
        notes.append(f"weights are stored as {' and '.join(sorted(halves))}; computed in float32")
    module.load_state_dict(state, strict=False)
    return Loaded(name=file.path.stem, module=module, example=example, notes=tuple(notes))


_HALVES = (torch.float16, torch.bfloat16)


def _state(
    file: SourceFile, value: Any, options: LoadOptions, notes: list[str]
) -> dict[str, torch.Tensor]:
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{file.path} holds a {type(value).__name__}, not a dict of weights.",
            next_step="Save model.state_dict(), or the exported program.",
        )
    found = {
        str(key): item
        for key, item in value.items()
        if isinstance(item, Mapping) and _tensors(item)
    }
    if options.state_key is not None:
        if options.state_key not in found:
            raise UsageError(
                f"{file.path} has no weights under {options.state_key!r}.",
                next_step=f"It has some under: {', '.join(found) or 'no key'}.",
            )
        return _tensors(found[options.state_key])
    direct = _tensors(value)
    if direct and not found:
        return direct
    usual = [key for key in _USUAL_KEYS if key in found]
    if len(found) == 1 or len(usual) == 1:
        key = usual[0] if usual else next(iter(found))
        notes.append(f"weights taken from {key!r} of the checkpoint")
        return _tensors(found[key])
    if found:
        raise UsageError(
            f"{file.path} is a checkpoint with weights under several keys: {', '.join(found)}.",
            next_step=f"Say which: --state-key {usual[0] if usual else next(iter(found))}",
        )
    raise UsageError(
        f"{file.path} holds a dict without any tensor.",
        next_step="Save model.state_dict(), or the exported program.",
    )


def _tensors(value: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    return {str(key): item for key, item in value.items() if isinstance(item, torch.Tensor)}


def _unwrapped(
    state: dict[str, torch.Tensor], own: Mapping[str, Any], notes: list[str]
) -> dict[str, torch.Tensor]:
    """Without the prefix that DataParallel, torch.compile or a training wrapper put before all."""
    for prefix in _WRAPPERS:
        wrapped = state and all(key.startswith(prefix) for key in state)
        if wrapped and not any(key.startswith(prefix) for key in own):
            notes.append(f"prefix {prefix!r} taken off the names of all weights")
            return _unwrapped({k.removeprefix(prefix): v for k, v in state.items()}, own, notes)
    return state


def _check_keys(
    file: SourceFile, state: Mapping[str, torch.Tensor], own: Mapping[str, Any], name: str
) -> None:
    # BatchNorm's step counter was not saved before torch 0.4.1 and plays no part in eval mode.
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    shapes = [
        f"{key} is {tuple(state[key].shape)} in the file and {tuple(own[key].shape)} in the module"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    parts = [
        f"{what}: {', '.join(keys[:_LISTED])}"
        + (f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else "")
        for what, keys in (("missing", missing), ("unexpected", unexpected), ("shapes", shapes))
        if keys
    ]
    if parts:
        raise UsageError(
            f"The weights of {file.path} do not fit --arch {name}: {'; '.join(parts)}.",
            cause="They belong to another architecture, or to another configuration of it.",
            next_step="Make the factory build the module exactly as it was trained.",
        )
