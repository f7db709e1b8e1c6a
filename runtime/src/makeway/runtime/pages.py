"""A page of a list, read object by object: one that cannot be read costs only itself.

An API server writes a list in one way: `{…,"metadata":{…},"items":[{"metadata":{"name":…},{"metadata":…]}`.
It is cut where one object seems to end and the next to begin, which costs next to nothing, and each piece is
read as it is asked for. No piece can be taken for an object wrongly: from where an object begins, the text is
whole JSON only up to where it ends. From the first piece on that cannot be read the page is split as JSON,
which is right for every list, and reads what is left of it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from makeway.core.k8s.objects import View

T = TypeVar("T")
Text = memoryview | msgspec.Raw

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What a decoder raises where the text is not JSON, or not of the type asked for."""

_OBJECT = b'{"metadata":{"name":"'
_ITEMS = b'"items":['
_BETWEEN = b"},"
_END = b"]}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that cannot be read: its text, and why."""

    text: msgspec.Raw
    error: Exception


class PageMetadata(View, frozen=True, gc=False):
    """metadata of a list: its version, and the token for the next page where there is one."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Head(View, frozen=True, gc=False):
    metadata: PageMetadata


class _List(_Head, frozen=True, gc=False):
    items: tuple[msgspec.Raw, ...] | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_list = msgspec.json.Decoder(_List).decode


class Page:
    """One answer to a list request. `metadata`: of the list. Raises what is UNREADABLE."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._begin = body.find(_ITEMS + _OBJECT) + len(_ITEMS)
        self._end = body.rfind(_END, -len(_END) - 1)  # a line end may follow; to strip it would copy the page
        try:
            if body[self._end :].rstrip() != _END:
                raise msgspec.DecodeError("a list does not end like this")
            # Whole JSON only where the list's items begin there.
            self.metadata = _decode_head(body[: self._begin] + _END).metadata
        except UNREADABLE:
            self._begin = len(body)
            self.metadata = _decode_list(body).metadata

    def objects(self, decode: Callable[[Text], T]) -> Iterator[T | Unreadable]:
        """Give each object decoded, or why it cannot be. Raises what is UNREADABLE."""
        read = 0
        try:
            for piece in self._pieces():
                yield decode(piece)
                read += 1
        except UNREADABLE:
            for raw in (_decode_list(self._body).items or ())[read:]:
                try:
                    yield decode(raw)
                except UNREADABLE as error:
                    yield Unreadable(raw, error)

    def _pieces(self) -> Iterator[memoryview]:
        """Give what may be the objects."""
        text, begin = memoryview(self._body), self._begin
        while (end := self._body.find(_BETWEEN + _OBJECT, begin)) >= 0:
            yield text[begin : end + 1]
            begin = end + len(_BETWEEN)
        yield text[begin : self._end]
