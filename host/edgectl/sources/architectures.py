"""``--arch``: where the module for a file of weights comes from.

package.module:factory, file.py:factory    the user's own code
timm:NAME                                   timm.create_model(NAME), if timm is installed
transformers:NAME-or-folder                 from its config, never from the network
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from edgectl.errors import UsageError
from edgectl.sources.factory import call_factory, is_factory
from edgectl.sources.loaded import Arguments

__all__ = ["build_architecture"]


def build_architecture(name: str) -> tuple[torch.nn.Module, Arguments | None]:
    """The module, and its example inputs if the factory gives some.

    Raises:
        UsageError: there is no such architecture here.
    """
    kind, _, rest = name.partition(":")
    if kind == "timm" and rest:
        return _timm(rest), None
    if kind == "transformers" and rest:
        return _transformers(rest), None
    if not is_factory(name):
        raise UsageError(
            f"--arch {name!r} names no architecture.",
            next_step="Write package.module:function, file.py:function, timm:NAME or "
            "transformers:FOLDER.",
        )
    loaded = call_factory(name)
    return loaded.module, loaded.example


def _timm(name: str) -> torch.nn.Module:
    _require("timm")
    import timm

    if not timm.is_model(name):
        near = timm.list_models(f"*{name.split('_')[0]}*")[:8]
        raise UsageError(
            f"timm has no model {name!r}.",
            next_step=f"Near it are: {', '.join(near)}." if near else "See timm.list_models().",
        )
    model: torch.nn.Module = timm.create_model(name, pretrained=False, exportable=True)
    return model


def _transformers(name: str) -> torch.nn.Module:
    _require("transformers")
    import transformers

    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            name, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise UsageError(
            f"transformers finds no config for {name!r} on this computer: "
            f"{(str(error).splitlines() or [''])[0][:200]}",
            cause="edgectl asks no model hub." if not Path(name).is_dir() else None,
            next_step="Name the folder that holds its config.json.",
        ) from error
    classes = getattr(config, "architectures", None) or []
    factory = getattr(transformers, classes[0], None) if classes else None
    if factory is None:
        model: torch.nn.Module = transformers.AutoModel.from_config(config)
        return model
    return factory._from_config(config)  # type: ignore[no-any-return]  # noqa: SLF001


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(
            f"--arch {package}:... needs the package {package}, which is not installed.",
            next_step=f"Install it into edgectl's environment: pip install {package}",
        )
