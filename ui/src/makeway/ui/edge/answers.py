"""Answers as JSON, and errors in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from makeway.cli.text import safe


def encoded(value: Any) -> bytes:
    """Return a value as JSON, with each of its texts as one line that cannot pretend to be another."""
    return msgspec.json.encode(_escaped(msgspec.to_builtins(value, str_keys=True)))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, dict):
        return {safe(key): _escaped(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(one) for one in value]
    return value


def json_answer(value: Any) -> Response:
    """Return a value as JSON."""
    return Response(encoded(value), media_type="application/json")


def failed(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error: one sentence, as text, which page and person can show alike."""
    return Response(f"{why}\n", status_code=status, media_type="text/plain", headers=dict(headers or {}))
