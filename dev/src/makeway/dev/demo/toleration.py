"""Preemption toleration: classes whose pods stay for a while, or for ever, and a class changed meanwhile."""

from __future__ import annotations

from datetime import datetime

from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import Stage
from makeway.dev.demo.timeline import when

TOLERATES_SECONDS = 8
"""How long pods of class `resumable` stay; long enough to be seen waiting, short enough to wait for."""

LATE_SECONDS = 3.0
"""Within this after the end of a toleration the pod that waits is bound."""

_LOW, _HIGH, _CRITICAL = 8000, 9000, 10_000


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await fill(stage)
    await wait_for_the_end(stage)
    await from_the_minimum_on(stage)
    await change_the_class(stage)


async def fill(stage: Stage) -> None:
    """Two full nodes: `train` on one of them stays for a while, the others for ever."""
    narrator = stage.narrator
    narrator.chapter("Four pods that would rather stay")
    await stage.create(
        [
            _class("resumable", _LOW, seconds=TOLERATES_SECONDS),
            _class("precious", _LOW, seconds=-1),
            _class("archive", _LOW, seconds=-1),
            manifests.priority_class("high", _HIGH),
            manifests.priority_class("critical", _CRITICAL),
            manifests.node("node-a"),
            manifests.node("node-b"),
        ]
    )
    for name, priority_class, node in (
        ("books", "archive", "node-b"),
        ("papers", "archive", "node-b"),
        ("model", "precious", "node-a"),
        ("train", "resumable", "node-a"),
    ):
        await stage.create([manifests.pod(name, priority_class, node=node)])
    await stage.running(dict.fromkeys(("books", "papers", "model", "train"), 1))
    narrator.cluster(stage.timeline.living())
    narrator.say(f"All have priority {_LOW}. Their classes tolerate preemptors below {_CRITICAL}:")
    narrator.say(f"train for {TOLERATES_SECONDS} s from when it was scheduled, the others for ever.")


async def wait_for_the_end(stage: Stage) -> None:
    """A preemptor below the minimum waits, is told why, and comes when the first toleration ends."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("A pod of higher priority waits until the first toleration ends")
    uid, sent = await stage.create_one(manifests.pod("report", "high"))
    narrator.begin(sent, f"pod report created: 2 CPUs, priority {_HIGH}")
    bound = await stage.bound(uid, "report")
    order, outcome = await stage.last_outcome(uid)
    refusals = timeline.refusals(uid)
    for refused in refusals[-1:]:
        narrator.refusal(refused)
    narrator.order(order)
    narrator.outcome(outcome)
    narrator.bound(bound.at, order, f"report bound to {bound.node}")
    narrator.timetable()

    train = timeline.first(lambda p: p.name == "train" and p.node != "")
    ends = train.since("PodScheduled") + TOLERATES_SECONDS if train else 0.0
    last = refusals[-1].diagnosis if refusals else None
    said = last.retry_at if last else None
    narrator.claim(
        "no pod was evicted while train tolerated it: the order came "
        f"{order.created_at.timestamp() - ends:.1f} s after the end",
        order.created_at.timestamp() > ends,
    )
    narrator.claim(
        f"the refusal had said when to ask again: {_clock(said)}",
        said is not None and 0 <= said.timestamp() - ends < 0.1,
    )
    narrator.claim(
        f"report was tried again by itself, and bound within {LATE_SECONDS:g} s",
        said is not None and (outcome.finished_at - said).total_seconds() < LATE_SECONDS,
    )
    narrator.claim("train went, and only train", [victim.name for victim in order.victims] == ["train"])
    living = {pod.app for pod in timeline.living() if pod.running}
    narrator.claim(
        "model, books and papers, which tolerate for ever, run on", {"model", "books", "papers"} <= living
    )


async def from_the_minimum_on(stage: Stage) -> None:
    """A preemptor of the minimum preemptable priority need not wait."""
    narrator = stage.narrator
    narrator.chapter(f"From priority {_CRITICAL} on no pod is exempt")
    uid, sent = await stage.create_one(manifests.pod("incident", "critical", node="node-a"))
    narrator.begin(sent, f"pod incident created: 2 CPUs on node-a, priority {_CRITICAL}")
    made = await stage.preemption(uid, "incident")
    stage.tell(made)
    narrator.claim(
        "model made room at once, though it tolerates lower priorities for ever",
        [victim.name for victim in made.order.victims] == ["model"],
    )


async def change_the_class(stage: Stage) -> None:
    """What the class says now counts, also for pods that have run for long."""
    narrator = stage.narrator
    narrator.chapter("The class is changed while its pods run")
    uid, sent = await stage.create_one(manifests.pod("forecast", "high", node="node-b"))
    narrator.begin(sent, f"pod forecast created: 2 CPUs on node-b, priority {_HIGH}")
    refused = await stage.decision(uid, "forecast")
    narrator.refusal(refused)
    changed = await stage.patch(
        _class("archive", _LOW, seconds=-1),
        {"metadata": {"annotations": {MINIMUM_PREEMPTABLE_PRIORITY: str(_HIGH)}}},
    )
    narrator.event(
        changed,
        f"PriorityClass archive: minimum-preemptable-priority is {_HIGH} from now on",
        after=(refused.decision_id,),
    )
    bound = await stage.bound(uid, "forecast")
    order, outcome = await stage.last_outcome(uid)
    narrator.order(order)
    narrator.outcome(outcome)
    narrator.bound(bound.at, order, f"forecast bound to {bound.node}")
    narrator.timetable()
    narrator.claim(
        "the refusal named the class that it depends on",
        refused.diagnosis is not None and "archive" in {one.name for one in refused.diagnosis.depends_on},
    )
    narrator.claim("no pod was evicted before the change", when(order) > changed)
    narrator.claim(
        f"forecast was bound {bound.at - changed:.1f} s after it", bound.at - changed < 2 * LATE_SECONDS
    )


def _class(name: str, value: int, *, seconds: int) -> manifests.Manifest:
    manifest = manifests.priority_class(name, value)
    manifest["metadata"]["annotations"] = {
        MINIMUM_PREEMPTABLE_PRIORITY: str(_CRITICAL),
        TOLERATION_SECONDS: str(seconds),
    }
    return manifest


def _clock(moment: datetime | None) -> str:
    return f"{moment:%H:%M:%S} UTC" if moment else "never"
