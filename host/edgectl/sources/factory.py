"""``package.module:function`` or ``file.py:function``: the user's own code makes the model.

The function takes no arguments and returns ``(module, example_inputs)``, where the inputs are a
tensor, a tuple or list (positional) or a dict (by name); or just the module, when
``--input-spec`` or ``--input`` tells the rest. Naming a function is asking for it to be run, as
with ``python file.py``: there is no question about trust, and no child process.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from edgectl.errors import UsageError
from edgectl.sources.loaded import Arguments, Loaded

__all__ = ["call_factory", "is_factory", "resolve"]

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")


def is_factory(source: str) -> bool:
    """Whether this names a function rather than a file (a file of that very name wins)."""
    place, colon, function = source.rpartition(":")
    if not colon or not _FUNCTION.match(function) or Path(source).exists():
        return False
    return place.endswith(".py") or _MODULE.match(place) is not None


def call_factory(source: str) -> Loaded:
    """Imports, calls, and looks at what came back.

    Raises:
        UsageError: no such file, module or function; it failed; or it returned something else.
    """
    function = resolve(source)
    try:
        result = function()
    except Exception as error:
        raise UsageError(
            f"{source} failed with {type(error).__name__}: {error}",
            cause=_where(error),
            next_step="Call it without arguments in Python and repair it there.",
        ) from error
    module, example = _parts(source, result)
    return Loaded(name=source.rpartition(":")[2].rpartition(".")[2], module=module, example=example)


def resolve(source: str) -> Any:
    """The function that ``package.module:function`` or ``file.py:function`` names.

    Raises:
        UsageError: there is none.
    """
    place, _, name = source.rpartition(":")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = [n for n in vars(module) if callable(getattr(module, n)) and n[0] != "_"]
            raise UsageError(
                f"{place} has no function {name!r}.",
                next_step=f"It has: {', '.join(sorted(known)[:12]) or 'nothing callable'}.",
            )
        value = getattr(value, part)
    if not callable(value):
        raise UsageError(f"{source} is a {type(value).__name__}, not a function.")
    return value


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", next_step="Check the path with ls.")
    # Its neighbours are importable, as they would be with `python file.py`.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if path.stem.isidentifier() else f"factory_{abs(hash(path.stem))}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path.resolve()):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    if loaded is None:
        sys.modules[name] = module  # pickling and dataclasses look their module up here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if sys.modules.get(name) is module:
            del sys.modules[name]
        raise _import_failed(str(path), error) from error
    return module


def _import_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _import_failed(name, error) from error


def _import_failed(name: str, error: Exception) -> UsageError:
    missing = isinstance(error, ModuleNotFoundError)
    return UsageError(
        f"{name} cannot be imported: {type(error).__name__}: {error}",
        cause="It is not installed beside edgectl, nor in this folder."
        if missing
        else _where(error),
        next_step="Install it into edgectl's environment, or name the file as path/to/file.py:"
        "function."
        if missing
        else None,
    )


def _parts(source: str, result: Any) -> tuple[torch.nn.Module, Arguments | None]:
    if isinstance(result, torch.nn.Module):
        return result, None
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.nn.Module):
        inputs = result[1]
        if isinstance(inputs, torch.Tensor):
            return result[0], Arguments(args=(inputs,))
        if isinstance(inputs, dict):
            return result[0], Arguments(kwargs=dict(inputs))
        if isinstance(inputs, (tuple, list)):
            return result[0], Arguments(args=tuple(inputs))
    if isinstance(result, tuple) and len(result) == 3 and isinstance(result[0], torch.nn.Module):
        args, kwargs = result[1:]
        if isinstance(args, (tuple, list)) and isinstance(kwargs, dict):
            return result[0], Arguments(args=tuple(args), kwargs=dict(kwargs))
    raise UsageError(
        f"{source} returned {_describe(result)}.",
        next_step="Return (module, example_inputs): an nn.Module and a tuple of tensors.",
    )


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"


def _where(error: BaseException) -> str | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    return f"Raised at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}."
