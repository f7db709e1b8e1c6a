"""What the demo can show. A scenario is a module with a story, and a line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from makeway.dev.demo import daemonset, main_job, quota, toleration
from makeway.dev.demo.stage import Stage
from makeway.dev.options import ClusterOptions


@dataclass(frozen=True)
class Scenario:
    """A story to be played on a cluster of its own.

    `shows`: what, in a few words. `play`: tells it, top to bottom; namespace `demo` is there, and pods in it
    are watched. `options`: how to start the cluster.
    """

    shows: str
    play: Callable[[Stage], Awaitable[None]]
    options: ClusterOptions = field(default_factory=ClusterOptions)


SCENARIOS = {
    "main": Scenario("an urgent pod makes room, and an eviction is refused", main_job.play),
    "toleration": Scenario(
        "pods stay for as long as their PriorityClass says, and no longer", toleration.play
    ),
    "daemonset": Scenario("pods of DaemonSets get room on the one node that is theirs", daemonset.play),
    "quota": Scenario("a queue is brought down to a lowered quota, and its guarantee holds", quota.play),
}
"""By name, in the order of being shown."""
