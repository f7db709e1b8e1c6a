"""A pod group: a training job of 8 makes room; one victim may not be deleted, and no pod goes for nothing."""

from __future__ import annotations

import asyncio
import time

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.dev.audit_log import AuditEvent, AuditLog
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import ANSWER_SECONDS, EVICTOR, KUBELET, Stage
from makeway.dev.demo.timeline import PodSeen, when
from makeway.dev.options import ClusterOptions

OPTIONS = ClusterOptions(
    scheduler_feature_gates=(("GenericWorkload", True),),
    apiserver_arguments=(
        "--feature-gates=GenericWorkload=true",
        f"--runtime-config={manifests.POD_GROUPS}=true",
    ),
    admission_policies=True,
    fallback=False,
    small=True,
    controllers=False,
)
"""The gate with which kube-scheduler places a group as one, and the API that groups are of. Where a plan is
late, the group waits for it: the evictor alone evicts."""

BIND_BOUND_SECONDS = 20.0
"""Within this all members are bound after the first is created, though the first order comes to nothing."""

_MEMBERS = 8
_SCHEDULER = "system:serviceaccount:makeway-system:makeway-scheduler"
_API_PRIORITY = 5000


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await fill(stage)
    orders = await make_room(stage)
    await audit(stage, orders)


async def fill(stage: Stage) -> None:
    """Fill six nodes with pods of different sizes and priorities; one of them may not be deleted."""
    narrator = stage.narrator
    narrator.chapter("Six full nodes")
    await stage.create(
        [
            manifests.priority_class("scavenger", manifests.SCAVENGER_PRIORITY),
            manifests.priority_class("batch", manifests.BATCH_PRIORITY),
            manifests.priority_class("serving", _API_PRIORITY),
            manifests.priority_class("urgent", manifests.URGENT_PRIORITY),
            *(manifests.node(f"node-{letter}") for letter in "abcdef"),
        ]
    )
    for number in range(1, 7):
        node = f"node-{'aabbcc'[number - 1]}"
        await stage.create(manifests.pods("crunch", [number], "batch", node=node))
    await stage.create(
        [
            *manifests.pods("web", (1, 2, 3, 4), "batch", "1", node="node-d"),
            *manifests.pods("ledger", [1], "scavenger", node="node-e"),
            *manifests.pods("report", [1], "scavenger", node="node-e"),
            *manifests.pods("api", (1, 2), "serving", node="node-f"),
            *manifests.never_delete("ledger"),
        ]
    )
    await stage.running({"crunch": 6, "web": 4, "ledger": 1, "report": 1, "api": 2})
    await stage.until_undeletable("ledger")
    narrator.cluster(stage.timeline.living())
    narrator.say("Every CPU is taken. By priority:")
    narrator.say(f"  ledger and report {manifests.SCAVENGER_PRIORITY}, 2 CPUs each")
    narrator.say(f"  crunch {manifests.BATCH_PRIORITY}, 2 CPUs each; web {manifests.BATCH_PRIORITY}, 1 each")
    narrator.say(f"  api {_API_PRIORITY}, 2 CPUs each")
    narrator.say("An admission policy refuses to delete ledger, which no planner can know.")


async def make_room(stage: Stage) -> list[tuple[EvictionOrder, Outcome]]:
    """Create the job, tell how all of it comes to its nodes, and return its orders with their ends."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter(f"A training job of {_MEMBERS}: all of it runs, or none")
    group_uid, _ = await stage.create_one(_pod_group("train", _MEMBERS))
    made = [await stage.create_one(_member(number)) for number in range(1, _MEMBERS + 1)]
    members, sent = [uid for uid, _ in made], made[0][1]
    narrator.begin(
        sent,
        f"PodGroup train, minCount {_MEMBERS}, and its pods: 2 CPUs each,"
        f" priority {manifests.URGENT_PRIORITY}",
    )
    bound = [await stage.bound(uid, f"train-{number}") for number, uid in enumerate(members, start=1)]
    orders = await _ended(stage, group_uid)
    for decision in timeline.decisions(group_uid):
        if any(order.decision_id == decision.decision_id for order, _ in orders):
            narrator.group_decision(decision)
    since = 0.0
    for order, outcome in orders:
        _tell(stage, order, outcome, since)
        since = when(outcome)
    (first, refused), (last, _) = orders[0], orders[-1]
    cleared = _cleared(stage, first)
    taken_back = f"no member is nominated any more; {len(first.members)} nominations were taken back"
    narrator.carried_out(cleared, first, taken_back)
    at = max(pod.at for pod in bound)
    narrator.bound(at, last, f"all {_MEMBERS} members are bound")
    narrator.timetable()

    names = {victim.name for victim in first.victims}
    narrator.claim(
        "the first order would have taken ledger-1 too, and was refused for it",
        len(orders) == 2 and "ledger-1" in names and refused.result == "failed",
    )
    narrator.claim(
        f"the nominations of all {_MEMBERS} members were taken back",
        cleared is not None
        and refused.rollback is not None
        and set(refused.rollback.nominations_reverted) == {member.uid for member in first.members},
    )
    narrator.claim(
        "the second order leaves out ledger-1 alone: two of web go in its place",
        {victim.name for victim in last.victims} - names
        == {victim.name for victim in last.victims if victim.name.startswith("web-")}
        and names - {victim.name for victim in last.victims} == {"ledger-1"}
        and len(last.victims) == len(first.victims) + 1,
    )
    where = {member.uid: member.node for member in last.members}
    narrator.claim(
        f"all {_MEMBERS} were bound where it says, {at - sent:.2f} s after they were made"
        f" (promised: {BIND_BOUND_SECONDS:g} s)",
        {pod.uid: pod.node for pod in bound} == where and at - sent <= BIND_BOUND_SECONDS,
    )
    running = {pod.name: pod for pod in timeline.living() if pod.running}
    narrator.claim(
        "api, of higher priority, runs on, though it would have been fewer pods",
        {"api-1", "api-2"} <= set(running),
    )
    narrator.claim(
        "ledger-1 runs on, and its mark as a disruption target was taken off",
        "ledger-1" in running and _unmarked(stage, running["ledger-1"]),
    )
    return orders


def _tell(stage: Stage, order: EvictionOrder, outcome: Outcome, since: float) -> None:
    """Put an order into the timetable. `since`: when the one before had ended."""
    timeline, narrator = stage.timeline, stage.narrator
    nominated = _nominated(stage, order, since)
    narrator.nominated(nominated, order, f"all {len(order.members)} members are nominated")
    narrator.order(order)
    if outcome.result == "succeeded":
        victims = {victim.uid for victim in order.victims}
        leaving = timeline.first(lambda pod: pod.uid in victims and (pod.leaving or pod.deleted))
        first = f"the first of {len(victims)} victims leaves"
        narrator.carried_out(leaving.at if leaving else None, order, first)
    narrator.outcome(outcome)


async def _ended(stage: Stage, group_uid: str) -> list[tuple[EvictionOrder, Outcome]]:
    """Wait until an order of the group succeeded; return all. The watch of pods may be ahead of it."""
    timeline = stage.timeline

    def ask() -> list[tuple[EvictionOrder, Outcome]] | None:
        orders = timeline.orders(group_uid)
        ended = [(order, end) for order in orders if (end := timeline.outcome(order.order_id)) is not None]
        done = len(ended) == len(orders) and ended and ended[-1][1].result == "succeeded"
        return ended if done else None

    return await timeline.until("an order for train that succeeded", ask, ANSWER_SECONDS)


def _nominated(stage: Stage, order: EvictionOrder, since: float) -> float | None:
    """Return when the last member was seen with the order's nomination; None where one never was."""
    seen: dict[str, float] = {}
    for pod in stage.timeline.pods:
        if pod.at > since and pod.nominated_node:
            seen.setdefault(f"{pod.uid} {pod.nominated_node}", pod.at)
    wanted = {f"{member.uid} {member.node}" for member in order.members}
    return max(seen[one] for one in wanted) if wanted <= set(seen) else None


def _cleared(stage: Stage, order: EvictionOrder) -> float | None:
    """Return when the last member was seen without the order's nomination; None where one never was."""
    at = _nominated(stage, order, 0.0) or when(order)
    seen: dict[str, float] = {}
    for pod in stage.timeline.pods:
        if pod.at >= at and pod.nominated_node == "":
            seen.setdefault(pod.uid, pod.at)
    members = [member.uid for member in order.members]
    return max(seen[uid] for uid in members) if set(members) <= set(seen) else None


def _unmarked(stage: Stage, pod: PodSeen) -> bool:
    marked = stage.timeline.first(lambda one: one.uid == pod.uid and one.disruption_target)
    return marked is not None and not pod.disruption_target


async def audit(stage: Stage, orders: list[tuple[EvictionOrder, Outcome]]) -> None:
    """Read from the API server's audit log what was tried, what was deleted, and who bound whom, and when."""
    narrator = stage.narrator
    narrator.chapter("What the API server's audit log says")
    (_, refused), (last, done) = orders[0], orders[-1]
    events = await _logged(stage)
    trials = [event for event in events if event.dry_run and event.user == EVICTOR]
    for number, (order, outcome) in enumerate(orders, start=1):
        tried = _of(trials, order, outcome)
        no = ", ".join(sorted(event.name for event in tried if not _would_do(event)))
        narrator.say(
            f"order {number}: {len(tried)} deletes were tried with dryRun=All"
            + (f"; refused: {no}" if no else "; none was refused")
        )
    deletes = [event for event in events if event.removes_pod and event.accepted]
    for event in deletes:
        narrator.say(f"{event.user.rpartition(':')[2]} deleted {event.name}, if UID {event.precondition_uid}")
    bindings = _bindings(events)
    for user in sorted({event.user for event in bindings}):
        bound = sum(event.user == user for event in bindings)
        narrator.say(f"{user.rpartition(':')[2]} bound {bound} pods of train")

    begun = min((event.at for event in deletes), default=refused.finished_at)
    narrator.claim(
        "no pod had been deleted when the first order was given up",
        len(deletes) > 0 and refused.finished_at <= begun,
    )
    would_go = {
        event.name for event in _of(trials, last, done) if _would_do(event) and event.answered_at <= begun
    }
    narrator.claim(
        "the deletes of all its victims had been tried before; none was refused",
        {victim.name for victim in last.victims} <= would_go,
    )
    narrator.claim(
        "every pod was deleted by the evictor, by UID, as a victim of the second order",
        {(event.name, event.precondition_uid) for event in deletes}
        == {(victim.name, victim.uid) for victim in last.victims}
        and {event.user for event in deletes} == {EVICTOR},
    )
    narrator.claim(
        "the scheduler bound each member once, after the last victim was deleted",
        sorted(event.name for event in bindings) == [f"train-{n}" for n in range(1, _MEMBERS + 1)]
        and {event.user for event in bindings} == {_SCHEDULER}
        and min(event.at for event in bindings) > max(event.at for event in deletes),
    )


async def _logged(stage: Stage) -> list[AuditEvent]:
    """Return what was tried, deleted and bound, once all members are: a watch is ahead of what is logged."""
    log, deadline = AuditLog(stage.audit_log, whole=True), time.monotonic() + ANSWER_SECONDS
    while True:
        events = [
            event
            for event in log.events(resource="pods", namespace=manifests.NAMESPACE)
            if event.user != KUBELET and (event.removes_pod or event.subresource == "binding")
        ]
        if len(_bindings(events)) >= _MEMBERS or time.monotonic() > deadline:  # then a claim fails
            return events
        await asyncio.sleep(0.1)


def _bindings(events: list[AuditEvent]) -> list[AuditEvent]:
    """Return those that bound a member."""
    bindings = [event for event in events if event.subresource == "binding" and event.accepted]
    return [event for event in bindings if event.name.startswith("train-")]


def _of(trials: list[AuditEvent], order: EvictionOrder, outcome: Outcome) -> list[AuditEvent]:
    """Return the trials of an order's deletes: those of its victims while it lived."""
    begun, ended = order.created_at, outcome.finished_at
    victims = {victim.name for victim in order.victims}
    return [one for one in trials if one.name in victims and begun <= one.at <= ended]


def _would_do(event: AuditEvent) -> bool:
    return 200 <= event.code < 300


def _pod_group(name: str, min_count: int) -> manifests.Manifest:
    return {
        "apiVersion": manifests.POD_GROUPS,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, "priorityClassName": "urgent"},
    }


def _member(number: int) -> manifests.Manifest:
    manifest = manifests.pod(f"train-{number}", app="train")
    manifest["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return manifest
