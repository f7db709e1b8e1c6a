"""Question and answer about a plan for a pod: bare JSON under `API_VERSION`."""

from __future__ import annotations

from typing import Literal

import msgspec

from makeway.bus.messages import Awaited, Int64, Message, Placement, StreamPosition, Text, Time
from makeway.core.policy.mode import Mode

PlanStatus = Literal["candidates", "refused", "notSynced"]


class Dependency(Message, frozen=True):
    """An object that a refusal depends on: when it changes, trying again may help."""

    kind: Text
    name: Text
    namespace: str = ""


class Refusal(Message, frozen=True):
    """Why no preemption helps.

    `reason` is a constant in CamelCase; `message` is a sentence with the numbers; `node_reasons`
    counts nodes by what stood in the way. `retry_at` is the earliest time at which time alone
    changes the answer.
    """

    reason: Text
    message: Text
    node_reasons: dict[str, Int64] = msgspec.field(default_factory=dict)
    retry_at: Time | None = None
    depends_on: tuple[Dependency, ...] = ()


class NodeSelection(Message, frozen=True):
    """A set of nodes, as its members or as all but them, whichever is shorter."""

    names: tuple[str, ...] = ()
    all_but: bool = False


class Profile(Message, frozen=True):
    """The scheduler profile's filter plugins, in order, and what arguments they were given (raw JSON)."""

    name: Text
    filters: tuple[str, ...] = ()
    filter_args: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class PlanRequest(Message, frozen=True):
    """The plugin's question: what would have to go for this pod to fit?

    `nodes` are those that removing pods may help. `nominations` and `assumed` are
    complete sets, no deltas, because another planner may answer the next request. `pod` is the
    v1.Pod as the scheduler sees it. `seen` is how far the scheduler's own watches have come, so that a
    planner knows whether it is behind: by resource (pods, nodes, poddisruptionbudgets) the highest
    resourceVersion of an object that the scheduler has been told of. `outcomes_read`: how far it has read the
    outcomes of orders; the planner waits a while until it has read as far. `ahead`: asked while the
    scheduler's filters still run, for the nodes that pods alike were asked for; if the pod fits, nothing
    comes of it.
    `ignore_columns`: judge no node by its columns; every node of `nodes` with a removable pod comes back as
    `unmodelled`.
    """

    api_version: Text
    request_id: Text
    cluster_uid: Text
    mode: Mode
    timeout_milliseconds: Int64
    max_candidates: Int64
    profile: Profile
    pod: msgspec.Raw
    nodes: NodeSelection
    nominations: tuple[Placement, ...] = ()
    assumed: tuple[Placement, ...] = ()
    seen: dict[str, Int64] = msgspec.field(default_factory=dict)
    ahead: bool = False
    ignore_columns: bool = False
    outcomes_read: StreamPosition | None = None


class Removable(Message, frozen=True):
    """A pod that policy allows to be removed for this preemptor; `victim` where the plan needs it gone.

    `unit`: the group with which it is evicted whole or not at all; its pods are side by side. `node`:
    where it runs, if that is another node than the candidate's. `lost_work`: what its eviction loses, in
    thousandths of seconds of a pod of the preemptor's size, where the policy ranks by that.
    """

    uid: Text
    rule: Text
    victim: bool = False
    pdb_violating: bool = False
    unit: str = ""
    node: str = ""
    lost_work: Int64 = 0


class Candidate(Message, frozen=True):
    """A node that would do.

    `removable` lists every pod that may be removed there, in the order in which they are offered
    back: PDB-violating first, then the more important first. `awaited` are already leaving.
    `max_victims`: whatever verification finds, no more than so many are evicted; 0: no limit.
    """

    node: Text
    removable: tuple[Removable, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    pdb_violations: Int64 = 0
    max_victims: Int64 = 0


class PlanAnswer(Message, frozen=True):
    """What the planner's answers about pods and about groups have alike."""

    api_version: Text
    request_id: Text
    planner: Text
    status: PlanStatus
    snapshot_revision: Int64 = 0
    policy_revision: str = ""
    decision_id: str = ""


class PlanReply(PlanAnswer, frozen=True):
    """The planner's answer.

    `candidates` come best first, at most `max_candidates`. `unmodelled` are nodes on which the
    modelled constraints need no victim, so that something only the scheduler's filters know is
    in the way; `unmodelled_total` counts them before the list was cut. `sample`, with some refusals: one
    of the nodes that the columns rule out, another one with each request, with all that may be removed
    there, so that the scheduler's own filters can be asked whether the refusal is right. `offer`: what a
    commit may name, in mode enforce; see `makeway.bus.commit`.
    """

    candidates: tuple[Candidate, ...] = ()
    unmodelled: tuple[Candidate, ...] = ()
    unmodelled_total: Int64 = 0
    refusal: Refusal | None = None
    sample: Candidate | None = None
    offer: str = ""
