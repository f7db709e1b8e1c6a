"""What is recorded: changes of the snapshot, and decisions between them, in the order in which they came.

A *recording* begins with the whole snapshot, as changes that make it out of nothing, and goes on with what
came then; read from its beginning it makes the snapshot at any decision in it. Entries travel in chunks of
compressed MessagePack, by position and not by name. They are read by the same version of makeway, or by a
newer one that knows them; another `VERSION` is refused. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from makeway.bus.messages import Placement
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.changes import Change, RecordingEntry
from makeway.planner.snapshot.records import PodRecord

VERSION: Final = 4
_T = TypeVar("_T")

InFlight: TypeAlias = tuple[str, tuple[str, ...]]
"""An order's id, and the UIDs of the pods that it removes."""

LONGEST: Final = 64 * 2**20
"""Bytes that a chunk may unpack to: many times what is ever written, so that a forged one fills no memory."""


class Began(RecordingEntry, frozen=True, tag=0, gc=False):
    """A recording begins: of which cluster, by whom, when. What makes the snapshot follows."""

    cluster_uid: str
    planner: str
    at: datetime


class SnapshotComplete(RecordingEntry, frozen=True, tag=1, gc=False):
    """The snapshot is complete, at this revision; and what the changes before it do not tell.

    `departures`: pods that left lately, with the revision at which that was seen. `budgets`: at which
    revision each budget was last seen to change.
    """

    revision: int
    departures: tuple[tuple[PodRecord, int], ...]
    budgets: tuple[tuple[Key, int], ...]


class SetChange(RecordingEntry, Generic[_T], frozen=True, gc=False):
    """How a set differs from another: `gone` is in the other alone, `come` in this one alone."""

    gone: tuple[_T, ...]
    come: tuple[_T, ...]


class ChangingSet(Generic[_T]):
    """A set that is told by its differences, in the order in which they come; empty at first."""

    def __init__(self) -> None:
        self.items: frozenset[_T] = frozenset()

    def become(self, items: Iterable[_T]) -> SetChange[_T]:
        """Take over a set and tell how it differs from the last. O(items)."""
        before, self.items = self.items, frozenset(items)
        return SetChange(tuple(before - self.items), tuple(self.items - before))

    def change(self, difference: SetChange[_T]) -> None:
        """Take over what `become` told."""
        self.items = self.items.difference(difference.gone).union(difference.come)


class Decided(RecordingEntry, frozen=True, tag=15, gc=False):
    """A plan was made here, at this moment, of this request and of what the planner knew besides.

    `request`: the plan request in JSON, without the sets that follow. `nominations`: the pods nominated.
    `in_flight`: what the plugin's live orders and the streams came to, of each order its id and the UIDs
    that it removes. Thousands of either may be the same as before, so each is told by how it differs from
    that of the decision before: what it has no longer, and what it has besides. `again_at`: when the refusal
    was to be made again, since the snapshot was behind the scheduler's. `left_out`: what earlier orders for
    the preemptor leave out.
    """

    decision_id: str
    at: datetime
    request: bytes
    nominations: SetChange[Placement]
    in_flight: SetChange[InFlight]
    leaving: frozenset[str]
    unfit_since: datetime | None
    again_at: datetime | None
    left_out: PassedOver = NOTHING_PASSED_OVER


AnyEntry = Change | Began | SnapshotComplete | Decided | QuotaInputs


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Entries that were written together; `number` counts the chunks of a recording from 0."""

    version: int
    number: int
    entries: tuple[msgspec.Raw, ...]


class RecordingError(ValueError):
    """A recording that cannot be used: damaged, incomplete, or of another version."""


_encoder = msgspec.msgpack.Encoder()
_decode_entry = msgspec.msgpack.Decoder(AnyEntry).decode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode


def encode_entry(entry: AnyEntry) -> bytes:
    """Write one entry; about 2 µs for a pod."""
    return _encoder.encode(entry)


def pack(number: int, entries: Iterable[bytes]) -> bytes:
    """Write a chunk. zlib lets other threads run meanwhile."""
    chunk = Chunk(VERSION, number, tuple(msgspec.Raw(entry) for entry in entries))
    return zlib.compress(_encoder.encode(chunk), 1)


def unpack(data: bytes) -> tuple[int, list[AnyEntry]]:
    """Read a chunk: its number and its entries. Raises RecordingError."""
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(data, LONGEST)
        if not unpacking.eof:
            raise RecordingError("a part of the recording is cut off, or larger than any that is written")
        chunk = _decode_chunk(plain)
        if chunk.version != VERSION:
            raise RecordingError(f"the recording is of version {chunk.version}, this makeway reads {VERSION}")
        return chunk.number, [_decode_entry(entry) for entry in chunk.entries]
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordingError(f"a part of the recording cannot be read: {error}") from error
