"""Where the time of an inference goes on a device, by layer of the PyTorch model."""

from edgectl.profiling.attribute import CallTime, attribute
from edgectl.profiling.on_device import Profile, profile_bundle
from edgectl.profiling.roofline import Roofline, roofline
from edgectl.profiling.trace import DispatchEvent, read_trace

__all__ = [
    "CallTime",
    "DispatchEvent",
    "Profile",
    "Roofline",
    "attribute",
    "profile_bundle",
    "read_trace",
    "roofline",
]
