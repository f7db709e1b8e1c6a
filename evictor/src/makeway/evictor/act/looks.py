"""Whether an order is wanted still, and what its victims are judged to be, by what was read just now.

A look at a group with its members and nodes serves all who ask within a second (`gang.reads_last`). A look at
a preemptor and its node serves the last victim as well that was marked beside it: most orders need one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
import structlog

from makeway.bus.messages import Victim
from makeway.core.daemonset.rule import rules_for
from makeway.core.k8s.objects import Node, Pod, PriorityClass
from makeway.core.k8s.pod_groups import GroupKey, group_of, membership
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.preemption import Preemption
from makeway.core.policy.rules import RECLAIM, PreemptorFacts, Rule
from makeway.core.queues.quota_exemption import QuotaExemption
from makeway.core.queues.quota_order import NOT_IN_QUEUE, NOT_LIMITED
from makeway.evictor.act.parties import Parties
from makeway.evictor.act.reads import Reads
from makeway.evictor.act.unit_work import UnitWork
from makeway.evictor.act.work import CHECK_LASTS, OrderWork
from makeway.evictor.judge import decide, gang
from makeway.evictor.judge.groups import POD_GROUP
from makeway.evictor.judge.verdicts import Cancelled, Delete, Epoch, Exempt, Proceed, Stop, VictimVerdict
from makeway.evictor.retry import TemporaryError
from makeway.runtime.shared_reads import LONG_PATIENCE_SECONDS, SharedReads

_NOBODY = PreemptorFacts(0)
"""A quota has no preemptor."""

_log = structlog.get_logger()


def _begun(_: Pod, __: PodFacts) -> str:
    """Return why the rest of a unit goes that was reclaimed when its first pod was deleted."""
    return "it goes with the rest of its unit"


class Looks:
    """One order's."""

    def __init__(self, work: OrderWork, reads: Reads, units: UnitWork) -> None:
        self._work = work
        self._parts = work.parts
        self._reads = reads
        self._units = units
        self._parties = Parties(work, reads)
        self._open_at = work.clock.now()
        """When the order was last known to have no outcome: it was looked up just before."""
        self._shared = SharedReads(self._look, LONG_PATIENCE_SECONDS)
        self._looked_at: datetime | None = None
        self._lasts = gang.reads_last(len(work.order.members)) if work.terms.barrier else None
        self._seen: tuple[Mapping[str, Pod | None], Mapping[str, Node | None]] = {}, {}  # members, nodes
        self._units_in_queue = frozenset[str]()
        self.read_at: datetime | None = None
        """When all victims were read last."""
        self.victims_last = gang.reads_last(len(work.order.victims))

    # --------------------------------------------------------------------------- is the order wanted

    async def wanted(self, *, lasts: timedelta | None = None, anew: bool = False) -> None:
        """Stop everything at once unless the order is wanted.

        What is left of units goes whoever waits for it. `lasts`: how old a look may be that serves. `anew`:
        by one that begins now.
        """
        lasts, at = lasts or self._lasts, self._looked_at
        if lasts is not None and at is not None and not anew and self._work.clock.now() - at <= lasts:
            return
        found = await self._shared(self._work.order.order_id)
        if not isinstance(found, Proceed):
            self._work.halt(found)

    async def _look(self, _: str) -> Proceed | Stop:
        work = self._work
        asked_at, finishing = work.clock.now(), work.is_finishing
        found = await self._ended_elsewhere() or (
            Proceed(work.preemptor) if finishing else await self._still_wanted()
        )
        if isinstance(found, Proceed):
            work.checked_at = max(work.checked_at, asked_at)
            work.preemptor, self._looked_at = found.preemptor, asked_at
        elif finishing == work.is_finishing:
            work.stop_for(found)
        return found

    async def _ended_elsewhere(self) -> Cancelled | None:
        """Whether the order has its outcome: another evictor may have it where this one was stopped for long.

        Its preemptor may be nominated to the same node again, for a later order with other victims. An order
        that is carried out at once is not asked about a second time.
        """
        asked_at = self._work.clock.now()
        if asked_at - self._open_at <= CHECK_LASTS:
            return None
        ended = await self._parts.records.outcome(self._work.order.order_id)
        if ended is None:
            self._open_at = asked_at
            return None
        return Cancelled("ended-elsewhere", f"evictor {ended.evictor} has ended the order: {ended.result}")

    async def _still_wanted(self) -> Proceed | Stop:
        match self._work.terms.wanted_by:
            case "pod":
                return await self._by_its_pod()
            case "group":
                return await self._by_its_group()
            case "queue":
                return await self._by_its_queue()

    async def _by_its_pod(self) -> Proceed | Stop:
        """The order against fence, preemptor and node as they are now; the brake is read beside them."""
        order, cluster = self._work.order, self._parts.cluster
        preemptor = order.preemptor
        assert preemptor is not None  # noqa: S101 - `admit` refused the order otherwise
        epoch, pod, node, _ = await asyncio.gather(
            self._epoch(),
            cluster.get_pod(preemptor.namespace, preemptor.name),
            cluster.get_node(order.node),
            cluster.read_brake(),
        )
        priority_class: PriorityClass | None = None
        if pod is not None:
            await self._reads.daemonset(pod)
            if order.is_external and pod.spec.priority_class_name:
                priority_class = await cluster.get_priority_class(pod.spec.priority_class_name)
        wanted = decide.still_wanted(
            order,
            stored_at=self._work.stored_at,
            epoch=epoch,
            preemptor=pod,
            node=node,
            now=self._work.clock.now(),
            daemonsets=self._reads.daemonsets,
            priority_class=priority_class,
        )
        return await self._parties.preempting(wanted, [pod])

    async def _by_its_group(self) -> Proceed | Stop:
        """The order against its fence, its PodGroup, members and nodes; the brake is read too."""
        order, reads = self._work.order, self._reads
        group = order.group
        assert group is not None  # noqa: S101 - `admit` refused the order otherwise
        if (stop := await self._fenced()) is not None:
            return stop
        key = GroupKey(group.namespace, group.name)
        await reads.groups_of([key])
        record = reads.groups.get(key) if reads.group_api.version else None
        self._seen = await asyncio.gather(
            reads.members(group.namespace), reads.nodes(gang.nodes_named(order))
        )
        if (unwanted := gang.unwanted(order, record, *self._seen)) is not None:
            return unwanted
        found = membership(key, reads.groups.get)
        if found.unknown:
            return Cancelled("group-gone", found.unknown)
        wanted = Proceed(PreemptorFacts(found.priority or 0, group.namespace))
        labels = None if record is None else record.labels
        return await self._parties.preempting(wanted, self._seen[0].values(), labels)

    async def _by_its_queue(self) -> Proceed | Stop:
        """The order against its fence and the queues; the brake is read beside it."""
        if (stop := await self._fenced()) is not None:
            return stop
        refused = self._parts.queue_guard.refusal_of(self._work.order)
        if refused is not None:
            _log.warning("quota_order_refused", reason=refused.reason, message=refused.message)
            return refused
        if stale := self._parts.queue_guard.stale():
            raise TemporaryError("unavailable", f"the queues cannot be read: {stale}")
        return Proceed(_NOBODY)

    async def _fenced(self) -> Stop | None:
        epoch, _ = await asyncio.gather(self._epoch(), self._parts.cluster.read_brake())
        work = self._work
        return decide.fenced(work.order, stored_at=work.stored_at, epoch=epoch, now=work.clock.now())

    async def _epoch(self) -> Epoch | None:
        """What the fence holds: a Lease's transitions; a counter on the bus without leader election."""
        fence = self._work.order.fence
        if fence.kind == "lease":
            return await self._parts.cluster.lease_epoch(fence.namespace, fence.name)
        return Epoch(await self._parts.records.epoch(fence.name))

    # ---------------------------------------------------------------------------- what victims are

    async def know(self, pods: Iterable[Pod | None]) -> None:
        """Read what victims are judged by besides themselves: classes, or which groups are in the queue."""
        there = [pod for pod in pods if pod is not None]
        if self._work.terms.judged_by == "rules":
            await self._reads.priority_classes(pod.spec.priority_class_name or "" for pod in there)
            return
        await self._reads.labels_of(pod.metadata.namespace for pod in there)
        order = self._work.order
        unit_of = {victim.uid: victim.unit for victim in order.victims if victim.unit}
        self._units_in_queue |= {
            unit_of[pod.metadata.uid]
            for pod in there
            if pod.metadata.uid in unit_of and self._parts.queue_guard.bar_of(order, pod) is None
        }

    def judge(self, victim: Victim, pod: Pod | None) -> VictimVerdict:
        """Judge a victim by the rules or queues in force now, and what has just been read."""
        work, daemonsets = self._work, self._reads.daemonsets
        group = self._units.membership(victim, pod)
        if work.terms.judged_by == "queues":
            policy = self._parts.mode_guard.policy
            bar = partial(self._bar_of, victim.unit)
            return decide.judge_for_quota(victim, pod, policy.protection, bar, daemonsets, group=group)
        begun = self._units.has_begun(victim.unit)
        if not begun and (changed := self._parties.unread(work.preemptor, pod)) is not None:
            return changed
        if pod is not None and self._is_own(victim, pod):
            # The name says so; a plan may have been made before its owner made a group of that name anew.
            return Exempt(POD_GROUP, "the order names a pod of its own group as a victim")
        verdict = decide.judge(
            work.order,
            victim,
            pod,
            preemptor=work.preemptor,
            rules=self._rules(victim, work.preemptor),
            now=work.clock.now(),
            daemonsets=daemonsets,
            group=group,
            party=self._parties.of(pod),
            reclaimed=_begun if begun and victim.rule == RECLAIM else self._parties.reclaimed,
        )
        if not isinstance(verdict, Delete) or pod is None:
            return verdict
        return gang.closes_nothing(victim, pod, work.order, *self._seen) or verdict

    def judge_as_written(self, victim: Victim) -> Delete | None:
        """Judge a victim by the facts that its order carries; None where it has to be read first."""
        preemptor = self._work.order.preemptor
        if preemptor is None or self._parties.table:
            return None
        facts = PreemptorFacts(preemptor.priority, preemptor.namespace)
        now, rules = self._work.clock.now(), self._rules(victim, facts)
        return decide.judge_as_written(self._work.order, victim, preemptor=facts, rules=rules, now=now)

    def judge_all(self, pods: Sequence[Pod | None]) -> list[Delete | None]:
        """Judge all victims by their pods as they were just read; None for those that do not go."""
        work = self._work
        self._units.find_begun(zip(work.order.victims, pods, strict=True))
        verdicts = {
            victim.uid: self.judge(victim, pod) for victim, pod in zip(work.order.victims, pods, strict=True)
        }
        for uid, verdict in verdicts.items():
            if not isinstance(verdict, Delete):
                work.progress[uid].verdict = verdict
        if (refused := decide.first_exempt(verdicts)) is not None:
            work.halt(refused)
        return [verdict if isinstance(verdict, Delete) else None for verdict in verdicts.values()]

    def are_young(self) -> bool:
        """Report whether all victims were read so lately that a delete may rest on it."""
        return self.age() <= self.victims_last

    def age(self) -> timedelta:
        """Return how long ago all victims were read."""
        return timedelta.max if self.read_at is None else self._work.clock.now() - self.read_at

    def _rules(self, victim: Victim, preemptor: PreemptorFacts) -> Sequence[Rule]:
        """Return the rules of a victim. What is left of a unit that has begun goes whoever preempts."""
        policy = self._parts.mode_guard.policy
        if self._units.has_begun(victim.unit):
            policy = msgspec.structs.replace(policy, preemption=Preemption())
        return rules_for(
            preemptor,
            "" if victim.unit else self._work.order.node,
            policy,
            self._reads.classes,
            self._reads.record,
            own_namespace=self._parts.mode_guard.own_namespace,
        )

    def _is_own(self, victim: Victim, pod: Pod) -> bool:
        """Report whether a victim is of the group that the order makes room for."""
        group = self._work.order.group
        return (
            self._work.terms.wanted_by == "group"
            and group is not None
            and (pod.metadata.namespace, group_of(pod)) == (group.namespace, group.name)
            and pod.metadata.uid == victim.uid
        )

    def _bar_of(self, unit: str, pod: Pod) -> QuotaExemption | None:
        """What in the queues keeps a pod; none of a group that has begun or has a pod in the queue.

        Nor may a rule of who may preempt whom keep it, but of a group that has begun.
        """
        found, begun = self._parts.queue_guard.bar_of(self._work.order, pod), self._units.has_begun(unit)
        goes_with_others = unit in self._units_in_queue or begun
        if found is not None and not (goes_with_others and found.rule in (NOT_IN_QUEUE, NOT_LIMITED)):
            return found
        return None if begun else self._parties.kept_from_quotas(pod)
