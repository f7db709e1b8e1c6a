"""Updates of many pods, made in chunks, so that everything else has its turn between them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final, TypeAlias

Update: TypeAlias = Callable[[str], None]
"""Called with a pod's UID; the pod may be gone by then, or have been updated before."""

CHUNK: Final = 500
"""So many pods are updated without a pause by a process that serves: 2 to 10 ms."""


class PendingUpdates:
    """What a change of policy, classes, queues or resources has left to do, pod by pod.

    `chunk`: an update of more pods than that is left to `apply_chunk`, which updates so many at a time; None
    updates all at once. A caller that needs the pods as they will be asks first what is `pending`.
    """

    def __init__(self, chunk: int | None) -> None:
        self._chunk = chunk
        self._left: dict[str, tuple[Iterator[str], Update, Callable[[], None]]] = {}
        self._notify: Callable[[], None] = lambda: None

    @property
    def pending(self) -> str:
        """What is still being done, for people; empty where nothing is."""
        return next(iter(self._left), "")

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Have a function called whenever something is left to `apply_chunk`."""
        self._notify = notify

    def add(
        self, what: str, uids: Collection[str], update: Update, done: Callable[[], None] = lambda: None
    ) -> None:
        """Update these pods, if there are any; an update for the same that is not over ends.

        `what`: a sentence for people. `done`: called once all have been updated.
        """
        if not uids:
            done()
            return
        self._left.pop(what, None)
        if self._chunk is None or len(uids) <= self._chunk:
            for uid in [*uids]:
                update(uid)
            done()
        else:
            self._left[what] = iter([*uids]), update, done
            self._notify()

    def apply_chunk(self) -> None:
        """Update the next chunk of pods."""
        if self._left:
            what, (uids, update, done) = next(iter(self._left.items()))
            chunk = list(islice(uids, self._chunk))
            for uid in chunk:
                update(uid)
            if not chunk:
                del self._left[what]
                done()
