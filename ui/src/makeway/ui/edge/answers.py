"""Answers as JSON, and errors in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response


def json_answer(value: Any) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def failed(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error: one sentence, as text, which page and person can show alike."""
    return Response(f"{why}\n", status_code=status, media_type="text/plain", headers=dict(headers or {}))
