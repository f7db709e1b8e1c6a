"""What the demo can show. A scenario is a module with a story, and a line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from makeway.dev.binaries import needed
from makeway.dev.build import reached_mirror, to_build
from makeway.dev.demo import daemonset, external, gang, lost_work, main_job, quota, reclaim, toleration
from makeway.dev.demo.stage import Stage
from makeway.dev.options import NOMINATOR, USUAL, ClusterOptions
from makeway.dev.progress import SilentProgress

_SMALLEST = ClusterOptions(small=True, controllers=False, admission_policies=True)
_WITH_CONTROLLERS = replace(_SMALLEST, controllers=True)
"""For stories of which a controller's pods are a part."""


@dataclass(frozen=True)
class Scenario:
    """A story to be played on a cluster of its own.

    `shows`: what, in a few words. `asks`: the makeway command that tells most afterwards. `play`: tells it,
    top to bottom; namespace `demo` is there, and pods in it are watched. `options`: how to start the cluster.
    `minor`: the only minor version of Kubernetes that has what it shows, and `because`, a clause that says
    why; empty: all have it.
    """

    shows: str
    asks: str
    play: Callable[[Stage], Awaitable[None]]
    options: ClusterOptions = _SMALLEST
    minor: str = ""
    because: str = ""

    def refused_on(self, minor: str) -> str:
        """Return why it cannot be shown on a minor version, and what to do; empty where it can."""
        if self.minor in ("", minor):
            return ""
        return (
            f"it cannot be shown on Kubernetes {minor}: {self.because}; run it with KUBERNETES={self.minor}"
        )


MAIN = "main"
EXTERNAL = "external"

SCENARIOS = {
    MAIN: Scenario(
        "an urgent pod makes room, and an eviction is refused", "why -n demo fraud-check", main_job.play
    ),
    EXTERNAL: Scenario(
        "an urgent pod makes room beside a kube-scheduler that is not touched",
        "why -n demo payment",
        external.play,
        replace(_SMALLEST, components=frozenset({*USUAL, NOMINATOR}), plugin=False, fallback=False),
    ),
    "gang": Scenario(
        "a training job of 8 makes room, all of it or none",
        "why -n demo podgroup/train",
        gang.play,
        gang.OPTIONS,
        minor="1.37",
        because="kube-scheduler asks for room for a pod group as one from 1.37 on",
    ),
    "toleration": Scenario(
        "pods stay for as long as their PriorityClass says, and no longer",
        "why -n demo forecast",
        toleration.play,
    ),
    "daemonset": Scenario(
        "pods of DaemonSets get room on the one node that is theirs",
        "why -n demo thumbnails",
        daemonset.play,
        _WITH_CONTROLLERS,
    ),
    "quota": Scenario(
        "a queue is brought down to a lowered quota, and its guarantee holds",
        "queues",
        quota.play,
        _WITH_CONTROLLERS,
    ),
    "reclaim": Scenario(
        "a queue takes back what another of equal priority uses of its guarantee",
        "queues",
        reclaim.play,
    ),
    "lost-work": Scenario(
        "of two equal pods the one goes that has just saved its work",
        "why -n demo payment",
        lost_work.play,
    ),
}
"""By name, in the order of being shown."""


def played_first() -> str:
    """Return what is played where no scenario is named: main, or what a mirror has the programs of before it.

    Raises:
        DevError: what the environment names is no mirror's address.
    """
    mirror = reached_mirror(SilentProgress())
    lacking = {name: to_build(needed(SCENARIOS[name].options), mirror) for name in (MAIN, EXTERNAL)}
    return EXTERNAL if mirror and lacking[MAIN] and not lacking[EXTERNAL] else MAIN
