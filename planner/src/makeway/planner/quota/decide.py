"""Which pods have to go for one queue's quota, from the snapshot: the core's answer with names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from makeway.bus.decisions import DecisionRecord, Obstacle, QueueShare, QuotaDecision
from makeway.bus.messages import Victim
from makeway.core.policy.document import Policy
from makeway.core.policy.mode import MODES, Mode, more_restrictive
from makeway.core.policy.rates import rates_of
from makeway.core.queues.amounts import NO_AMOUNTS, over, written
from makeway.core.queues.quota import QuotaObstacle, QuotaPlan, planning_quota
from makeway.core.queues.quota_exemption import EXEMPT_NAMESPACE, QUOTA
from makeway.core.queues.tree import QueueTree
from makeway.core.queues.victims import CHUNK, Steps, Veto, run_to_end, selecting
from makeway.core.text import as_name, counted
from makeway.core.unit import Unit
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.plan.naming import as_victim
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.snapshot.state import Snapshot

NAMESPACE_MODE = "namespace-mode"
"""The rule that keeps pods of a namespace whose mode is more restrictive than another's."""

NOT_EVICTED: Final = "not-evicted"
"""The rule that leaves out the pods that an earlier order of the same process could not evict."""

VICTIMS_PER_ORDER: Final = "victims-per-order"
"""The rule that keeps a group that goes whole and has more pods than the policy lets go in one order."""

NO_QUEUE_GATE: Final = "no-queue-gate"
"""The rule that keeps pods whose scheduler profile has no queue gate: nothing would hold their successors."""

GONE: Final = "gone"
"""The rule that leaves out pods that have left while a plan was made."""

MOST_RECORDED: Final = 1000
"""Victims that a decision record names, about 300 kB; it has the amounts of all of them."""

_SHOWN: Final = 3
"""Pods whose cause is told."""


@dataclass(frozen=True, slots=True)
class QuotaAnswer:
    """A plan, and its victims as an order names them."""

    plan: QuotaPlan
    victims: tuple[Victim, ...]

    def described(self) -> QuotaDecision:
        """Write down the numbers for a decision record."""
        plan = self.plan
        return QuotaDecision(
            result=plan.result,
            usage=written(plan.usage),
            max=dict(plan.maximum),
            need=written(plan.need),
            shares=tuple(QueueShare(queue=path, amounts=written(share)) for path, share in plan.shares),
            freed=written(plan.freed),
            short=written(plan.short),
            blocked=obstacles_of(plan.blocked),
        )


def obstacles_of(blocked: Iterable[QuotaObstacle]) -> tuple[Obstacle, ...]:
    """Write down what kept pods from going."""
    return tuple(Obstacle(reason=one.reason, message=one.message) for one in blocked)


def mode_of(policy: Policy, own: Mode) -> Mode:
    """Return how far quotas go: as far as they may for the pods of any namespace; `own`: at the most."""
    return more_restrictive(own, max((policy.mode, *policy.modes().values()), key=MODES.index))


def answering(snapshot: Snapshot, tree: QueueTree, inputs: QuotaInputs) -> Steps[QuotaAnswer]:
    """Decide which pods go so that a queue comes down to a maximum; pause after every few thousand pods.

    The snapshot may change meanwhile. What queues held and which pods were in them is taken at the beginning;
    a caller that acts on the answer asks `still_needed` first.

    Of `inputs`: neither `refused` nor `stuck` are taken, but where too little can be had without them, those
    that are stuck may be; pods that are being deleted count as leaving in any case; namespaces with a more
    restrictive `mode` keep their pods; pods of schedulers that are not among `gates` stay, since what their
    owners make anew would run at once. Raises KeyError where the queue is not in the tree. O(queues + pods
    below · (log + depth)).
    """
    queue, leaving = tree.at(inputs.queue), inputs.leaving
    usage, members = snapshot.queues.without(leaving)
    surplus = snapshot.queues.surplus(leaving)

    def without(left_out: Mapping[str, str]) -> Steps[QuotaPlan]:
        ungated: dict[str, str] = {}
        plan = yield from planning_quota(
            tree,
            usage,
            queue,
            members,
            maximum=inputs.maximum,
            began_need=inputs.began_need,
            running=inputs.running,
            veto=_veto(snapshot, inputs, left_out, ungated),
            surplus=surplus,
        )
        return _with_schedulers(_with_causes(plan, left_out), ungated)

    refused = {uid: why for uid, why in inputs.refused.items() if uid in snapshot.pods}
    stuck = {uid: why for uid, why in inputs.stuck.items() if uid in snapshot.pods}
    plan = yield from without({**refused, **stuck})
    if plan.short and stuck:
        plan = yield from without(refused)
    violations = _Allowances(snapshot, leaving)
    victims: list[Victim] = []
    pods = 0
    for unit in plan.victims:
        pods += unit.size
        if pods >= CHUNK:
            pods = 0
            yield
        victims += _victims(snapshot, unit, violations.violates)
    return QuotaAnswer(plan, tuple(victims))


def first_part(victims: tuple[Victim, ...], most: int) -> tuple[Victim, ...]:
    """Return those of some victims that one order takes: `most` at the most, but a group that goes whole all.

    Groups that go whole come first, and no other pod beside them: should one of them stay, those that would
    go in addition have not gone by then. O(victims).
    """
    units: dict[str, list[Victim]] = {}
    for victim in victims:
        if victim.unit:
            units.setdefault(victim.unit, []).append(victim)
    if not units:
        return victims[:most]
    chosen: list[Victim] = []
    for members in units.values():
        if len(chosen) + len(members) <= most:
            chosen += members
    return tuple(chosen or next(iter(units.values())))


def still_needed(
    snapshot: Snapshot, tree: QueueTree, inputs: QuotaInputs, victims: tuple[Victim, ...]
) -> tuple[Victim, ...]:
    """Return those of some victims that have to go still, as the snapshot is now. Without a pause.

    Asked where the snapshot has changed since they were chosen: usage may have fallen, or a guarantee been
    reached. All of them, where nothing has. O(queues + victims · log).
    """
    leaving = inputs.leaving
    usage, _ = snapshot.queues.without(leaving)
    queue = tree.at(inputs.queue)
    need = over(usage.of(queue.number), inputs.maximum)
    if not need:
        return ()
    chosen = snapshot.queues.members_of(victim.uid for victim in victims if victim.uid not in leaving)
    veto = _veto(snapshot, inputs, inputs.refused, {})
    steps = selecting(
        tree,
        usage,
        queue,
        need,
        lambda leaf: chosen.get(leaf, ()),
        running=inputs.running,
        veto=veto,
        surplus=snapshot.queues.surplus(leaving),
    )
    _, found = run_to_end(steps)
    violations = _Allowances(snapshot, leaving)
    return tuple(one for unit in found.victims for one in _victims(snapshot, unit, violations.violates))


def is_down(snapshot: Snapshot, path: str, leaving: Collection[str]) -> bool:
    """Report whether a queue is at or below its maximum once these pods have left. O(queues)."""
    tree = snapshot.queues.tree
    if tree is None or (queue := tree.find(path)) is None:
        return False
    usage, _ = snapshot.queues.without(leaving)
    return not over(usage.of(queue.number), queue.maximum)


def counted_on(
    snapshot: Snapshot, tree: QueueTree, inputs: QuotaInputs, plan: QuotaPlan, left: Set[str]
) -> int:
    """Return how many pods a plan counts as gone, and rests on, that are there still and may stay.

    `left`: those that orders have removed. Where pods are short, pods of the topmost queue with a guarantee
    count: that may be what keeps others. O(pods that leave).
    """
    queues, queue = snapshot.queues, tree.at(inputs.queue)
    held = queues.staying.of(queue.number) if queues.staying is not None else NO_AMOUNTS
    if not over(held, inputs.maximum):
        return 0
    guarding = [one for one in tree.line(queue.number) if one.guaranteed] if plan.short else []
    top = guarding[-1] if guarding else queue
    leaves = {uid: queues.leaf_of(uid) for uid in inputs.leaving - left}
    there = (queues.record(uid) for uid, leaf in leaves.items() if top.number <= leaf < top.below)
    return sum(not pod.terminating for pod in there)


def _veto(
    snapshot: Snapshot, inputs: QuotaInputs, left_out: Mapping[str, str], ungated: dict[str, str]
) -> Veto:
    """Return what forbids to take a pod now, besides its queue.

    `ungated` takes in the pods that no queue gate holds, by UID, with their schedulers.
    """
    policy, allowed = snapshot.exemptions.policy, _Allowances(snapshot, inputs.leaving)
    mode, gates = inputs.mode, inputs.gates
    # A group's pods are of one namespace.
    largest = min(policy.limits.victims_per_order, rates_of(policy.limits, snapshot.bound_pods).together)

    def veto(unit: Unit) -> str:
        if not left_out.keys().isdisjoint(unit.uids):
            return NOT_EVICTED
        if any(uid not in snapshot.queues for uid in unit.uids):
            return GONE
        if unit.pods and unit.size > largest:
            return VICTIMS_PER_ORDER
        pods = [snapshot.queues.record(uid) for uid in unit.uids]
        namespace = pods[0].namespace
        if gates is not None and any(pod.scheduler_name not in gates for pod in pods):
            ungated.update({pod.uid: pod.scheduler_name for pod in pods if pod.scheduler_name not in gates})
            return NO_QUEUE_GATE
        if more_restrictive(mode, policy.mode_for(namespace)) != mode:
            return NAMESPACE_MODE
        if namespace in snapshot.exemptions.queue_exempt_namespaces:
            return EXEMPT_NAMESPACE
        if policy.has_hard_budgets(namespace) and (
            namespace in snapshot.undecided or allowed.violates_any(unit.uids)
        ):
            return HARD_BUDGET
        return ""

    return veto


def record_of(
    inputs: QuotaInputs,
    found: QuotaAnswer,
    snapshot: Snapshot,
    *,
    cluster_uid: str,
    planner: str,
    duration_seconds: float = 0.0,
) -> DecisionRecord:
    """Write a decision about a quota down."""
    return DecisionRecord(
        decision_id=inputs.decision_id,
        request_id=inputs.decision_id,
        kind="quota",
        cluster_uid=cluster_uid,
        planner=planner,
        at=inputs.at,
        mode=inputs.mode,
        status="candidates" if found.victims else "refused",
        snapshot_revision=snapshot.revision,
        policy_revision=snapshot.exemptions.revision,
        queue=inputs.queue,
        victims=found.victims[:MOST_RECORDED],
        pdb_violations=sum(victim.pdb_violating for victim in found.victims),
        plan_duration_microseconds=int(duration_seconds * 1_000_000),
        quota=found.described(),
    )


def _with_causes(plan: QuotaPlan, left_out: Mapping[str, str]) -> QuotaPlan:
    """Name the pods that are left out, and why, in place of the rule's count."""
    if not left_out or plan.result == "notNeeded":
        return plan
    causes = [left_out[uid] for uid in sorted(left_out)]
    told = "; ".join(causes[:_SHOWN])
    more = f"; and {len(causes) - _SHOWN} more" if len(causes) > _SHOWN else ""
    obstacle = QuotaObstacle(NOT_EVICTED, f"{counted(len(causes), 'pod')} could not be evicted: {told}{more}")
    return replace(plan, blocked=(*(one for one in plan.blocked if one.reason != NOT_EVICTED), obstacle))


def _with_schedulers(plan: QuotaPlan, ungated: Mapping[str, str]) -> QuotaPlan:
    """Name the schedulers of the pods whose successors nothing holds, in place of the rule's count."""
    if not any(one.reason == NO_QUEUE_GATE for one in plan.blocked):
        return plan
    pods = Counter(ungated.values())
    told = ", ".join(
        f"{counted(pods[name], 'pod')} of scheduler {as_name(name)}" for name in sorted(pods)[:_SHOWN]
    )
    more = f" and {counted(len(pods) - _SHOWN, 'scheduler')} more" if len(pods) > _SHOWN else ""
    message = f"{told}{more} stay: no queue gate would hold the pods made anew for them"
    obstacle = QuotaObstacle(NO_QUEUE_GATE, message)
    return replace(
        plan, blocked=tuple(obstacle if one.reason == NO_QUEUE_GATE else one for one in plan.blocked)
    )


def _victims(snapshot: Snapshot, unit: Unit, violates: Callable[[str], bool]) -> list[Victim]:
    """Return the pods of a unit as an order names them, but those that have left meanwhile."""
    pods = [snapshot.queues.record(uid) for uid in unit.uids if uid in snapshot.queues]
    name = unit.uid if unit.pods else ""
    return [as_victim(pod, QUOTA, pdb_violating=violates(pod.uid), unit=name) for pod in pods]


class _Allowances:
    """What disruption budgets allow still, as pods are taken one after the other."""

    def __init__(self, snapshot: Snapshot, leaving: Iterable[str]) -> None:
        self._snapshot = snapshot
        self._taken = debits(snapshot, leaving)

    def violates_any(self, uids: Sequence[str]) -> bool:
        """Take pods that go together; report whether budgets do not allow them all: none is counted then."""
        if len(uids) == 1:
            return self.violates(uids[0])
        before = dict(self._taken)
        if any(self.violates(uid) for uid in uids):
            self._taken = before
            return True
        return False

    def violates(self, uid: str) -> bool:
        """Take a pod; report whether a budget does not allow it. One that is not allowed is not counted."""
        budgets, held = self._snapshot.budgets, self._snapshot.budget_set(uid)
        keys = budgets.charged(held)
        left = {key: budgets.allows(key) - self._taken.get(key, 0) for key in keys}
        if budgets.kept(held, left):
            return True
        for key in keys:
            self._taken[key] = self._taken.get(key, 0) + 1
        return False
