"""A model as a service: started on a device, asked over HTTP, put under load."""

from edgectl.serving.control import (
    ModelToServe,
    ServiceOptions,
    ServiceStatus,
    service_logs,
    service_status,
    start_service,
    stop_service,
)

__all__ = [
    "ModelToServe",
    "ServiceOptions",
    "ServiceStatus",
    "service_logs",
    "service_status",
    "start_service",
    "stop_service",
]
