"""The page at ``/``: one file with everything in it, so that it works without the internet."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from edgectl_runner.service.messages import Response

__all__ = ["page"]

_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src blob: data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


@cache
def page() -> Response:
    """The page, read once."""
    data = Path(__file__).with_name("page.html").read_bytes()
    return Response(status=200, headers=_HEADERS, parts=(data,))
