"""Which label keys selectors ask for, so that signatures tell them apart. Pure state."""

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


class LabelKeysInUse:
    """Keys that signatures tell apart, and of which of them all pods have been entered (`ready`)."""

    def __init__(self) -> None:
        self.keys: frozenset[str] = frozenset(FROM_THE_START)
        self.ready: frozenset[str] = self.keys
        self._entering: frozenset[str] = frozenset()
        self._used: OrderedDict[str, None] = OrderedDict()

    def add(self, keys: frozenset[str]) -> bool:
        """Note that keys are asked for; report whether signatures have to tell apart others than before."""
        more = sorted(keys.difference(FROM_THE_START))
        new = [key for key in more if key not in self._used]
        for key in more:
            self._used[key] = None
            self._used.move_to_end(key)
        if not new:
            return False
        while len(self._used) > MOST:
            self._used.popitem(last=False)
        self.keys = frozenset((*FROM_THE_START, *self._used))
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
