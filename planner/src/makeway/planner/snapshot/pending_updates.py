"""Visits to many pods, made in pieces, so that whatever else there is to do has its turns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final, TypeAlias

Visit: TypeAlias = Callable[[str], None]
"""Called with a pod's UID; the pod may be gone by then, or have been visited before."""

PIECE: Final = 500
"""So many pods are visited at one go by a process that serves: 2 to 10 ms."""


class Backlog:
    """What a change of policy, classes, queues or resources has left to do, pod by pod.

    `piece`: a visit to more pods than that is left to `work`, which makes so many at a time; None makes all
    at once. Whoever needs the pods as they will be asks first what is `unsettled`.
    """

    def __init__(self, piece: int | None) -> None:
        self._piece = piece
        self._left: dict[str, tuple[Iterator[str], Visit, Callable[[], None]]] = {}
        self._told: Callable[[], None] = lambda: None

    @property
    def unsettled(self) -> str:
        """What is still being done, for people; empty where nothing is."""
        return next(iter(self._left), "")

    def subscribe(self, told: Callable[[], None]) -> None:
        """Have a function called whenever something is left to `work`."""
        self._told = told

    def visit(
        self, what: str, uids: Collection[str], visit: Visit, done: Callable[[], None] = lambda: None
    ) -> None:
        """Visit these pods, if there are any; a visit for the same that is not over ends.

        `what`: a sentence for people. `done`: called once all have been visited.
        """
        if not uids:
            done()
            return
        self._left.pop(what, None)
        if self._piece is None or len(uids) <= self._piece:
            for uid in [*uids]:
                visit(uid)
            done()
        else:
            self._left[what] = iter([*uids]), visit, done
            self._told()

    def work(self) -> None:
        """Make a piece of what is left."""
        if self._left:
            what, (uids, visit, done) = next(iter(self._left.items()))
            piece = list(islice(uids, self._piece))
            for uid in piece:
                visit(uid)
            if not piece:
                del self._left[what]
                done()
