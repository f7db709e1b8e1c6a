"""Answers as JSON, compressed where they are long, and errors in a sentence."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

_WORTH_COMPRESSING: Final = 2048


def json_answer(value: Any, request: Request) -> Response:
    """Return a value as JSON."""
    body = msgspec.json.encode(value)
    if len(body) < _WORTH_COMPRESSING or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(body, media_type="application/json")
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(gzip.compress(body, 1), media_type="application/json", headers=headers)


def failed(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error: one sentence, as text, which page and person can show alike."""
    return Response(f"{why}\n", status_code=status, media_type="text/plain", headers=dict(headers or {}))
