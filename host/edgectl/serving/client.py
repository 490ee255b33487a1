"""Asks a service: `edgectl infer`, and whoever uses edgectl as a library.

    with ServiceClient("http://127.0.0.1:8000") as client:
        outputs = client.infer("cat", {"x": image})

Tensors travel in binary. Any client of the Open Inference Protocol v2 does as well.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

from edgectl.errors import (
    AuthenticationError,
    BusyError,
    ConnectionFailedError,
    DeviceError,
    EdgectlError,
    UsageError,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DATATYPES", "ServiceClient", "encode_request"]

HEADER_LENGTH = "Inference-Header-Content-Length"
DATATYPES = {
    "bool": "BOOL",
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
}
_NAMES = {datatype: name for name, datatype in DATATYPES.items()}


def encode_request(
    inputs: Mapping[str, np.ndarray], parameters: Mapping[str, Any] | None = None
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request whose tensors, both ways, are binary."""
    import numpy as np

    arrays = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    described = []
    for name, array in arrays.items():
        if array.dtype.name not in DATATYPES:
            raise UsageError(f"input {name!r} is {array.dtype}, which the protocol cannot carry")
        described.append(
            {
                "name": name,
                "shape": list(inputs[name].shape),
                "datatype": DATATYPES[array.dtype.name],
                "parameters": {"binary_data_size": array.nbytes},
            }
        )
    document = {
        "inputs": described,
        "parameters": {"binary_data_output": True, **(parameters or {})},
    }
    head = json.dumps(document).encode()
    body = b"".join((head, *(array.tobytes() for array in arrays.values())))
    return body, {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))}


class ServiceClient:
    """One connection, opened when it is needed and again when the service has closed it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        certificate: Path | None = None,
    ):
        """``certificate``: PEM file of a service whose certificate no authority has signed."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{url} is no address of a service.", next_step="Write http://HOST:PORT."
            )
        self.url = url
        self._token = token
        self._connection: http.client.HTTPConnection
        try:
            if parts.scheme == "https":
                context = ssl.create_default_context(cafile=certificate)
                self._connection = http.client.HTTPSConnection(
                    parts.hostname, parts.port, timeout=timeout_s, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(
                    parts.hostname, parts.port or 8000, timeout=timeout_s
                )
        except (ValueError, OSError) as error:
            raise UsageError(f"{url} cannot be used: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def models(self) -> tuple[str, ...]:
        """Names of the models that are served."""
        return tuple(sorted({m["name"] for m in self._json("POST", "/v2/repository/index")}))

    def metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Inputs and outputs: ``{"inputs": [{"name", "datatype", "shape"}], "outputs": ...}``."""
        document: dict[str, Any] = self._json("GET", _path(model, version))
        return document

    def infer(
        self,
        model: str,
        inputs: Mapping[str, np.ndarray],
        *,
        version: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> dict[str, np.ndarray]:
        """One inference; outputs by name.

        Raises:
            UsageError: the inputs do not fit the model.
            BusyError: the service's queue is full.
            ConnectionFailedError: nobody answers at that address.
        """
        body, headers = encode_request(inputs, parameters)
        answer_headers, data = self._ask("POST", f"{_path(model, version)}/infer", body, headers)
        return _decode(data, answer_headers.get(HEADER_LENGTH))

    def _json(self, method: str, path: str) -> Any:
        return json.loads(self._ask(method, path)[1])

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[http.client.HTTPMessage, bytes]:
        sent = dict(headers or {})
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            self._connection.request(method, path, body=body, headers=sent)
            response = self._connection.getresponse()
            data = response.read()
        except ssl.SSLCertVerificationError as error:
            raise ConnectionFailedError(
                f"the certificate of {self.url} is not trusted: {error.verify_message}",
                next_step="Give the service's certificate with --certificate FILE.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ConnectionFailedError(
                f"no answer from {self.url}: {str(error) or type(error).__name__}",
                cause="no service runs there, or it listens on the device's own loopback only",
                next_step="edgectl serve status",
            ) from error
        if response.status != 200:
            raise _refusal(response.status, data)
        return response.headers, data


def _path(model: str, version: str | None) -> str:
    name = quote(model, safe="")
    return f"/v2/models/{name}" + (f"/versions/{quote(version, safe='')}" if version else "")


def _decode(data: bytes, length: str | None) -> dict[str, np.ndarray]:
    import numpy as np

    end = int(length) if length is not None else len(data)
    outputs: Sequence[Mapping[str, Any]] = json.loads(data[:end])["outputs"]
    found: dict[str, np.ndarray] = {}
    for output in outputs:
        name = _NAMES[output["datatype"]]
        if name == "bfloat16":
            import ml_dtypes

            dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            dtype = np.dtype(name)
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            array = np.array(output["data"], dtype)
        else:
            array = np.frombuffer(data[end : end + size], np.uint8).view(dtype)
            end += size
        found[str(output["name"])] = array.reshape(output["shape"])
    return found


def _refusal(status: int, data: bytes) -> EdgectlError:
    try:
        words = str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        words = f"the service answered with status {status}"
    if status == 401:
        return AuthenticationError(
            words, next_step="Give the token with --token or EDGECTL_SERVICE_TOKEN."
        )
    if status == 503:
        return BusyError(words, cause="more requests come in than the device can compute")
    if status in (400, 404, 405, 413, 415):
        return UsageError(words)
    return DeviceError(words, next_step="edgectl serve logs")
