"""The main job: a cluster fills up, an urgent pod makes room, an eviction is refused."""

from __future__ import annotations

import contextlib

from makeway.dev.audit_log import AuditLog
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import EVICTOR, KUBELET, SETTLE_SECONDS, Stage

BIND_BOUND_SECONDS = 2.0
"""Within this an urgent pod is bound after its creation, where victims end at once."""


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await prepare(stage)
    await fill(stage)
    await make_room(stage, "payment")
    await add_a_node(stage)
    await refuse(stage, "fraud-check")
    await audit(stage)


async def prepare(stage: Stage) -> None:
    """Create what every part of the story needs."""
    await stage.create(
        manifests.priority_class(name, value)
        for name, value in {
            "scavenger": manifests.SCAVENGER_PRIORITY,
            "batch": manifests.BATCH_PRIORITY,
            "urgent": manifests.URGENT_PRIORITY,
        }.items()
    )


async def fill(stage: Stage) -> None:
    """Fill three nodes: `web` under a budget that allows no disruption, `crunch` without one."""
    stage.narrator.chapter("A full cluster")
    await stage.create(manifests.node(f"node-{letter}") for letter in "abc")
    await stage.hold("web", 3)
    for app in ("web", "crunch"):
        await stage.create(manifests.pods(app, (1, 2, 3), "batch"))
    await stage.running({"web": 3, "crunch": 3})
    stage.narrator.cluster(stage.timeline.living())
    stage.narrator.say("Budget web: 3 of 3 must stay. crunch has none. Every CPU is taken.")


async def make_room(stage: Stage, name: str) -> None:
    """One urgent pod: decision, nomination, order, delete, outcome, binding."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("An urgent pod makes room")
    uid, sent = await stage.create_one(manifests.pod(name))
    narrator.begin(sent, f"pod {name} created: 2 CPUs, priority 100000")
    made = await stage.preemption(uid, name)
    stage.tell(made)

    bound, order = made.bound, made.order
    took = bound.at - sent
    apps = {pod.app for pod in timeline.pods if pod.uid in {v.uid for v in order.victims}}
    narrator.claim(
        f"{name} was bound {took:.2f} s after it was created (promised: {BIND_BOUND_SECONDS:g} s)",
        took <= BIND_BOUND_SECONDS,
    )
    narrator.claim(
        "it was bound where the decision said", bound.node == made.decision.nominated_node == order.node
    )
    narrator.claim(
        "one victim, from crunch; the budget of web was kept",
        len(order.victims) == 1 and apps == {"crunch"} and order.pdb_violations == 0,
    )
    narrator.claim("the order succeeded", made.outcome.result == "succeeded")


async def add_a_node(stage: Stage) -> None:
    """Fill a fourth node: with `ledger`, which may not be deleted, and another pod of `crunch`."""
    narrator = stage.narrator
    narrator.chapter("An eviction that is refused")
    await stage.create(
        [
            manifests.node("node-d"),
            *manifests.pods("ledger", (1,), "scavenger"),
            *manifests.pods("crunch", (4,), "batch"),
        ]
    )
    await stage.running({"web": 3, "crunch": 3, "ledger": 1, "payment": 1})
    await stage.create(manifests.never_delete("ledger"))
    await stage.until_undeletable("ledger")
    narrator.cluster(stage.timeline.living())
    narrator.say("A new node has filled up. ledger has the lowest priority, so it would go first;")
    narrator.say("but a ValidatingAdmissionPolicy refuses to delete its pods, which no planner can know.")


async def refuse(stage: Stage, name: str) -> None:
    """A delete that the API server refuses: rolled back, and the pod is placed elsewhere."""
    timeline, narrator = stage.timeline, stage.narrator
    uid, sent = await stage.create_one(manifests.pod(name))
    narrator.begin(sent, f"pod {name} created: 2 CPUs, priority 100000")
    bound = await stage.bound(uid, name)
    await stage.last_outcome(uid)
    orders = timeline.orders(uid)
    outcomes = [timeline.outcome(order.order_id) for order in orders]
    first_order, first_outcome = orders[0], outcomes[0]
    reverted = None
    nominated = timeline.first(lambda p: p.uid == uid and p.nominated_node == first_order.node)
    if nominated:
        narrator.nominated(nominated.at, first_order, f"nominated to {nominated.nominated_node}")
        reverted = timeline.first(
            lambda p: p.uid == uid and p.nominated_node != first_order.node, after=nominated.at
        )
    narrator.carried_out(reverted.at if reverted else None, first_order, "nomination rolled back")
    for order, outcome in zip(orders, outcomes, strict=True):
        narrator.order(order)
        if outcome:
            narrator.outcome(outcome)
    narrator.bound(bound.at, orders[-1], f"{name} bound to {bound.node}")
    narrator.timetable()

    ledger = [pod for pod in timeline.living() if pod.app == "ledger"]
    narrator.claim(
        "the first order was for ledger, and failed: the API server refused the delete",
        first_outcome is not None
        and first_outcome.result == "failed"
        and {v.uid for v in first_order.victims} == {pod.uid for pod in ledger},
    )
    narrator.claim("the nomination was rolled back", reverted is not None)
    marked = timeline.first(lambda p: p.app == "ledger" and p.disruption_target)
    unmarked = marked and timeline.first(
        lambda p: p.uid == marked.uid and not p.disruption_target, after=marked.at
    )
    narrator.claim(
        "ledger runs on, and its mark as a disruption target was taken off",
        len(ledger) == 1 and ledger[0].running and unmarked is not None,
    )
    narrator.claim(
        f"{name} was placed by another order",
        len(orders) > 1 and bound.node == orders[-1].node and orders[-1].victims != first_order.victims,
    )


async def audit(stage: Stage) -> None:
    """What the API server itself wrote down about deletes of pods."""
    narrator = stage.narrator
    narrator.chapter("What the API server's audit log says")
    deletes = [
        event
        for event in AuditLog(stage.audit_log, whole=True).events(
            verb="delete", resource="pods", subresource="", namespace=manifests.NAMESPACE
        )
        if event.accepted and event.user != KUBELET
    ]
    deleted = {(event.name, event.precondition_uid) for event in deletes}
    with contextlib.suppress(TimeoutError):  # then a claim fails
        await stage.timeline.until("the orders", lambda: deleted <= stage.ordered() or None, SETTLE_SECONDS)
    for event in deletes:
        narrator.say(
            f"{event.user.rpartition(':')[2]} deleted {event.name}\n  if its UID is {event.precondition_uid}"
        )
    narrator.claim(
        "every pod was deleted by the evictor, by UID, as a victim of an order",
        len(deletes) > 0 and deleted <= stage.ordered() and {event.user for event in deletes} == {EVICTOR},
    )
