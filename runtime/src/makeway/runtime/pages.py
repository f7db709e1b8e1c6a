"""A page of a list, read object by object: one that cannot be read costs only itself.

The page is split as JSON, and each object is decoded as it is asked for: while one is counted, it is still in
the processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from makeway.core.k8s.objects import View

T = TypeVar("T")

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
"""What a decoder raises where the text is not JSON, or not of the type asked for."""


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that cannot be read: its text, and why."""

    text: msgspec.Raw
    error: Exception


class PageMetadata(View, frozen=True, gc=False):
    """metadata of a list: its version, and the token for the next page where there is one."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(View, frozen=True, gc=False):
    metadata: PageMetadata
    items: tuple[msgspec.Raw, ...] | None = None


_decode_list = msgspec.json.Decoder(_List).decode


class Page:
    """One answer to a list request. `metadata`: of the list. Raises what is DECODE_ERRORS."""

    def __init__(self, body: bytes) -> None:
        page = _decode_list(body)
        self.metadata = page.metadata
        self._items = page.items or ()

    def objects(self, decode: Callable[[msgspec.Raw], T]) -> Iterator[T | UnreadableObject]:
        """Return each object decoded, or why it cannot be."""
        for text in self._items:
            try:
                yield decode(text)
            except DECODE_ERRORS as error:
                yield UnreadableObject(text, error)
