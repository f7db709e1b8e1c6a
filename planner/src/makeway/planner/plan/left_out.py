"""What earlier orders for a preemptor leave out of its next plan. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from makeway.core.text import counted


class PassedOver(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods that could not be evicted for a preemptor, by UID, and nodes on which its orders failed.

    `until`: when the first of them is tried again; None where nothing is left out. `why`: what kept most of
    the pods, in a few words that the preemptor's namespace may read. `pledged`: nodes with room that plans
    take which were just made for others, and are not used yet.
    """

    victims: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    until: datetime | None = None
    why: str = ""
    pledged: frozenset[str] = frozenset()

    def told(self, message: str, retry_at: datetime | None) -> tuple[str, datetime | None]:
        """Return a refusal's message and time with what is left out."""
        if self.pledged:
            message += f"; plans just made for other pods take room on {counted(len(self.pledged), 'node')}"
        if self.until is None:
            return message, retry_at
        if self.nodes:
            message += f"; preemption has just failed on {counted(len(self.nodes), 'node')}"
        if self.why:
            pods = counted(len(self.victims), "pod")
            are = "is" if len(self.victims) == 1 else "are"
            message += f"; {pods} {are} left out for now, as impossible to evict: {self.why}"
        return message, self.until if retry_at is None else min(retry_at, self.until)


NOTHING_PASSED_OVER = PassedOver()
