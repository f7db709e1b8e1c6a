"""What plans on one snapshot have worked out, kept for the next plan on it.

It changes no answer: a plan with an empty cache says the same, later. Owned by a caller that plans more than
once on a snapshot, and handed to each plan.
"""

from __future__ import annotations

from weakref import ReferenceType, ref

from makeway.planner.plan.constraints.tally import Tallies
from makeway.planner.plan.node_scores import NodeScoreCaches
from makeway.planner.plan.terminating import AwaitedRooms
from makeway.planner.snapshot.state import Snapshot


class PlanCache:
    """`scores`: of nodes, by class of preemptors. `tallies`: of pods, by constraint.

    `awaited`: the room that terminating pods make.
    """

    def __init__(self) -> None:
        self.scores = NodeScoreCaches()
        self.tallies = Tallies()
        self.awaited = AwaitedRooms()
        self._snapshot: ReferenceType[Snapshot] | None = None

    def bind(self, snapshot: Snapshot) -> None:
        """Take the snapshot of the first plan for that of all.

        Raises:
            ValueError: what is kept was worked out on another snapshot.
        """
        if self._snapshot is None:
            self._snapshot = ref(snapshot)
        elif self._snapshot() is not snapshot:
            raise ValueError("this cache was filled by plans on another snapshot")
