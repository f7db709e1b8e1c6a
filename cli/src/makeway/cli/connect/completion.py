"""What a shell offers for names in the cluster: pods and namespaces.

Whoever presses a key must not wait, and must see no error: what cannot be had within the time is not offered.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable, Coroutine
from typing import Any, Final

import typer

from makeway.cli.connect.objects import METADATA_LIST, Bare, listed
from makeway.cli.connect.session import Installation, installation_of
from makeway.runtime import logs
from makeway.runtime.kube import ApiError, ApiUnavailable, ConfigurationError

_SECONDS: Final = 3.0
_MOST: Final = 500


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer namespaces."""
    return _offered(ctx, incomplete, lambda installation: _names(installation, "/api/v1/namespaces"))


def pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer pods of the namespace that was given, or of the one before the slash."""
    kind = "pod/" if incomplete.startswith("pod/") else ""
    space, slash, _ = incomplete.removeprefix(kind).rpartition("/")

    async def found(installation: Installation) -> list[str]:
        namespace = space or installation.namespace(ctx.params.get("namespace") or "")
        names = await _names(installation, f"/api/v1/namespaces/{namespace}/pods")
        return [f"{kind}{space}{slash}{name}" for name in names]

    return _offered(ctx, incomplete, found)


async def _names(installation: Installation, path: str) -> list[str]:
    async with installation.api() as api:
        found = await listed(api, path, Bare, query={"limit": str(_MOST)}, accept=METADATA_LIST)
    return [one.metadata.name for one in found]


def _offered(
    ctx: typer.Context, incomplete: str, find: Callable[[Installation], Coroutine[Any, Any, list[str]]]
) -> list[str]:
    """Return what was found and begins so; nothing where it cannot be found in time."""
    logs.configure("text", "error", "completion", "")

    async def found() -> list[str]:
        async with asyncio.timeout(_SECONDS):
            return await find(installation_of(ctx.params))

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            names = asyncio.run(found())
    except (ApiError, ApiUnavailable, ConfigurationError, OSError, ValueError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))
