"""Answers requests: the Open Inference Protocol v2, statistics, metrics, the page, the schema.

No path of a request reaches the file system, nothing is loaded or changed by a request except the
sessions of stateful models, and errors carry no names of our insides.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgectl_runner import __version__
from edgectl_runner.contract import TensorSpec
from edgectl_runner.failures import USAGE, RunnerError
from edgectl_runner.service.datatypes import DATATYPES
from edgectl_runner.service.inference import decode_request, encode_response, output_specs
from edgectl_runner.service.messages import HttpError, Request, Response, json_response
from edgectl_runner.service.metrics import METRICS_TYPE, render_metrics
from edgectl_runner.service.openapi import openapi_document
from edgectl_runner.service.page import page
from edgectl_runner.service.served_model import ServedModel
from edgectl_runner.service.settings import ServiceConfig
from edgectl_runner.service.state import describe_service
from edgectl_runner.tensors import dtype_named

__all__ = ["InferenceApplication"]

# Room for the JSON beside the tensors; and what one number takes as JSON text, generously.
JSON_HEADER_BYTES = 65536
JSON_BYTES_PER_ELEMENT = 26
UNKNOWN_SHAPE_BYTES = 64 << 20
SMALL_REQUEST_BYTES = 65536
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")

_MODEL = re.compile(
    r"/v2/models/(?P<model>[A-Za-z0-9._-]{1,128})(?:/versions/(?P<version>[0-9]{1,18}))?"
    r"(?P<rest>|/ready|/stats|/config|/infer)\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    methods: tuple[str, ...]
    answer: Callable[[], Response]


class InferenceApplication:
    """Everything that clients see of the service."""

    def __init__(self, config: ServiceConfig, models: Sequence[ServedModel]):
        self.config = config
        self.ready = False
        self.errors = 0
        self._models: dict[str, dict[str, ServedModel]] = {}
        for model in models:
            self._models.setdefault(model.name, {})[model.version] = model
        self._limits = {id(model): _body_limit(config, model) for model in models}
        self._fixed: dict[str, _Route] = {
            "/": _Route(methods=("GET", "HEAD"), answer=page),
            "/v2": _Route(methods=("GET",), answer=self._server),
            "/v2/health/live": _Route(
                methods=("GET",), answer=lambda: json_response({"live": True})
            ),
            "/v2/health/ready": _Route(methods=("GET",), answer=self._ready),
            "/v2/models/stats": _Route(methods=("GET",), answer=self._all_statistics),
            "/v2/repository/index": _Route(methods=("POST",), answer=self._index),
            "/v2/service": _Route(methods=("GET",), answer=self._service),
            "/metrics": _Route(methods=("GET",), answer=self._metrics),
            "/openapi.json": _Route(methods=("GET",), answer=self._openapi),
        }

    @property
    def models(self) -> list[ServedModel]:
        """All models and versions."""
        return [m for versions in self._models.values() for m in versions.values()]

    # --- what the connection calls -----------------------------------------------------------

    def admit(self, request: Request) -> int:
        """See `connection.Application.admit`."""
        self._check_token(request)
        path = _normal(request.path)
        route = self._fixed.get(path)
        if route is not None:
            _check_method(request, route.methods)
            return SMALL_REQUEST_BYTES
        model, rest = self._find(path)
        _check_method(request, ("POST",) if rest == "/infer" else ("GET",))
        return self._limits[id(model)] if rest == "/infer" else SMALL_REQUEST_BYTES

    async def handle(self, request: Request, body: memoryview) -> Response:
        """See `connection.Application.handle`."""
        path = _normal(request.path)
        route = self._fixed.get(path)
        if route is not None:
            return route.answer()
        model, rest = self._find(path)
        if rest == "/infer":
            decoded = decode_request(model.entry, request.headers, body)
            try:
                values = await model.infer(decoded)
            except RunnerError as error:
                if error.code == USAGE:
                    raise HttpError(400, error.message) from error
                raise
            return encode_response(model.name, model.version, decoded, model.entry, values)
        if rest == "/ready":
            return json_response({"ready": self.ready}, status=200 if self.ready else 503)
        if rest == "/stats":
            document = model.statistics.document(model.name, model.version)
            return json_response({"model_stats": [document]})
        if rest == "/config":
            return json_response(_triton_config(model))
        return json_response(self._metadata(model))

    def failed(self, error: BaseException) -> None:
        """See `connection.Application.failed`."""
        self.errors += 1
        traceback.print_exception(error, file=sys.stderr)

    # --- checks ------------------------------------------------------------------------------

    def _check_token(self, request: Request) -> None:
        wanted = self.config.token_sha256
        if wanted is None or request.path in OPEN_PATHS or _normal(request.path) == "/":
            return  # the page itself holds nothing; what it asks for does
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode("latin-1")).hexdigest()
        if not hmac.compare_digest(digest, wanted) or scheme.lower() != "bearer":
            raise HttpError(
                401,
                "this service wants its token: Authorization: Bearer TOKEN",
                headers={"www-authenticate": "Bearer"},
            )

    def _find(self, path: str) -> tuple[ServedModel, str]:
        match = _MODEL.match(path)
        if match is None:
            raise HttpError(404, "there is nothing at this address")
        versions = self._models.get(match["model"])
        if versions is None:
            raise HttpError(404, f"there is no model {match['model']!r}")
        version = match["version"] or max(versions, key=int)
        if version not in versions:
            raise HttpError(404, f"model {match['model']!r} has no version {version}")
        return versions[version], match["rest"]

    # --- documents ---------------------------------------------------------------------------

    def _server(self) -> Response:
        extensions = ["binary_tensor_data", "model_configuration", "sequence", "statistics"]
        return json_response({"name": "edgectl", "version": __version__, "extensions": extensions})

    def _ready(self) -> Response:
        return json_response({"ready": self.ready}, status=200 if self.ready else 503)

    def _all_statistics(self) -> Response:
        return json_response(
            {"model_stats": [m.statistics.document(m.name, m.version) for m in self.models]}
        )

    def _index(self) -> Response:
        state = "READY" if self.ready else "UNAVAILABLE"
        return json_response(
            [
                {"name": m.name, "version": m.version, "state": state, "reason": ""}
                for m in self.models
            ]
        )

    def _service(self) -> Response:
        return json_response(describe_service(self.models, ready=self.ready))

    def _metrics(self) -> Response:
        text = render_metrics(self.models, ready=self.ready, internal_errors=self.errors)
        return Response(status=200, headers={"content-type": METRICS_TYPE}, parts=(text.encode(),))

    def _openapi(self) -> Response:
        return json_response(openapi_document(with_token=self.config.token_sha256 is not None))

    def _metadata(self, model: ServedModel) -> dict[str, Any]:
        return {
            "name": model.name,
            "versions": sorted(self._models[model.name], key=int),
            "platform": "iree_llvm_cpu",
            "inputs": [_tensor(spec) for spec in model.entry.inputs],
            "outputs": [_tensor(spec) for spec in output_specs(model.entry).values()],
            "parameters": {"release": model.release, "precision": model.manifest.precision},
        }


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"


def _check_method(request: Request, methods: tuple[str, ...]) -> None:
    if request.method not in methods:
        raise HttpError(
            405, "this address has no such method", headers={"allow": ", ".join(methods)}
        )


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    shape = [-1 if size is None else size for size in spec.shape]
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype], "shape": shape}


def _triton_config(model: ServedModel) -> dict[str, Any]:
    def described(spec: TensorSpec) -> dict[str, Any]:
        tensor = _tensor(spec)
        return {
            "name": tensor["name"],
            "data_type": f"TYPE_{tensor['datatype']}",
            "dims": tensor["shape"],
        }

    return {
        "name": model.name,
        "platform": "iree_llvm_cpu",
        "max_batch_size": 0,
        "input": [described(spec) for spec in model.entry.inputs],
        "output": [described(spec) for spec in output_specs(model.entry).values()],
    }


def _body_limit(config: ServiceConfig, model: ServedModel) -> int:
    """The most that a sensible request takes: each number as JSON text, and names around it."""
    if config.limits.max_body_bytes is not None:
        return config.limits.max_body_bytes
    elements: Mapping[str, int] = {
        spec.name: math.prod(s for s in spec.shape if s is not None) for spec in model.entry.inputs
    }
    if any(None in spec.shape for spec in model.entry.inputs):
        return UNKNOWN_SHAPE_BYTES
    size = sum(
        elements[spec.name] * max(JSON_BYTES_PER_ELEMENT, dtype_named(spec.dtype).itemsize)
        for spec in model.entry.inputs
    )
    return JSON_HEADER_BYTES + size
