"""``/openapi.json``: the service's addresses and documents, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from edgectl_runner import __version__

__all__ = ["openapi_document"]

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}
_VERSION = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_DATATYPE = {
    "type": "string",
    "enum": [
        *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
        *("FP16", "FP32", "FP64", "BF16"),
    ],
}


def openapi_document(*, with_token: bool) -> dict[str, Any]:
    """The whole document."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "edgectl inference service",
            "version": __version__,
            "description": "Open Inference Protocol v2 with the binary tensor extension.",
        },
        "paths": {**_fixed_paths(), **_model_paths("/v2/models/{model}", versioned=False)},
        "components": {"schemas": _schemas()},
    }
    document["paths"] |= _model_paths("/v2/models/{model}/versions/{version}", versioned=True)
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _fixed_paths() -> dict[str, Any]:
    return {
        "/": {"get": _operation("The page.", {"200": _content("text/html", {"type": "string"})})},
        "/v2": {"get": _operation("The server.", {"200": _json("Server")})},
        "/v2/health/live": {"get": _operation("Alive?", {"200": _json("Live")})},
        "/v2/health/ready": {
            "get": _operation("Serving?", {"200": _json("Ready"), "503": _json("Ready")})
        },
        "/v2/models/stats": {"get": _operation("All statistics.", {"200": _json("Statistics")})},
        "/v2/repository/index": {"post": _operation("All models.", {"200": _json("Index")})},
        "/v2/service": {"get": _operation("What the page shows.", {"200": _json("Service")})},
        "/metrics": {
            "get": _operation(
                "Prometheus metrics.",
                {"200": _content("text/plain; version=0.0.4; charset=utf-8", {"type": "string"})},
            )
        },
        "/openapi.json": {"get": _operation("This document.", {"200": _json("Any")})},
    }


def _model_paths(prefix: str, *, versioned: bool) -> dict[str, Any]:
    parameters = [{"name": "model", "in": "path", "required": True, "schema": _NAME}]
    if versioned:
        parameters.append({"name": "version", "in": "path", "required": True, "schema": _VERSION})
    missing = {"404": _json("Error")}

    def get(text: str, schema: str, **more: Any) -> dict[str, Any]:
        answers = {"200": _json(schema), **missing, **more}
        return {"parameters": parameters, "get": _operation(text, answers)}

    infer = _operation(
        "One inference.",
        {
            "200": {
                "description": "The outputs.",
                "content": {
                    "application/json": {"schema": _reference("InferenceResponse")},
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                },
            },
            **{code: _json("Error") for code in ("400", "404", "408", "413", "415", "503", "504")},
        },
    )
    infer["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": _reference("InferenceRequest")}},
    }
    return {
        prefix: get("Inputs and outputs.", "Metadata"),
        f"{prefix}/ready": get("Serving?", "Ready", **{"503": _json("Ready")}),
        f"{prefix}/stats": get("Statistics.", "Statistics"),
        f"{prefix}/config": get("As Triton describes a model.", "Any"),
        f"{prefix}/infer": {"parameters": parameters, "post": infer},
    }


def _operation(summary: str, answers: dict[str, Any]) -> dict[str, Any]:
    default = {} if "default" in answers else {"default": _json("Error")}
    return {"summary": summary, "responses": {**answers, **default}}


def _json(schema: str) -> dict[str, Any]:
    return _content("application/json", _reference(schema))


def _content(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": "Answer.", "content": {media_type: {"schema": schema}}}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _schemas() -> dict[str, Any]:
    text, boolean = {"type": "string"}, {"type": "boolean"}
    sizes = _list({"type": "integer", "minimum": -1})
    tensor = _object(("name", "datatype", "shape"), name=text, datatype=_DATATYPE, shape=sizes)
    statistics = _object(("name", "version", "inference_stats"), name=text, version=text)
    wanted = _object(("name",), name=text, parameters={"type": "object"})
    given = {
        **tensor,
        "properties": {
            **tensor["properties"],
            "data": {"type": "array"},
            "parameters": {"type": "object"},
        },
    }
    return {
        "Any": {},
        "Error": _object(("error",), error=text),
        "Live": _object(("live",), live=boolean),
        "Ready": _object(("ready",), ready=boolean),
        "Server": _object(
            ("name", "version", "extensions"), name=text, version=text, extensions=_list(text)
        ),
        "Service": _object(("version", "ready", "models"), version=text, ready=boolean),
        "Index": _list(_object(("name", "version", "state"), name=text, version=text, state=text)),
        "Metadata": _object(
            ("name", "versions", "platform", "inputs", "outputs"),
            name=text,
            versions=_list(text),
            platform=text,
            inputs=_list(tensor),
            outputs=_list(tensor),
        ),
        "Statistics": _object(("model_stats",), model_stats=_list(statistics)),
        "InferenceRequest": _object(
            ("inputs",),
            id={"type": "string", "maxLength": 256},
            inputs=_list(given),
            outputs=_list(wanted),
            parameters={"type": "object"},
        ),
        "InferenceResponse": _object(
            ("model_name", "model_version", "outputs"),
            model_name=text,
            model_version=text,
            id=text,
            outputs=_list(tensor),
        ),
    }
