"""ExportedModels of small modules, for tests that begin after the sources."""

from __future__ import annotations

from typing import Any

from edgectl.records import ExportedModel

__all__ = ["export"]


def export(module: Any, *inputs: Any, dynamic: Any = None) -> ExportedModel:
    """What `edgectl.sources` makes of a module and its example inputs."""
    from edgectl.sources.assembling import assemble
    from edgectl.sources.loaded import Arguments, Loaded
    from edgectl.sources.options import LoadOptions

    loaded = Loaded(
        name=type(module).__name__,
        module=module.eval(),
        example=Arguments(args=tuple(inputs)),
        dynamic_shapes=dynamic,
    )
    return assemble(loaded, LoadOptions(), kind="factory", digest=None)
