"""Warnings on pods that no queue takes as they ask for it; they are held, or count in root.default."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from makeway.core.k8s.event import Regarding
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.config_events import EventSink

ROUND_SECONDS: Final = 1.0
"""Between two looks."""

AT_ONCE: Final = 20
"""So many Events a round: a mistake in one template makes thousands of such pods."""


class QueueWarnings:
    """An Event on each such pod, once for each reason, from the planner that leads."""

    def __init__(self, snapshot: Snapshot, recorder: EventSink) -> None:
        self._snapshot = snapshot
        self._recorder = recorder
        self._told: dict[str, str] = {}

    async def tell_forever(self) -> NoReturn:
        """Run while leading."""
        while True:
            self.tell()
            await asyncio.sleep(ROUND_SECONDS)

    def tell(self) -> None:
        """Tell of pods that were not told of yet; the rest have their turn later. O(misplaced pods)."""
        if self._snapshot.pending_updates.pending:
            return  # a pod that is not placed yet is not well placed either
        misplaced = self._snapshot.queues.misplaced
        self._told = {uid: said for uid, said in self._told.items() if uid in misplaced}
        left = AT_ONCE
        for uid, warning in misplaced.items():
            if self._told.get(uid) == warning:
                continue
            if left == 0:
                return
            left -= 1
            self._told[uid] = warning
            pod = self._snapshot.pods[uid]
            about = Regarding("v1", "Pod", pod.namespace, pod.name, uid)
            self._recorder.record(about, "Warning", "QueueNotUsed", "Place", warning)
