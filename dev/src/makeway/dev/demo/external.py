"""Preemption from outside: kube-scheduler as it is, built without the plugin, and the nominator beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from makeway.bus.messages import EvictionOrder
from makeway.core.policy.external import ANNOTATION, EXTERNAL, NEVER
from makeway.dev.audit_log import AuditEvent, AuditLog
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import EVICTOR, KUBELET, SETTLE_SECONDS, Stage

BIND_BOUND_SECONDS = 5.0
"""Within this the pod is bound. kube-scheduler tries a pod that did not fit again after a second or more."""

_SCHEDULER = "system:kube-scheduler"
_NOMINATOR = "system:serviceaccount:makeway-system:makeway-nominator"
_WAITING = 2


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await fill(stage)
    await wait(stage)
    uid = await make_room(stage)
    await audit(stage, uid)


async def fill(stage: Stage) -> None:
    """Fill three nodes; more pods wait for whatever room there will be."""
    narrator = stage.narrator
    narrator.chapter("A full cluster, and a kube-scheduler that knows nothing of makeway")
    await stage.create(
        [
            manifests.priority_class("batch", manifests.BATCH_PRIORITY),
            _class("patient", opted_in=False),
            _class("urgent", opted_in=True),
            *(manifests.node(f"node-{letter}") for letter in "abc"),
            *manifests.pods("web", (1, 2), "batch"),
        ]
    )
    await stage.hold("web", 2)
    await stage.running({"web": 2})
    await stage.create(manifests.pods("crunch", range(1, 5 + _WAITING), "batch"))
    await stage.running({"web": 2, "crunch": 4})
    narrator.cluster(stage.timeline.living())
    narrator.say(
        f"Every CPU is taken, and {_WAITING} more pods of crunch wait. Budget web: 2 of 2 must stay."
    )
    narrator.say(f"Classes patient and urgent have preemptionPolicy: {NEVER}; urgent is opted in:")
    narrator.say(f"  {ANNOTATION}: {EXTERNAL}")


async def wait(stage: Stage) -> None:
    """Create a pod of a class that is not opted in: it waits, and no preemption is made for it."""
    await stage.create([manifests.pod("report", "patient")])


async def make_room(stage: Stage) -> str:
    """Create an urgent pod, tell how it comes to its node, and return its UID."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("An urgent pod makes room")
    uid, sent = await stage.create_one(manifests.pod("payment", "urgent"))
    narrator.begin(sent, f"pod payment created: 2 CPUs, priority {manifests.URGENT_PRIORITY}")
    made = await stage.preemption(uid, "payment")
    stage.tell(made, nominator=" by the nominator", scheduler=" by kube-scheduler")

    bound, order = made.bound, made.order
    took = bound.at - sent
    apps = {pod.app for pod in timeline.pods if pod.uid in {victim.uid for victim in order.victims}}
    waiting = [pod for pod in timeline.living() if pod.app == "crunch" and not pod.node]
    narrator.claim(
        f"payment was bound {took:.2f} s after it was created (promised: {BIND_BOUND_SECONDS:g} s)",
        took <= BIND_BOUND_SECONDS,
    )
    narrator.claim(
        "it was bound where the decision said, by the nominator's order",
        bound.node == made.decision.nominated_node == order.node and order.fence.name == "makeway-nominator",
    )
    narrator.claim(
        "one victim, from crunch; the budget of web was kept",
        len(order.victims) == 1 and apps == {"crunch"} and order.pdb_violations == 0,
    )
    narrator.claim("pods of crunch that waited for room took none of it", len(waiting) >= _WAITING)
    return uid


async def audit(stage: Stage, uid: str) -> None:
    """Read from the API server's audit log who did what."""
    narrator = stage.narrator
    narrator.chapter("What the API server's audit log says: who did what to these pods")
    events = [event for event in _writes(stage) if event.user != KUBELET]
    deletes = [event for event in events if event.removes_pod]
    deleted = {(event.name, event.precondition_uid) for event in deletes}
    with contextlib.suppress(TimeoutError):  # then a claim fails
        await stage.timeline.until("the orders", lambda: deleted <= stage.ordered() or None, SETTLE_SECONDS)
    nominations = [event for event in events if event.user == _NOMINATOR]
    bindings = [e for e in events if (e.subresource, e.name) == ("binding", "payment")]
    for event in nominations:
        status = (event.request or {}).get("status", {})
        narrator.say(f"makeway-nominator patched the status of {event.name}: {status}")
    for event in deletes:
        narrator.say(
            f"{event.user.rpartition(':')[2]} deleted {event.name}\n  if its UID is {event.precondition_uid}"
        )
    for event in bindings:
        narrator.say(f"{event.user} bound {event.name} to {event.target}")

    narrator.claim(
        "the nominator wrote one field of one pod, and nothing else",
        [(event.verb, event.subresource, event.name) for event in nominations]
        == [("patch", "status", "payment")]
        and set((nominations[0].request or {}).get("status", {})) == {"nominatedNodeName"},
    )
    narrator.claim(
        "every pod was deleted by the evictor, by UID, as a victim of an order",
        len(deletes) > 0 and deleted <= stage.ordered() and {event.user for event in deletes} == {EVICTOR},
    )
    narrator.claim(
        "kube-scheduler, with its own user and rights, bound payment, and deleted no pod",
        [event.user for event in bindings] == [_SCHEDULER]
        and not any(event.user == _SCHEDULER for event in deletes),
    )
    patient = [e for e in events if e.name == "report" and "nominatedNodeName" in str(e.request)]
    asked = any(
        order.preemptor is not None and order.preemptor.name == "report" and order.preemptor.uid != uid
        for order in _orders(stage)
    )
    narrator.claim("report, whose class is not opted in, was nominated by no one", not patient and not asked)


def _writes(stage: Stage) -> Iterator[AuditEvent]:
    """Return the accepted writes of the demo's pods."""
    for event in AuditLog(stage.audit_log, whole=True).events(resource="pods", namespace=manifests.NAMESPACE):
        if event.accepted and event.verb in ("create", "update", "patch", "delete", "deletecollection"):
            yield event


def _orders(stage: Stage) -> list[EvictionOrder]:
    return [one for one in stage.timeline.records if isinstance(one, EvictionOrder)]


def _class(name: str, *, opted_in: bool) -> manifests.Manifest:
    manifest = {**manifests.priority_class(name, manifests.URGENT_PRIORITY), "preemptionPolicy": NEVER}
    if opted_in:
        manifest["metadata"]["annotations"] = {ANNOTATION: EXTERNAL}
    return manifest
