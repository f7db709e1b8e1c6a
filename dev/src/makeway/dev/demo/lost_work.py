"""Lost work: of two pods that are equal otherwise the one goes that has just saved its work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from makeway.core.comparison import LEAST_LOST_WORK
from makeway.core.k8s.times import api_time
from makeway.core.policy.lost_work import CHECKPOINTED_AT
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import Stage

APART_SECONDS = 2
"""Between the starts, so that kube-scheduler's rules would choose the pod that started last."""

WORKS_SECONDS = 6
"""How long both have run when one of them saves its work."""

_POLICY = """\
apiVersion: makeway.dev/v1
kind: Policy
lostWork:
  rank: aboveSum
"""


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await work(stage)
    await make_room(stage)


async def work(stage: Stage) -> None:
    """Two full nodes with a pod each, of one priority and size; the one that started first saves its work."""
    narrator = stage.narrator
    narrator.chapter("Two pods of one priority and size")
    await stage.create(
        [
            manifests.policy(_POLICY),
            manifests.priority_class("batch", manifests.BATCH_PRIORITY),
            manifests.priority_class("urgent", manifests.URGENT_PRIORITY),
            manifests.node("node-a"),
            manifests.node("node-b"),
        ]
    )
    saves = manifests.pod("saves", "batch", "4", node="node-a")
    await stage.create([saves])
    await stage.running({"saves": 1})
    await asyncio.sleep(APART_SECONDS)
    await stage.create([manifests.pod("silent", "batch", "4", node="node-b")])
    await stage.running({"silent": 1})
    await asyncio.sleep(WORKS_SECONDS)
    now = api_time(datetime.now(UTC))
    await stage.patch(saves, {"metadata": {"annotations": {CHECKPOINTED_AT: now}}})
    await asyncio.sleep(1)
    narrator.cluster(stage.timeline.living())
    narrator.say(
        f"Each has all 4 CPUs of its node, and priority {manifests.BATCH_PRIORITY}. silent started last."
    )
    narrator.say("A second ago saves wrote down that its work is saved:")
    narrator.say(f"  {CHECKPOINTED_AT}: {now}")
    narrator.say("The policy ranks nodes by lost work, above the sum of priorities:")
    narrator.say(_POLICY.partition("kind: Policy\n")[2].rstrip())


async def make_room(stage: Stage) -> None:
    """An urgent pod of the same size: the node is chosen on which less work is lost."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("An urgent pod needs one of the two nodes")
    uid, sent = await stage.create_one(manifests.pod("payment", cpu="4"))
    narrator.begin(sent, f"pod payment created: 4 CPUs, priority {manifests.URGENT_PRIORITY}")
    made = await stage.preemption(uid, "payment")
    stage.tell(made)

    best, *others = made.decision.candidates
    narrator.claim(
        "saves went, and only saves",
        [victim.name for victim in made.order.victims] == ["saves"],
    )
    started = {pod.name: pod.pod["status"].get("startTime", "") for pod in timeline.pods}
    narrator.claim(
        "by kube-scheduler's rules alone silent would have gone, which started last",
        started["silent"] > started["saves"] > "",
    )
    narrator.claim(
        "the decision record says what each would have lost: "
        + ", ".join(f"{one.victims[0].name} {one.lost_work_seconds} s" for one in (best, *others)),
        best.decided_by == LEAST_LOST_WORK
        and [one.lost_work_seconds >= best.lost_work_seconds + WORKS_SECONDS - 2 for one in others] == [True],
    )
    silent = [pod for pod in timeline.living() if pod.app == "silent"]
    narrator.claim("silent, with its unsaved work, runs on", [pod.running for pod in silent] == [True])
