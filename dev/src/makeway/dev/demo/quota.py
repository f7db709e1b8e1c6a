"""A quota is lowered: the queue comes down to it, keeps its guarantee, and what was evicted waits."""

from __future__ import annotations

import json
import time

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import ANSWER_SECONDS, Stage
from makeway.dev.demo.timeline import when

DELAY_SECONDS = 3
RESEARCH = "root.research"
_EACH = 2
"""CPUs of every pod."""


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await prepare(stage)
    await lower(stage)
    await guarantee(stage)


async def prepare(stage: Stage) -> None:
    """Three nodes full of two teams' pods, in queues with room to spare."""
    narrator = stage.narrator
    narrator.chapter("Two queues share a cluster")
    await stage.create([manifests.priority_class("batch", manifests.BATCH_PRIORITY)])
    await stage.create([manifests.queues(_tree(maximum=12))])
    await stage.create(manifests.node(f"node-{letter}") for letter in "abc")
    await stage.create(
        [
            manifests.deployment("training", 3, "batch", queue=f"{RESEARCH}.training"),
            manifests.deployment("notebooks", 2, "batch", queue=f"{RESEARCH}.notebooks"),
            manifests.deployment("web", 1, "batch", queue="root.shop"),
        ]
    )
    await stage.running({"training": 3, "notebooks": 2, "web": 1})
    narrator.cluster(stage.timeline.living())
    narrator.say(
        f"Every pod has {_EACH} CPUs. root.research uses 10 of at most 12, of which notebooks is sure of 4."
    )


async def lower(stage: Stage) -> None:
    """Half of research's quota is taken away."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("The quota of root.research is lowered to 6 CPUs")
    sent = await stage.patch(manifests.queues({}), {"data": _data(_tree(maximum=6))})
    narrator.begin(sent, f"max 12 -> 6 saved; quota.preemption.delay is {DELAY_SECONDS} s")
    order, outcome = await _enforced(stage, after=sent)
    narrator.quota_decision(await stage.decision_of(order))
    narrator.order(order)
    narrator.outcome(outcome)
    narrator.timetable()
    await _waits(stage, {"training": 1, "notebooks": 2, "web": 1})
    narrator.cluster([pod for pod in timeline.living() if pod.node])

    waited = when(order) - sent
    narrator.claim(f"no pod was evicted before {DELAY_SECONDS} s were over", waited >= DELAY_SECONDS)
    narrator.claim(
        "two pods went, both from training: notebooks is at its guarantee",
        len(order.victims) == _EACH and {_app(stage, victim.uid) for victim in order.victims} == {"training"},
    )
    narrator.claim("the order succeeded", outcome.result == "succeeded")
    waiting = [pod for pod in timeline.living() if pod.app == "training" and not pod.node]
    narrator.claim(
        "training's Deployment made two new pods, and they wait: their queue is full, though nodes have room",
        len(waiting) == _EACH,
    )


async def guarantee(stage: Stage) -> None:
    """The quota goes below what can be evicted: best effort, and a guarantee that is named."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("The quota of root.shop is lowered below what its guarantee leaves")
    sent = await stage.patch(manifests.queues({}), {"data": _data(_tree(maximum=6, shop=1))})

    def answered() -> DecisionRecord | None:
        found = (one for one in timeline.records if isinstance(one, DecisionRecord) and when(one) >= sent)
        return next((one for one in found if one.queue == "root.shop"), None)

    decision = await timeline.until("a decision about root.shop", answered, ANSWER_SECONDS)
    quota = decision.quota
    assert quota is not None  # noqa: S101 - decisions about queues have one
    narrator.say(f"planner: {quota.result}")
    for blocked in quota.blocked:
        narrator.say(f"  {blocked.reason}: {blocked.message}")
    narrator.claim(
        "no pod is evicted, and the guarantee that keeps web is named", quota.result == "unsuccessful"
    )
    narrator.claim("web runs on", any(pod.app == "web" and pod.running for pod in timeline.living()))


async def _enforced(stage: Stage, after: float) -> tuple[EvictionOrder, Outcome]:
    def ask() -> tuple[EvictionOrder, Outcome] | None:
        for one in stage.timeline.records:
            if isinstance(one, EvictionOrder) and one.kind == "quota" and when(one) >= after:
                outcome = stage.timeline.outcome(one.order_id)
                return (one, outcome) if outcome else None
        return None

    return await stage.timeline.until("the quota is enforced", ask, ANSWER_SECONDS)


async def _waits(stage: Stage, wanted: dict[str, int]) -> None:
    """Wait until the evicted pods have left, and others stand in their place."""
    await stage.running(wanted)
    deadline = time.monotonic() + 1

    def stands() -> bool | None:
        return True if time.monotonic() >= deadline else None

    await stage.timeline.until("a moment without a new binding", stands, 10)


def _app(stage: Stage, uid: str) -> str:
    return next(pod.app for pod in stage.timeline.pods if pod.uid == uid)


def _tree(maximum: int, shop: int = 4) -> manifests.Manifest:
    """The queues, with the one maximum that changes and another."""
    delay = {"quota.preemption.delay": f"{DELAY_SECONDS}s"}
    shop_sure = {} if shop > _EACH else {"guaranteed": {"pods": "1"}}
    queues = [
        {
            "name": "research",
            "resources": {"max": {"vcore": str(maximum)}, **delay},
            "queues": [
                {"name": "training"},
                {"name": "notebooks", "resources": {"guaranteed": {"vcore": "4"}}},
            ],
        },
        {"name": "shop", "resources": {"max": {"vcore": str(shop)}, **shop_sure, **delay}},
    ]
    return {"partitions": [{"preemption": {"quotapreemptionenabled": True}, "queues": queues}]}


def _data(tree: manifests.Manifest) -> dict[str, str]:
    return {"queues.yaml": json.dumps(tree, indent=2)}
