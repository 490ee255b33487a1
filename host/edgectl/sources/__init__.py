"""Every kind of model source -> `ExportedModel`.

`load` is the stage; ``kinds.py`` lists what it knows. Nothing here imports torch before a model
is loaded.
"""

from __future__ import annotations

from edgectl.sources.images import ImageOptions, parse_image_options
from edgectl.sources.input_specs import InputSpec, parse_input_spec
from edgectl.sources.inputs import read_inputs
from edgectl.sources.loading import is_bundle, load
from edgectl.sources.options import GivenInput
from edgectl.sources.trust import TrustPolicy

__all__ = [
    "GivenInput",
    "ImageOptions",
    "InputSpec",
    "TrustPolicy",
    "is_bundle",
    "load",
    "parse_image_options",
    "parse_input_spec",
    "read_inputs",
]
