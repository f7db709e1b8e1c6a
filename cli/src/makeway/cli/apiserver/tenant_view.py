"""What a tenant is shown of an answer: names of its own namespace, and counts of all others. Pure.

An answer is put together anew from what a tenant may have; names of pods of other namespaces, in fields or in
sentences, are not part of it. See docs/visibility.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec.structs import replace

from makeway.bus.comparison import Choice, Comparison
from makeway.bus.messages import (
    Awaited,
    DecisionRecord,
    EvictionOrder,
    GroupDecision,
    NearNode,
    OrderedGroup,
    Outcome,
    Preemptor,
    RankedCandidate,
    Refusal,
    Spared,
    Victim,
    VictimOutcome,
)
from makeway.bus.queue_report import QueueReport, QueueState, QuotaProcess
from makeway.cli.text import HIDDEN
from makeway.cli.why.explanation import Explanation
from makeway.cli.why.story import Story
from makeway.core.queues.tree import DEFAULT_PATH, ROOT, UNPLACED_PATH
from makeway.planner.offline.results import (
    Counterfactual,
    Pending,
    SimulatedGroup,
    SimulatedPod,
    SimulationReport,
)

_STAND_IN: Final = "hidden"
_NAMED: Final = re.compile(r"(?<![\w./-])([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/([A-Za-z0-9][-\w.]*)")
"""NAMESPACE/NAME: a key with a domain, such as nvidia.com/gpu, is none."""

_ANSWER: Final = re.compile(r"\d{3} \w+(?=: )")
"""How a refusal of the API server begins: its status and reason."""

_OWN_CHANGES: Final = ("wait", "preemption-policy", "priority", "request", "toleration", "node", "queue-max")
"""Changes that concern the pod, its queue or a further node; others name what is not the tenant's."""

T = TypeVar("T", Victim, VictimOutcome)


class TenantView:
    """One answer as a tenant of `namespace` may see it; hidden pods keep a stand-in for their UID."""

    def __init__(self, namespace: str) -> None:
        self._own = namespace
        self._hidden: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a sentence without names of other namespaces."""

        def shown(found: re.Match[str]) -> str:
            if found[1] == self._own or (found[1].isdecimal() and found[2].isdecimal()):
                return found[0]
            return HIDDEN

        return _NAMED.sub(shown, text)

    def explanation(self, answer: Explanation) -> Explanation:
        """Return what is known of a pod of the namespace. What its conditions say the tenant reads anyway."""
        return Explanation(
            state=answer.state,
            namespace=answer.namespace,
            name=answer.name,
            uid=answer.uid,
            taken_by=tuple(self._story(one) for one in answer.taken_by),
            made_room=tuple(self._story(one) for one in answer.made_room),
            pending=self._pending(answer.pending) if answer.pending is not None else None,
            last_decision=self._decision(answer.last_decision) if answer.last_decision else None,
            held=answer.held,
            waits_for=answer.waits_for,
            unplanned=answer.unplanned,
            condition=answer.condition,
            group=answer.group,
            delayed=answer.delayed,
            leaving=answer.leaving,
            brake="the brake is set" if answer.brake else "",
            preempted_by_others=tuple(self._comparison(one) for one in answer.preempted_by_others),
            served_by_others=tuple(self._comparison(one) for one in answer.served_by_others),
        )

    def simulation(self, report: SimulationReport) -> SimulationReport:
        """Return what would become of pods of the namespace, without what names objects of the cluster."""
        return replace(
            report,
            groups=tuple(self._group(one) for one in report.groups),
            pods=tuple(self._simulated(one) for one in report.pods),
            quotas=(),
            warnings=(),
        )

    def queues(self, report: QueueReport, path: str) -> QueueReport:
        """Return the queues from `path` down that pods of the namespace may use, and those above them."""
        usable = {one.path for one in report.queues if self._may_use(one, report)}
        shown = {above for one in usable for above in _upwards(one)}
        found = tuple(
            self._queue(one)
            for one in report.queues
            if one.path in shown and (one.path == path or one.path.startswith(f"{path}."))
        )
        return replace(report, misplaced=0, unknown=not found, queues=found)

    def _may_use(self, queue: QueueState, report: QueueReport) -> bool:
        """As `core.queues.placement`: where pods without a queue are held, who has queues has no others."""
        if queue.namespaces:
            return self._own in queue.namespaces
        own = f"{ROOT}.{self._own}"
        has_queues = any(
            (one.path == own != DEFAULT_PATH) or self._own in one.namespaces for one in report.queues
        )
        holds = any(one.path == UNPLACED_PATH for one in report.queues)
        return not (holds and has_queues) or f"{queue.path}.".startswith(f"{own}.")

    def _queue(self, queue: QueueState) -> QueueState:
        last, process = queue.last, queue.process
        return replace(
            queue,
            namespaces=(self._own,) if queue.namespaces else (),
            process=self._process(process) if process else None,
            last=replace(last, message=self.text(last.message), blocked=()) if last else None,
        )

    def _process(self, process: QuotaProcess) -> QuotaProcess:
        """Of a wait the sentence may name namespaces: those braked, or one that a cap is about."""
        wait = process.waiting
        shown = replace(wait, message=f"it waits ({wait.reason})") if wait else None
        return replace(process, order_id="", waits_for=(), waiting=shown)

    def _uid(self, uid: str) -> str:
        return self._hidden.setdefault(uid, f"{_STAND_IN}-{len(self._hidden) + 1}")

    def _pod(self, pod: T) -> T:
        if pod.namespace == self._own:
            return pod
        return replace(pod, namespace=HIDDEN, name=HIDDEN, uid=self._uid(pod.uid))

    def _victims(self, victims: Iterable[Victim]) -> tuple[Victim, ...]:
        return tuple(map(self._victim, victims))

    def _victim(self, victim: Victim) -> Victim:
        """Of another namespace's pod neither its group nor what rules say of it: that may name its queue."""
        if victim.namespace == self._own:
            return replace(victim, detail=self.text(victim.detail), unit=self.text(victim.unit))
        return replace(self._pod(victim), detail="", unit="", closes=None)

    def _preemptor(self, pod: Preemptor | None) -> Preemptor | None:
        if pod is None or pod.namespace == self._own:
            return pod
        return replace(pod, namespace=HIDDEN, name=HIDDEN, uid=self._uid(pod.uid))

    def _about(self, group: OrderedGroup | None) -> OrderedGroup | None:
        if group is None or group.namespace == self._own:
            return group
        return replace(group, namespace=HIDDEN, name=HIDDEN, uid=self._uid(group.uid))

    def _group_plan(self, plan: GroupDecision | None) -> GroupDecision | None:
        return replace(plan, awaited=self._awaited(plan.awaited)) if plan is not None else None

    def _queue_of(self, room_for: Preemptor | OrderedGroup | None, queue: str) -> str:
        """Return the queue of the tenant's own, or one whose quota was lowered; others name their tenants."""
        return queue if room_for is None or room_for.namespace == self._own else ""

    def _awaited(self, awaited: Iterable[Awaited]) -> tuple[Awaited, ...]:
        return tuple(one if one.namespace == self._own else self._of_others(one) for one in awaited)

    def _of_others(self, awaited: Awaited) -> Awaited:
        if awaited.order_id:
            return Awaited(uid=self._uid(awaited.uid), order_id=_STAND_IN)
        uid = self._uid(awaited.uid)
        return Awaited(uid=uid, namespace=HIDDEN, name=HIDDEN, until=awaited.until)

    def _refusal(self, refusal: Refusal | None) -> Refusal | None:
        if refusal is None:
            return None
        return replace(
            refusal,
            message=self.text(refusal.message),
            node_reasons={self.text(reason): count for reason, count in refusal.node_reasons.items()},
            depends_on=tuple(one for one in refusal.depends_on if one.namespace == self._own),
        )

    def _candidates(self, candidates: Iterable[RankedCandidate]) -> tuple[RankedCandidate, ...]:
        return tuple(
            replace(
                one,
                victims=self._victims(one.victims),
                awaited=self._awaited(one.awaited),
                spared=self._spared(one.spared),
            )
            for one in candidates
        )

    def _nearest(self, nodes: Iterable[NearNode]) -> tuple[NearNode, ...]:
        return tuple(replace(one, spared=self._spared(one.spared)) for one in nodes)

    def _spared(self, pods: Iterable[Spared]) -> tuple[Spared, ...]:
        own = (pod for pod in pods if pod.namespace == self._own)
        return tuple(replace(pod, detail=self.text(pod.detail)) for pod in own)

    def _story(self, story: Story) -> Story:
        return Story(
            order=self._order(story.order),
            outcome=self._outcome(story.outcome) if story.outcome is not None else None,
            decision=self._decision(story.decision) if story.decision is not None else None,
        )

    def _order(self, order: EvictionOrder) -> EvictionOrder:
        return replace(
            order,
            writer=_STAND_IN,
            preemptor=self._preemptor(order.preemptor),
            group=self._about(order.group),
            members=tuple(one for one in order.members if one.namespace == self._own),
            queue=self._queue_of(order.room_for, order.queue),
            victims=self._victims(order.victims),
            awaited=self._awaited(order.awaited),
            nominations_to_clear=(),
        )

    def _outcome(self, outcome: Outcome) -> Outcome:
        """Of another namespace's pod only status and reason of an answer: the API server's words name it.

        The message of the whole repeats what was said of one of the pods, or of one that was only read.
        """
        own = all(one.namespace == self._own for one in outcome.victims)
        return replace(
            outcome,
            evictor=_STAND_IN,
            preemptor_uid="",
            message=self.text(outcome.message) if own else "",
            victims=tuple(map(self._became, outcome.victims)),
            nominations_cleared=(),
            rollback=None,
        )

    def _became(self, victim: VictimOutcome) -> VictimOutcome:
        if victim.namespace == self._own:
            return replace(victim, message=self.text(victim.message))
        answer = _ANSWER.match(victim.message)
        return replace(self._pod(victim), message=answer[0] if answer else "")

    def _decision(self, record: DecisionRecord) -> DecisionRecord:
        quota = record.quota
        about = record.group if record.kind == "group" else record.preemptor
        return replace(
            record,
            planner=_STAND_IN,
            recording="",
            preemptor=self._preemptor(record.preemptor),
            group=self._about(record.group),
            group_plan=self._group_plan(record.group_plan),
            queue=self._queue_of(about, record.queue),
            victims=self._victims(record.victims),
            candidates=self._candidates(record.candidates),
            diagnosis=self._refusal(record.diagnosis),
            nearest=self._nearest(record.nearest),
            quota=replace(quota, shares=(), blocked=()) if quota is not None else None,
        )

    def _choice(self, choice: Choice | None) -> Choice | None:
        return replace(choice, victims=self._victims(choice.victims)) if choice is not None else None

    def _comparison(self, one: Comparison) -> Comparison:
        preemptor = self._preemptor(one.preemptor)
        return replace(
            one,
            planner=_STAND_IN,
            preemptor=preemptor or one.preemptor,
            queue=self._queue_of(one.preemptor, one.queue),
            makeway=self._choice(one.makeway),
            default_preemption=self._choice(one.default_preemption),
            refusal=self._refusal(one.refusal),
            note=self.text(one.note),
        )

    def _pending(self, found: Pending) -> Pending:
        changed = tuple(one for one in found.unblocked_by if self._is_told(one))
        return Pending(
            answer=self._simulated(found.answer),
            unblocked_by=tuple(replace(one, victims=self._victims(one.victims)) for one in changed),
        )

    def _is_told(self, one: Counterfactual) -> bool:
        own = f"PodDisruptionBudget {self._own}/"
        return all(change.kind in _OWN_CHANGES or change.object.startswith(own) for change in one.changes)

    def _simulated(self, pod: SimulatedPod) -> SimulatedPod:
        return replace(
            pod,
            victims=self._victims(pod.victims),
            candidates=self._candidates(pod.candidates),
            diagnosis=self._refusal(pod.diagnosis),
            nearest=self._nearest(pod.nearest),
            nodes_excluded={self.text(reason): count for reason, count in pod.nodes_excluded.items()},
            warnings=tuple(map(self.text, pod.warnings)),
        )

    def _group(self, group: SimulatedGroup) -> SimulatedGroup:
        return replace(
            group,
            victims=self._victims(group.victims),
            diagnosis=self._refusal(group.diagnosis),
            warnings=tuple(map(self.text, group.warnings)),
        )


def _upwards(path: str) -> Iterable[str]:
    """Return a queue's path and those of all above it."""
    parts = path.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))
