"""Objects as commands read them: one by its path, a list of them, or several at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from makeway.core.k8s.objects import Metadata
from makeway.runtime.kube import Api

A = TypeVar("A")
T = TypeVar("T")

_AT_ONCE: Final = 16
"""Requests that a command sends at the same time."""

METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""`accept` of a list of which the metadata is enough."""


class Bare(msgspec.Struct):
    """An object of which the metadata is enough."""

    metadata: Metadata


class _Items(msgspec.Struct, Generic[T]):
    items: tuple[T, ...] | None = None  # the API server's word for none of them


async def asked_of_each(ask: Callable[[A], Awaitable[T]], items: Iterable[A]) -> list[T]:
    """Return what `ask` does of each item, in their order; 16 at the same time. Raises what `ask` raises."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(item: A) -> T:
        async with limit:
            return await ask(item)

    return await asyncio.gather(*map(one, items))


async def listed(api: Api, path: str, kind: type[T], **options: Any) -> tuple[T, ...]:
    """Read a list's objects as `kind`. `options`: of the request. Raises ApiError, ApiUnavailable."""
    body = await api.request("GET", path, **options)
    return msgspec.json.decode(body, type=_Items[kind]).items or ()  # type: ignore[valid-type]
