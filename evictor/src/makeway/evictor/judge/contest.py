"""Victims that are written while they are evicted: when a write names the UID alone. Pure.

A write names the version of the pod that was judged, so that what was written since is looked at first. Who
may write a pod could keep it alive that way, by writing to it faster than it is read. So the version is asked
for only until the pod, read anew each time, has been judged often enough; its identity is asked for always.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import Membership
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.preemption import UNREAD, Party

SAME: Final = 2
"""After so many conflicts, with a pod that is judged by the same facts each time, the UID is enough."""

CHANGING: Final = 5
"""After so many whatever changes, as long as the pod is judged as one that goes: what a rule reads, such as
the label of its queue, can be written as fast as an annotation that none reads."""


@dataclass(frozen=True)
class Basis:
    """What of a pod a judgement rests on. `party`: what rules of who may preempt whom look at.

    `facts`: what rules read of its labels, annotations and owners, with its priority. `group`: what its
    groups mean for it; None where they were not asked.
    """

    uid: str
    node: str
    phase: str
    facts: PodFacts
    group: Membership | None
    party: Party


def basis_of(pod: Pod, facts: PodFacts, group: Membership | None, party: Party = UNREAD) -> Basis:
    """Return what the judgement of a pod by these facts rests on."""
    return Basis(pod.metadata.uid, pod.spec.node_name or "", pod.status.phase or "", facts, group, party)


@dataclass(frozen=True)
class Contest:
    """The conflicts that writes to one victim have met.

    `same`: those since the facts that it is judged by have last changed. `all`: all of them; a victim that is
    judged to stay meets no more, since that ends its order.
    """

    basis: Basis | None = None
    same: int = 0
    all: int = 0

    def judged_by(self, basis: Basis | None) -> Contest:
        """Return this after the victim was read and judged as one that goes."""
        return self if basis == self.basis else replace(self, basis=basis, same=0)

    def after_conflict(self) -> Contest:
        """Return this after a write that named the version of the pod that was judged."""
        return replace(self, same=self.same + 1, all=self.all + 1)

    @property
    def by_uid(self) -> bool:
        """Whether the next write names the UID alone."""
        return self.same >= SAME or self.all >= CHANGING
