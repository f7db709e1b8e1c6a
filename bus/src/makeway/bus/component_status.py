"""What every component answers when it is asked how it is: who it is, and what it goes by.

Bare JSON over request and reply. The question goes to all at once and has no content; every planner, evictor
and scheduler that is connected answers for itself.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from makeway.bus.messages import Int64, Message, Text, Time
from makeway.core.policy.mode import Mode

Component = Literal["planner", "evictor", "scheduler", "nominator", "shadow"]


class ComponentStatus(Message, frozen=True):
    """One running component.

    `mode`, `namespace_modes`: what is in force in it, after its own argument `own_mode` and all that it was
    told. `revision`: of the control state in force in it, 0 without one. `policy_revision`: of the policy
    that it read, or was told of; empty without one. `told_policy_revision`: of the policy behind the control
    state, where it reads the policy too. `leading`: it is the planner that answers, the nominator that works,
    or an evictor, all of which act; schedulers do not say. A shadow holds nothing back and says mode
    `enforce`. `trouble`: what stands in the way of its work; empty where nothing does. `brake`: what is
    braked, as it read the brake itself: `everywhere`, or names of namespaces; empty where nothing is. `caps`:
    of an evictor, what was evicted lately and what the policy allows; `breaker`: what its breaker stops, and
    why; empty where it is closed. `signatures`: their mode first, then what it signs with, how many messages
    failed, and what is wrong with its keys. `kubernetes`: of a scheduler or a shadow, the minor version of
    kube-scheduler that it is, such as 1.37. `loops`: of the leading planner, which owners' pods are preempted
    for others again and again; empty where none are. `queue_gates`: of a scheduler, the names (pods'
    `schedulerName`) of its profiles whose pods the queue gate holds where their queue is full.
    """

    api_version: Text
    component: Component
    identity: Text
    version: Text
    at: Time
    mode: Mode
    own_mode: Mode
    cluster_uid: str = ""
    namespace_modes: dict[str, Mode] = field(default_factory=dict)
    revision: Int64 = 0
    policy_revision: str = ""
    told_policy_revision: str = ""
    queues_revision: str = ""
    leading: bool = False
    trouble: str = ""
    brake: str = ""
    caps: str = ""
    breaker: str = ""
    signatures: str = ""
    kubernetes: str = ""
    loops: str = ""
    queue_gates: tuple[str, ...] = ()
