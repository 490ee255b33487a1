"""What goes between the connection and the application: a request, a response, a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["HttpError", "Request", "Response", "json_response"]


class HttpError(Exception):
    """A request that is not answered as asked: the status and one sentence for the client."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """As the protocol wants errors: ``{"error": "..."}``."""
        return json_response({"error": self.message}, status=self.status, headers=self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Method, path without the query, and headers by lower-case name."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Status, headers, and the body in parts, which are sent one after another as they are."""

    status: int
    headers: Mapping[str, str]
    parts: tuple[bytes | memoryview, ...]

    @property
    def size_bytes(self) -> int:
        """Of the body."""
        return sum(len(part) for part in self.parts)


def json_response(
    document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A document as the body."""
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return Response(
        status=status,
        headers={"content-type": "application/json", **(headers or {})},
        parts=(body,),
    )
