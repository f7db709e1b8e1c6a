"""Reclaim: a queue takes back what another of equal priority uses of its guarantee, and no more than that."""

from __future__ import annotations

from makeway.core.policy.rules import RECLAIM
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import Stage

RESEARCH, SHOP = "root.research", "root.shop"
_SURE = 4
"""CPUs that each queue guarantees: half of the cluster."""
_EACH = 2
"""CPUs of every pod."""

_QUEUES: manifests.Manifest = {
    "partitions": [
        {
            "preemption": {"enabled": True},
            "queues": [
                {"name": path.removeprefix("root."), "resources": {"guaranteed": {"vcore": str(_SURE)}}}
                for path in (RESEARCH, SHOP)
            ],
        }
    ]
}


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await lend(stage)
    await take_back(stage)
    await no_loop(stage)


async def lend(stage: Stage) -> None:
    """Two nodes full of pods of one queue, which uses what the other does not."""
    narrator = stage.narrator
    narrator.chapter("A queue uses what another leaves")
    await stage.create(
        [manifests.priority_class("batch", manifests.BATCH_PRIORITY), manifests.queues(_QUEUES)]
    )
    await stage.create(manifests.node(f"node-{letter}") for letter in "ab")
    await stage.create(_pod(f"shop-{number}", SHOP) for number in (1, 2, 3, 4))
    await stage.running({"shop": 4})
    narrator.cluster(stage.timeline.living())
    alike = f"All have {_EACH} CPUs and priority {manifests.BATCH_PRIORITY}."
    narrator.say(f"{alike} {RESEARCH} and {SHOP} guarantee {_SURE} CPUs")
    narrator.say("each; research has no pod, and shop uses all 8. preemption.enabled is on.")


async def take_back(stage: Stage) -> None:
    """Two pods of the other queue, of equal priority, get room up to its guarantee."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("The other queue takes back its guarantee")
    for number in (1, 2):
        uid, sent = await stage.create_one(_pod(name := f"research-{number}", RESEARCH))
        narrator.begin(sent, f"pod {name} created: {_EACH} CPUs, priority {manifests.BATCH_PRIORITY}")
        made = await stage.preemption(uid, name)
        stage.tell(made)
        narrator.claim(
            f"one pod of shop went for {name}, of equal priority, by rule {RECLAIM}",
            [(_queue(one.name), one.priority, one.rule) for one in made.order.victims]
            == [(SHOP, manifests.BATCH_PRIORITY, RECLAIM)],
        )
    await stage.running({"research": 2, "shop": 2})
    narrator.cluster(timeline.living())
    narrator.claim("both queues use what they guarantee", _running(stage) == {RESEARCH: 2, SHOP: 2})


async def no_loop(stage: Stage) -> None:
    """Neither a third pod of the one queue nor a successor in the other makes any room."""
    narrator = stage.narrator
    narrator.chapter("What is beyond a guarantee waits")
    for name, path in (("research-3", RESEARCH), ("shop-5", SHOP)):
        uid, sent = await stage.create_one(_pod(name, path))
        narrator.begin(sent, f"pod {name} created: {_EACH} CPUs, priority {manifests.BATCH_PRIORITY}")
        refused = await stage.decision(uid, name)
        narrator.refusal(refused)
        narrator.timetable()
        narrator.claim(
            f"{name} waits: {path} would be above its guarantee with it",
            refused.diagnosis is not None and not refused.victims,
        )
    narrator.claim("all other pods run on", _running(stage) == {RESEARCH: 2, SHOP: 2})


def _running(stage: Stage) -> dict[str, int]:
    running = [pod.app for pod in stage.timeline.living() if pod.running]
    return {path: running.count(path.removeprefix("root.")) for path in (RESEARCH, SHOP)}


def _queue(name: str) -> str:
    return f"root.{name.partition('-')[0]}"


def _pod(name: str, queue: str) -> manifests.Manifest:
    manifest = manifests.pod(name, "batch", app=queue.removeprefix("root."))
    manifest["metadata"]["labels"]["queue"] = queue
    return manifest
