"""The last preemptions and refusals, and what of them has changed since a revision. Pure.

Messages go in, entries come out. Memory is bounded: so many entries, each with so many victims. A reader asks
for what has changed since the revision that it has; where that is too long ago, it begins anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from makeway.cli.history.rows import History
from makeway.cli.history.story import Message
from makeway.ui.model.entries import Entry, bounded, entry_of

MOST_ENTRIES: Final = 10_000
_SLACK: Final = 500
"""So many more are kept before the oldest are forgotten, all at once."""

_UNSETTLED: Final = frozenset({"planned", "live"})
"""Results that time alone may change."""


class Changes(msgspec.Struct, frozen=True, rename="camel"):
    """What a reader that has some revision needs to have this one.

    entries: new or changed, those that changed first come first. removed: keys of those that are gone.
    more: there are further changes. reset: the reader's revision is not known here: it begins anew.
    loaded: the streams have been read to where they ended when the page began.
    """

    revision: int
    loaded: bool
    entries: tuple[Entry, ...] = ()
    removed: tuple[str, ...] = ()
    more: bool = False
    reset: bool = False


class Timeline:
    """Takes messages in any order; O(1) each, but for when the oldest are forgotten."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.revision = 0
        self.loaded = False
        self._most = most
        self._history = History()
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # those that changed last come last
        self._unsettled: dict[str, None] = {}
        self._removed: deque[tuple[int, str]] = deque(maxlen=2 * most)
        self._oldest = 0

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def add(self, message: Message, now: datetime) -> None:
        """Take a message in."""
        small, victims = bounded(message)
        for key in self._history.add(small):
            self._renew(key, now, victims)
        if len(self._entries) > self._most + _SLACK:
            for key in self._history.forget(self._most):
                self._remove(key)

    def complete(self) -> None:
        """Take note that all that was in the streams has been taken in."""
        if not self.loaded:
            self.loaded = True
            self.revision += 1

    def settle(self, now: datetime) -> None:
        """Look again at what time alone may have changed. O(orders in flight and plans without an order)."""
        for key in list(self._unsettled):
            self._renew(key, now)

    def entries(self) -> Iterator[Entry]:
        """Return all entries, those that changed last first."""
        return reversed(self._entries.values())

    def whole(self, most: int) -> Iterator[Changes]:
        """Return all entries for a reader that has none, in pieces, those that changed last first."""
        entries, revision, loaded = tuple(self.entries()), self.revision, self.loaded
        for start in range(0, len(entries), most):
            yield Changes(0, loaded=False, entries=entries[start : start + most], more=True)
        yield Changes(revision, loaded)

    def since(self, revision: int, most: int) -> Changes:
        """Return what has changed since a revision, at most so many entries. O(what is returned)."""
        if revision > self.revision or revision < self._oldest:
            return Changes(self.revision, self.loaded, reset=True)
        fresh: list[Entry] = []
        for entry in reversed(self._entries.values()):
            if entry.revision <= revision:
                break
            fresh.append(entry)
        fresh.reverse()
        chosen = fresh[:most]
        upto = chosen[-1].revision if len(chosen) < len(fresh) else self.revision
        removed = [key for at, key in _newest(self._removed, revision) if at <= upto]
        more = upto < self.revision
        return Changes(upto, self.loaded and not more, tuple(chosen), tuple(reversed(removed)), more=more)

    def _renew(self, key: str, now: datetime, victims: int = 0) -> None:
        row = self._history.row(key, now)
        if row is None:
            self._remove(key)
            return
        before = self._entries.get(key)
        total = max(victims, before.victims_total if before is not None else 0)
        entry = entry_of(key, row, self.revision + 1, total)
        if entry.result in _UNSETTLED:
            self._unsettled[key] = None
        else:
            self._unsettled.pop(key, None)
        if before is not None and msgspec.structs.replace(entry, revision=before.revision) == before:
            return
        self.revision += 1
        self._entries[key] = entry
        self._entries.move_to_end(key)

    def _remove(self, key: str) -> None:
        self._unsettled.pop(key, None)
        if self._entries.pop(key, None) is None:
            return
        self.revision += 1
        if len(self._removed) == self._removed.maxlen:
            self._oldest = self._removed[0][0]
        self._removed.append((self.revision, key))


def _newest(removed: deque[tuple[int, str]], revision: int) -> Iterator[tuple[int, str]]:
    for at, key in reversed(removed):
        if at <= revision:
            return
        yield at, key
