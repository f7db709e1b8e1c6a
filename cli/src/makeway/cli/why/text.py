"""Why a pod was preempted, or is pending, as a person reads it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord, QuotaDecision
from makeway.bus.messages import EvictionOrder, Victim
from makeway.cli.history.story import Story, word
from makeway.cli.offline.simulate_text import by_number, pod_lines, spared
from makeway.cli.units import (
    awaited_lines,
    closed_text,
    compared_text,
    decided_text,
    in_units,
    names_of,
    place_text,
    unit_text,
    who_text,
    with_priorities,
)
from makeway.cli.why.explanation import Explanation
from makeway.cli.why.group_text import decided as group_decided
from makeway.core.k8s.objects import PodCondition
from makeway.core.k8s.times import api_time
from makeway.core.queues.amounts import texts_of
from makeway.core.text import counted, first_few
from makeway.planner.offline.results import Counterfactual, Pending

_SHOWN = 5
"""Other candidates that are shown."""

_VICTIMS = 20
"""Victims of an order that are shown of those that ended alike; the form `json` has all."""

_LEFT = "no plan: it is left to kube-scheduler's own preemption"

_OF_A_GROUP = (
    "who preempts for a pod of a group, unless groups.preemptors of the policy is hold:",
    "up to 1.36 kube-scheduler's own preemption, for each pod by itself,",
    "from 1.37 makeway, for the group as a whole: see the condition of the PodGroup",
)


def preempted(story: Story, victim: Victim) -> Iterator[str]:
    """Say who took a pod's place, by which rule, and what else there was to choose from."""
    order = story.order
    if order is None:
        return
    became = _became(story, victim)
    yield f"{victim.namespace}/{victim.name} was chosen by order {order.order_id} on {victim.node}: {became}"
    yield from _chosen_for(order, victim)
    if victim.unit:
        together = [one for one in order.victims if one.unit == victim.unit]
        yield f"  goes:  with {unit_text(victim.unit, together)}, whole or not at all"
    if victim.closes is not None:
        yield f"  goes:  {victim.closes.text}"
    yield from _chosen_with(order.victims, victim)
    yield from decided(story.decision, order.decision_id)


def group_preempted(story: Story, pods: Sequence[Victim]) -> Iterator[str]:
    """Say the same of a group that goes whole. `pods`: those of the order, one at least."""
    order = story.order
    if order is None:
        return
    results = Counter(story.became(pod)[0] for pod in pods)
    became = ", ".join(f"{counted(count, 'pod')} {result}" for result, count in results.items())
    yield f"{unit_text(pods[0].unit, pods)}, chosen by order {order.order_id}: {became}"
    yield from _chosen_for(order, pods[0])
    yield from _chosen_with(order.victims, pods[0])
    yield from decided(story.decision, order.decision_id)


def _chosen_for(order: EvictionOrder, victim: Victim) -> Iterator[str]:
    lowered = ", whose maximum was lowered" if order.kind == "quota" else ""
    yield f"  for:   {who_text(order)}{lowered}"
    yield _rule(victim)


def _rule(victim: Victim) -> str:
    return f"  rule:  {victim.rule} (its priority is {victim.priority}){_violating(victim)}"


def _violating(victim: Victim) -> str:
    return "; it violates a PDB" if victim.pdb_violating else ""


def _chosen_with(victims: Sequence[Victim], victim: Victim) -> Iterator[str]:
    others = [one for one in victims if one.uid != victim.uid and (one.unit != victim.unit or not one.unit)]
    if others:
        yield f"  with:  {_some(others)}"


def preempted_by_another(comparison: Comparison, victim: Victim) -> Iterator[str]:
    """Say for whom another than makeway preempted a pod, and what makeway would have done instead."""
    preemptor = comparison.preemptor
    yield (
        f"{victim.namespace}/{victim.name} was preempted on {victim.node} {api_time(comparison.planned_at)} "
        f"by {preemptor.scheduler_name}, not by makeway"
    )
    shared = (
        "; another pod preempted there at the same time, so it may be that one" if comparison.shared else ""
    )
    yield f"  for:   {compared_text(comparison)} (priority {preemptor.priority}){shared}"
    yield _rule(victim)
    yield from _chosen_with(comparison.evicted, victim)
    yield from _instead(comparison)


def served_by_another(comparison: Comparison) -> Iterator[str]:
    """Say whom another than makeway preempted for a pod, and what makeway would have done instead."""
    preemptor, theirs = comparison.preemptor, comparison.default_preemption
    where = f" on {place_text(theirs)}" if theirs else ""
    yield (
        f"  {preemptor.scheduler_name} made room for {compared_text(comparison)} "
        f"(priority {preemptor.priority}){where} {api_time(comparison.planned_at)}, not makeway"
    )
    shared = "; another pod preempted there at the same time, so some may be its" if comparison.shared else ""
    victims = comparison.evicted
    shown = victims[:_SHOWN] if comparison.group else victims
    for victim in shown:
        name = f"{victim.namespace}/{victim.name} (priority {victim.priority})"
        yield f"  - {name}: {victim.rule}{_violating(victim)}{shared}"
    if len(victims) > len(shown):
        yield f"  and {counted(len(victims) - len(shown), 'victim')} more"
    yield from _instead(comparison)


def _instead(comparison: Comparison) -> Iterator[str]:
    """Say what makeway would have done instead of another's preemption."""
    ours = comparison.makeway
    if comparison.refusal is not None:
        yield f"  makeway would have refused: {comparison.refusal.reason}: {comparison.refusal.message}"
    elif ours is not None and comparison.result != "same":
        by = f" by {comparison.decided_by}" if comparison.decided_by else ""
        taken = _some(ours.victims) if ours.victims else "no pod"
        yield f"  makeway would have taken {taken} on {place_text(ours)}: {comparison.result}{by}"
    elif ours is not None:
        yield "  makeway would have chosen the same"


def of_order(story: Story) -> Iterator[str]:
    """Say what an order is for, whom it takes, how it ended, and why it was decided so."""
    order = story.order
    if order is None:
        return
    where = f" on {order.node}" if order.node else ""
    if order.members:
        where = f" on {counted(len({member.node for member in order.members}), 'node')}"
    purpose = "lowered quota of" if order.kind == "quota" else "room for"
    yield f"order {order.order_id} of {api_time(order.created_at)}: {purpose} {who_text(order)}{where}"
    for unit, pods in in_units(order.victims):
        if unit:
            yield f"  evicts {unit_text(unit, pods)}"
    yield from _victims(story, order)
    yield from awaited_lines(order.awaited)
    if order.void is not None:
        yield f"  not stored: {order.void.reason}: {order.void.message}"
    elif story.outcome is None:
        yield f"  {_open(story, order)}"
    else:
        why = f": {story.outcome.message}" if story.outcome.message else ""
        yield f"  {story.outcome.result} {api_time(story.outcome.finished_at)}{why}"
    yield from decided(story.decision, order.decision_id)


def _open(story: Story, order: EvictionOrder) -> str:
    """Say till when an order without an outcome may begin, or that it was not carried out in time."""
    until = api_time(order.not_after)
    if story.overdue:
        return (
            f"no outcome by {until}: no evictor carried it out in time; `makeway check` says whether one runs"
        )
    return f"no outcome yet; nothing of it begins after {until}"


def _victims(story: Story, order: EvictionOrder) -> Iterator[str]:
    """Say what became of an order's victims; of many that ended alike only the first are named."""
    alike: Counter[str] = Counter()
    for victim in order.victims:
        end, _ = story.became(victim)
        alike[end] += 1
        if alike[end] <= _VICTIMS:
            on = f" on {victim.node}" if order.members else ""
            who = f"{victim.namespace}/{victim.name}{on} (priority {victim.priority})"
            rule = f"{victim.rule}{_violating(victim)}{closed_text(victim)}"
            yield f"  - {who}: {rule}; {_became(story, victim)}"
    for end, count in alike.items():
        if count > _VICTIMS:
            yield f"  and {counted(count - _VICTIMS, 'victim')} more: {end}"


def of_decision(record: DecisionRecord, story: Story | None) -> Iterator[str]:
    """Say what was decided, and what became of it. `story`: of the order that carries it out, if one does."""
    if story is not None:
        yield from of_order(story)
        return
    said = "refused" if record.status == "refused" else "no order came of it"
    if record.candidates and not record.victims:
        said = f"no running pod is evicted for room on {record.nominated_node}"
    if record.mode == "observe":
        said = "mode observe: it was not to be carried out"
    yield f"decision {record.decision_id} of {api_time(record.at)}: for {who_text(record)}: {said}"
    if record.diagnosis is not None:
        yield f"  {record.diagnosis.reason}: {record.diagnosis.message}"
        if record.diagnosis.node_reasons:
            yield f"  nodes: {by_number(record.diagnosis.node_reasons)}"
        if record.diagnosis.retry_at is not None:
            yield f"  planned again {api_time(record.diagnosis.retry_at)}"
    units = in_units(record.victims)
    for _, pods in units[:_VICTIMS]:
        on = f" on {pods[0].node}" if record.group_plan is not None else ""
        name = f"{names_of(pods)[0]}{on} (priority {pods[0].priority})"
        yield f"  - {name}: {pods[0].rule}{_violating(pods[0])}{closed_text(pods[0])}"
    if len(units) > _VICTIMS:
        yield f"  and {len(units) - _VICTIMS} more"
    if record.group_plan is not None:
        yield from group_decided(record, record.group_plan)
    elif record.diagnosis is None:
        yield from decided(record, record.decision_id)


def decided(record: DecisionRecord | None, decision_id: str) -> Iterator[str]:
    """Say what a decision chose from, and what rules kept others."""
    if record is None:
        if decision_id:
            yield f"  decision {decision_id} is no longer kept, so what else was considered is not known"
        return
    at = f"  decision {record.decision_id} of {api_time(record.at)}"
    if record.quota is not None:
        yield from _quota(at, record.queue, record.quota)
        return
    if record.group_plan is not None:
        yield f"{at}:"
        yield from group_decided(record, record.group_plan)
        return
    if not record.candidates:
        yield f"{at}: {record.unmodelled_total} nodes that only the scheduler's filters could judge"
        return
    best, *rest = record.candidates
    if record.candidates_total == 1:
        yield f"{at}: {best.node} was the only node on which that made room"
    else:
        by = f", by {decided_text(best, rest)}" if best.decided_by else ""
        yield f"{at}: {best.node} was best of {record.candidates_total} nodes{by}"
    yield from awaited_lines(best.awaited)
    shown = rest[:_SHOWN]
    for one in shown:
        yield f"  instead: {one.node} without {with_priorities(one.victims) or 'further victims'}"
    if more := record.candidates_total - len(shown) - 1:
        yield f"  and {counted(more, 'node')} more"
    for one in record.candidates:
        yield from (f"  spared on {one.node}: {text}" for text in map(spared, one.spared))


def _quota(at: str, queue: str, quota: QuotaDecision) -> Iterator[str]:
    """Say what a queue had too much, which leaves were to free it, and what kept pods."""
    used = f"{queue} used {texts_of(quota.usage)}" if quota.usage else queue
    yield f"{at}: {used}, with a maximum of {texts_of(quota.max)}"
    if not quota.need:
        yield "  nothing had to be freed"
        return
    yield f"  freed: {texts_of(quota.freed) if quota.freed else 'nothing'} of {texts_of(quota.need)} too much"
    shares = [share for share in quota.shares if share.queue != queue]
    for share in shares[:_SHOWN]:
        yield f"  share: {share.queue} {texts_of(share.amounts)}"
    if len(shares) > _SHOWN:
        yield f"  and {counted(len(shares) - _SHOWN, 'queue')} more"
    if quota.short:
        yield f"  short: {texts_of(quota.short)}"
    for obstacle in quota.blocked:
        yield f"  blocked: {obstacle.reason}: {obstacle.message}"


def waiting(told: Explanation, found: Pending) -> Iterator[str]:
    """Say why a pod is pending, and what would unblock it."""
    answer, story, last, group = found.answer, told.story, told.last_decision, told.group
    held, delayed, leaving, unplanned = told.held, told.delayed, told.leaving, told.unplanned
    name = f"{answer.namespace}/{answer.name} (priority {answer.preemptor.priority})"
    if story is not None and story.outcome is None and not story.overdue:
        yield f"{name} is pending: room is being made for it"
        yield from held_order(told.waits_for)
        yield from of_order(story)
        return
    if story is not None and story.order is not None and leaving:
        must = "has" if leaving == 1 else "have"
        where = f"leave {story.order.node}" if story.order.node else "leave for its group"
        yield f"{name} is pending: {counted(leaving, 'evicted pod')} {must} to {where} first"
        yield from of_order(story)
        return
    yield f"{name} is pending"
    by_itself = ""
    if held is not None:
        yield f"  its queue holds it: {held.reason}: {held.message or 'no message'}"
    if delayed:
        yield f"  {delayed}"
    if group:
        yield f"  a pod of PodGroup {answer.namespace}/{group}"
        yield from (f"  {text}" for text in _OF_A_GROUP)
        unplanned, by_itself = unplanned or _LEFT, ", as a pod by itself"
    if unplanned:
        yield f"  its scheduler had {unplanned}"
    elif told.condition and held is None and not delayed:
        yield f"  its scheduler says: {told.condition}"
    if last is not None:
        room = f"room on {last.nominated_node or 'unmodelled nodes'}"
        what = last.diagnosis.reason if last.diagnosis else room
        if last.diagnosis and answer.result != "refused":
            what += f": {last.diagnosis.message}"
        yield f"  last decision: {last.decision_id} of {api_time(last.at)}: {what}"
    elif answer.result == "preempts" and not (group or held or delayed or unplanned):
        yield "  nothing was decided about it: makeway was not asked, or no planner answers (`makeway check`)"
    yield from _in_vain(story)
    yield f"planned again now{by_itself}:"
    yield from pod_lines(answer)
    if told.brake and answer.result == "preempts":
        yield f"  {told.brake}: no pod is evicted until it is released (`makeway mode --release`)"
    yield from _unblocked(found)


def held_order(waits_for: PodCondition | None) -> Iterator[str]:
    """Say what holds the order that makes room for a pod, and till when; nothing where nothing does."""
    if waits_for is not None:
        yield f"  its order waits: {waits_for.reason}: {waits_for.message or 'no message'}"


def _in_vain(story: Story | None) -> Iterator[str]:
    """Say how the last order ended, where it made no room, and which victims could not be evicted."""
    if story is None or story.order is None:
        return
    what = f"node {story.order.node}" if story.order.node else "its group"
    if story.overdue:
        yield f"  last order: {story.order.order_id} for {what}: {_open(story, story.order)}"
    outcome = story.outcome
    if outcome is None or outcome.result == "succeeded":
        return
    yield (
        f"  last order: {outcome.order_id} for {what}, {outcome.result} "
        f"{api_time(outcome.finished_at)}: {outcome.message or outcome.reason}"
    )
    for victim in outcome.victims:
        if victim.result in ("failed", "spared"):
            text = victim.message or victim.reason
            end = word(victim.result)
            yield f"  - {victim.namespace}/{victim.name} {end}, and left out for a while: {text}"


def _unblocked(found: Pending) -> Iterator[str]:
    if found.answer.result != "refused":
        return
    if not found.unblocked_by:
        yield "  no single change was found that would unblock it"
        return
    yield "would unblock it, each by itself, checked by planning again:"
    for one in found.unblocked_by:
        yield f"  - {one.change.text}; {_then(one)}"


def _then(one: Counterfactual) -> str:
    victims = one.victims
    if one.change.kind == "node" and not victims:
        return "then it fits there"
    if not victims:
        return f"then it fits on {one.node}"
    return f"then room is made on {one.node} without {_some(victims)}"


def _some(victims: Sequence[Victim]) -> str:
    """Name the first few pods, and say how many others there are."""
    return first_few(names_of(victims), _SHOWN)


def _became(story: Story, victim: Victim) -> str:
    """Say what became of a victim, and when it was deleted."""
    end, at = story.became(victim)
    return f"{end} {api_time(at)}" if at else end
