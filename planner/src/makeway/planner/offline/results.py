"""What a simulation says, or the search for what would unblock a pod: documents of values.

In the fields of a decision record. Importing them loads nothing that plans.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from makeway.bus.decisions import NearNode, QuotaDecision, RankedCandidate
from makeway.bus.messages import Awaited, Preemptor, Time, Victim
from makeway.bus.plan import GroupPrice, Refusal
from makeway.core.policy.mode import Mode

Result = Literal["fits", "waits", "preempts", "refused"]


class SimulatedPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would become of one pod. No field is ever left out.

    result: "fits": there is room without preemption, and no pod goes; "waits": pods that leave anyway make
        the room on `nominated_node`, the first candidate's `awaited`; "preempts": room is made there;
        "refused": none of these, and `diagnosis` says why.
    node: where the pod is taken to be from then on; None where it was refused. Of several nodes that fit, the
        one that keeps most CPU and memory free.
    nominated_node: the node on which room is made; None where no preemption happens.
    victims: the pods that it takes, in the order of reprieve.
    candidates: nodes on which room could be made, best first, the first of them chosen; all of them, or the
        best few. `candidates_total` counts them all.
    nodes_fitting, nodes_potential: nodes with room as they are; nodes that removing pods may help.
        `nodes_excluded`: the others, by what rules them out whichever pods go.
    mode: what the policy says of the pod's namespace. Only in `enforce` would this happen.
    """

    namespace: str
    name: str
    result: Result
    preemptor: Preemptor
    queue: str
    mode: Mode
    node: str | None
    nominated_node: str | None
    victims: tuple[Victim, ...]
    pdb_violations: int
    candidates: tuple[RankedCandidate, ...]
    candidates_total: int
    diagnosis: Refusal | None
    spared_by_rule: dict[str, int]
    nearest: tuple[NearNode, ...]
    nodes_total: int
    nodes_fitting: int
    nodes_potential: int
    nodes_excluded: dict[str, int]
    warnings: tuple[str, ...]


class QuotaVictim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that would go. `queue`: the leaf in which it counts. No field is ever left out.

    `unit`: the group with which it is evicted whole or not at all; empty where there is none.
    """

    namespace: str
    name: str
    uid: str
    node: str
    priority: int
    queue: str = ""
    rule: str
    pdb_violating: bool
    unit: str


class SimulatedQuota(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would come of one queue's lowered quota. No field is ever left out.

    after_seconds: how long after the change; queues come in the order in which they would be enforced.
    mode: how far the policy lets quotas go; only in `enforce` would this happen.
    message: the numbers, and what stands in the way, in a sentence.
    victims: in the order in which they are chosen.
    notes: how long the caps make it take, and what a dump does not show.
    """

    queue: str
    after_seconds: int
    mode: Mode
    message: str
    quota: QuotaDecision
    victims: tuple[QuotaVictim, ...]
    notes: tuple[str, ...]


class SimulatedMember(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod of a simulated group, and its node from then on; None where it gets none."""

    name: str
    node: str | None


class SimulatedGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would become of a PodGroup and its pods. No field is ever left out.

    result: "fits": so many as must run together have room, and no pod goes; "waits": pods that leave anyway,
        the `awaited`, make the room; "preempts": room is made for them; "refused": none of these, and
        `diagnosis` says why.
    priority: that of the group, which holds for all its pods.
    victims: all pods that it takes, on all nodes. `price`: what they cost; None without any.
    domains: the value of each label within which the members stay.
    left_to_verification: constraints that were not looked at.
    mode: what the policy says of the group's namespace. Only in `enforce` would this happen.
    """

    namespace: str
    name: str
    result: Result
    priority: int
    min_count: int
    mode: Mode
    members: tuple[SimulatedMember, ...]
    victims: tuple[Victim, ...]
    awaited: tuple[Awaited, ...]
    price: GroupPrice | None
    domains: dict[str, str]
    diagnosis: Refusal | None
    nodes_total: int
    nodes_potential: int
    left_to_verification: tuple[str, ...]
    warnings: tuple[str, ...]


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods in the order in which they were given; each finds the cluster as the ones before it left it.

    groups: PodGroups, each with its pods; they come before the other pods.
    quotas: what would come of the quotas that are lowered, where no pods were given.
    """

    at: Time
    nodes: int
    policy_revision: str
    queues_revision: str
    groups: tuple[SimulatedGroup, ...]
    pods: tuple[SimulatedPod, ...]
    quotas: tuple[SimulatedQuota, ...]
    warnings: tuple[str, ...]


ChangeKind = Literal[
    "wait",
    "preemption-policy",
    "disruption-budget",
    "queue-max",
    "priority",
    "request",
    "uncordon",
    "node",
]


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that would have to be otherwise, in the terms of the object that says it.

    kind: what sort of thing. text: for a person.
    object: what says it: `PodDisruptionBudget shop/web`, `queue root.ml`, `pod`, `node n1`.
    field: which part of it. now, then: its value, and the nearest one that helps.
    """

    kind: ChangeKind
    text: str
    object: str
    field: str
    now: Any
    then: Any


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change that unblocks a pod, as small as possible; and what would happen then.

    node: where the pod would be. victims: who would leave for it; none where it would simply fit.
    at: when, where that is not now.
    """

    change: Change
    node: str
    victims: tuple[Victim, ...]
    at: Time | None


class Pending(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pending pod. answer: what would happen to it now, as of `makeway simulate`.

    unblocked_by: changes that would unblock it, each sufficient by itself; none where it is not refused.
    """

    answer: SimulatedPod
    unblocked_by: tuple[Counterfactual, ...]
