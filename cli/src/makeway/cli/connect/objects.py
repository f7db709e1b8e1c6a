"""What commands ask the API server for: objects, and what users may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
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


async def may(api: Api, who: Mapping[str, Any] | None = None, /, **attributes: str) -> bool:
    """Ask whether someone, or who asks where that is not said, may do something.

    `who`: user, groups and the like, and `attributes` of the resource, as a SubjectAccessReview has them.
    Raises ApiError, ApiUnavailable.
    """
    reviews = api.authorization
    kind = "SubjectAccessReview" if who else "SelfSubjectAccessReview"
    create = reviews.create_subject_access_review if who else reviews.create_self_subject_access_review
    spec = {**(who or {}), "resourceAttributes": attributes}
    answer = await api.call(create, {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    return bool(msgspec.json.decode(answer)["status"]["allowed"])


async def may_pods(api: Api, verb: str, namespace: str = "") -> bool:
    """Ask whether who asks may do something to pods of a namespace; of all, where none is named.

    Raises as `may`.
    """
    return await may(api, verb=verb, resource="pods", namespace=namespace)
