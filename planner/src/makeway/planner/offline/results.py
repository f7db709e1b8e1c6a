"""What a simulation says: a document of values, in the fields of a decision record."""

from __future__ import annotations

from typing import Literal

import msgspec

from makeway.bus.messages import NearNode, Preemptor, RankedCandidate, Refusal, Time, Victim
from makeway.core.policy.mode import Mode
from makeway.planner.offline.quotas import SimulatedQuota

Result = Literal["fits", "preempts", "refused"]


class SimulatedPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would become of one pod. No field is ever left out.

    result: "fits": there is room without preemption, and no pod goes; "preempts": room is made on
        `nominated_node`; "refused": neither, and `diagnosis` says why.
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


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods in the order in which they were given; each finds the cluster as the ones before it left it.

    quotas: what would come of the quotas that are lowered, where no pods were given.
    """

    at: Time
    nodes: int
    policy_revision: str
    queues_revision: str
    pods: tuple[SimulatedPod, ...]
    quotas: tuple[SimulatedQuota, ...]
    warnings: tuple[str, ...]
