"""Who wrote a mark: makeway's evictor, or the preemption of others. Of pods and of groups alike.

The field manager says so (`makeway.core.k8s.authorship`), and so does an order that names the pod, however
it ended: an order is stored before its evictor marks a pod. Where neither does, as for a mark that was first
seen in a list, it is held until all orders that were stored before it was seen have been read. Pure state,
which asks the ledger.
"""

from __future__ import annotations

from typing import Final, Literal

from makeway.core.k8s.authorship import EVICTOR
from makeway.planner.observe.marks import Evicted
from makeway.planner.orders.ledger import Ledger

MOST_HELD: Final = 10_000
"""Marks that are held; one more is passed over."""


def author(writers: frozenset[str], *, named: bool, read: bool) -> Literal["makeway", "others", "undecided"]:
    """Return whose a mark is.

    `writers`: field managers that wrote it; empty where they are not known. `named`: whether an order names
    its pod. `read`: whether all orders have been read that were stored before the mark was seen.
    """
    if named or EVICTOR in writers:
        return "makeway"
    return "others" if writers or read else "undecided"


class Authors:
    """The marks that are held."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: dict[str, Evicted] = {}

    def __len__(self) -> int:
        """How many marks are held."""
        return len(self._held)

    def take(self, mark: Evicted) -> bool:
        """Take in a mark; report whether there was room for it."""
        if len(self._held) >= MOST_HELD:
            return False
        self._held[mark.gone.uid] = mark
        return True

    def withdraw(self, uid: str) -> None:
        """Forget the mark of a pod that carries none any more."""
        self._held.pop(uid, None)

    def of_others(self) -> list[Evicted]:
        """Return the marks that turn out to be others', each once, and forget makeway's. O(marks held)."""
        found = []
        for uid, mark in list(self._held.items()):
            whose = author(
                mark.writers, named=self._ledger.names(uid), read=mark.seen < self._ledger.read_until
            )
            if whose != "undecided":
                del self._held[uid]
            if whose == "others":
                found.append(mark)
        return found
