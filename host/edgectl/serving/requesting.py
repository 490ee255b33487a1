"""From an address and files to the request that a load repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgectl.errors import UsageError
from edgectl.serving.client import ServiceClient
from edgectl.serving.inputs import inputs_for, zeros_for
from edgectl.serving.load import LoadTarget, infer_target

__all__ = ["load_target", "only_model"]


def only_model(client: ServiceClient) -> str:
    """The model of a service that has one.

    Raises:
        UsageError: it has several.
    """
    models = client.models()
    if len(models) != 1:
        raise UsageError(
            f"the service has {len(models)} models: {', '.join(models)}",
            next_step="Name one with --model.",
        )
    return models[0]


def load_target(
    url: str, *, model: str | None = None, files: Sequence[str] = (), token: str | None = None
) -> LoadTarget:
    """An inference of a running service, with these inputs or zeros."""
    from edgectl.sources import ImageOptions

    with ServiceClient(url, token=token) as client:
        name = model or only_model(client)
        specs = client.metadata(name)["inputs"]
    inputs: dict[str, np.ndarray] = (
        inputs_for(specs, files, images=ImageOptions()) if files else zeros_for(specs)
    )
    return infer_target(url, name, inputs, token=token)
