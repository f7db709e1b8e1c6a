"""What comes, as it comes: each message as data, or a line for each order and for how each ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

from makeway.bus.errors import Malformed
from makeway.cli.history import rows
from makeway.cli.history.rows import History, Wanted, namespaces_of
from makeway.cli.history.story import ORDERED_WITHIN, Message, Row
from makeway.cli.history.streams import StreamEntry
from makeway.cli.output import Printer
from makeway.cli.tables import table
from makeway.core.recent import Recent

KEPT: Final = 5000


class Coming:
    """The rows that messages change, of those that are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self.history = History()
        self._wanted = wanted

    def take(self, entry: StreamEntry, now: datetime) -> tuple[bool, list[Row]]:
        """Take a message in; report whether it concerns what is wanted, and return the rows it changes.

        What could not be read concerns everyone.
        """
        if not isinstance(entry.content, Message):
            return isinstance(entry.content, Malformed), []
        found = [self.history.row(key, now) for key in self.history.add(entry.content)]
        self.history.forget(KEPT)
        changed = [row for row in found if row is not None]
        wanted = [row for row in changed if self._wanted.takes(row)]
        if changed or not self._wanted.namespace:
            return bool(wanted) or not changed, wanted
        return self._wanted.namespace in namespaces_of(entry.content), []


async def follow(printer: Printer, entries: AsyncIterator[StreamEntry], wanted: Wanted) -> None:
    """Print until the connection is lost or the command interrupted. Raises BusError."""
    coming = Coming(wanted)
    printed = Recent[str, str](KEPT)
    planned: dict[str, Row] = {}
    async for entry in entries:
        # By the writers' clock, so that what is past is judged as of then.
        now = entry.at
        concerns, changed = coming.take(entry, now)
        if printer.data:
            if concerns:
                printer.item(entry.plain())
            continue
        if isinstance(entry.content, Malformed):
            where = f"{entry.stored.subject} (sequence {entry.stored.sequence})"
            why = f"{entry.content.reason}: {entry.content.detail}"
            printer.note(f"unreadable {entry.kind} on {where}: {why}")
        planned |= {row.decision_id or row.order_id: row for row in changed}
        due = [key for key, row in planned.items() if _settled(row, now)]
        for key in due:
            row = coming.history.row(key, now) or planned[key]
            del planned[key]
            if row.result == "planned" or printed.get(key) == row.result:
                continue
            printed[key] = row.result
            _, line = table(rows.LINE, [rows.line(row, now)], width=printer.width)
            printer.row(line)


def _settled(row: Row, now: datetime) -> bool:
    """Report whether time alone changes nothing of a row any more."""
    return row.result != "planned" or now - row.at > ORDERED_WITHIN
