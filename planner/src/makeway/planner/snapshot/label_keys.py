"""Which label keys selectors ask for, so that kinds tell them apart. Pure state."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from makeway.core.k8s.queue_labels import QUEUE_LABELS

FROM_THE_START: Final = (
    *QUEUE_LABELS,
    "app",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/name",
    "k8s-app",
)
"""Keys that nearly every selector uses, with values that many pods share: no first plan waits for them."""

MOST: Final = 64
"""Keys besides those from the start; the one that was not asked for longest is given up first."""


class AskedKeys:
    """Keys that kinds tell apart, and of which of them all pods have been entered (`ready`)."""

    def __init__(self) -> None:
        self.keys: frozenset[str] = frozenset(FROM_THE_START)
        self.ready: frozenset[str] = self.keys
        self._entering: frozenset[str] = frozenset()
        self._asked: OrderedDict[str, None] = OrderedDict()

    def want(self, keys: frozenset[str]) -> bool:
        """Note that some keys are asked for; return whether kinds have to tell apart others than before."""
        more = sorted(keys.difference(FROM_THE_START))
        new = [key for key in more if key not in self._asked]
        for key in more:
            self._asked[key] = None
            self._asked.move_to_end(key)
        if not new:
            return False
        while len(self._asked) > MOST:
            self._asked.popitem(last=False)
        self.keys = frozenset((*FROM_THE_START, *self._asked))
        self.ready &= self.keys
        self._entering &= self.keys
        return True

    def begin(self) -> None:
        """Note that all pods are being entered by the keys of now."""
        self._entering = self.keys

    def end(self) -> bool:
        """Note that all have been; return whether others are asked for since."""
        self.ready |= self._entering
        return self.ready != self.keys
