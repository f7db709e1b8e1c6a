"""Crashes at named points, and what must hold after each of them."""

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.preempting import (
    EVICTOR_USER,
    all_orders,
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    settle,
)
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.disruption import preemption_message
from makeway.core.objects import Pod
from makeway.runtime.failpoints import FIRED

KILL, STOP = "kill", "stop"

FROZEN_SECONDS = 3.0
"""How long a frozen process stays so; long enough for time-outs of requests, too short for a new leader."""

RECOVERY_SECONDS = 60.0
"""How long a preemptor may wait after one crash: for redelivery, or a new leader, and a restart."""

MARK_SECONDS = 30.0
"""No mark of ours stays longer on a pod that lives on."""

EVICTING = (
    "evictor.order-received",
    "evictor.before-mark",
    "evictor.after-mark",
    "evictor.before-delete",
    "evictor.after-delete",
    "evictor.before-outcome",
    "evictor.before-ack",
)
"""What every order passes that succeeds."""

EACH_VICTIM = ("evictor.before-mark", "evictor.after-mark", "evictor.before-delete", "evictor.after-delete")
"""Passed once for each victim."""

ROLLING_BACK = (
    "evictor.before-rollback",
    "evictor.before-revert",
    "evictor.after-revert",
    "evictor.before-unmark",
    "evictor.after-unmark",
)
CLEARING = ("evictor.before-clear",)
PLANNING = (
    "planner.request-received",
    "planner.before-reply",
    "planner.before-record",
    "planner.after-record",
)
REPAIRING = ("planner.before-proposal", "evictor.before-repair", "evictor.after-repair")
SCHEDULING = (
    "scheduler.nominated",
    "scheduler.before-publish",
    "scheduler.after-publish",
    "scheduler.after-commit",
    "scheduler.on-outcome",
    "scheduler.before-activate",
)
ALL_POINTS = {*EVICTING, *ROLLING_BACK, *CLEARING, *PLANNING, *REPAIRING, *SCHEDULING}
"""Every failpoint there is."""


class Failpoints:
    """Arms the failpoints of a cluster's processes."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._directory: Path = cluster.owned.directory / "failpoints"

    def arm(self, name: str, action: str, *, hit: int = 1, seconds: float = 0.0) -> None:
        """Let the next process that reaches the point for the `hit`th time be killed, frozen or delayed."""
        (self._directory / FIRED / name).unlink(missing_ok=True)
        beside = self._directory / f".{name}"
        beside.write_text(f"{action} {hit} {seconds}")
        beside.rename(self._directory / name)

    def disarm(self) -> None:
        """Disarm every point, so that a test that failed does not disturb the next."""
        for path in self._directory.iterdir():
            if path.is_file():
                path.unlink(missing_ok=True)

    async def fired(self, name: str, *, seconds: float = 20.0) -> int:
        """Wait until the point has fired; gives the process id."""
        file = self._directory / FIRED / name

        async def ask() -> int:
            try:
                return int(file.read_text() or "0")
            except FileNotFoundError as error:
                raise NotYet("not reached") from error

        return await until(f"failpoint {name} fires", ask, seconds=seconds)

    async def fires(self, name: str, action: str, *, seconds: float = 20.0) -> None:
        """Wait until the point has fired, and let a frozen process go on after a while."""
        pid = await self.fired(name, seconds=seconds)
        if action == STOP:
            await asyncio.sleep(FROZEN_SECONDS)
            os.kill(pid, signal.SIGCONT)


async def full_node(space: Space, victims: int, *labels: tuple[str, str]) -> list[Pod]:
    """A node n1 that is full of pods of low priority, v1, v2, ..."""
    await space.add_nodes(make_node("n1").cpu(f"{100 * victims}m"))
    builders = [
        make_pod(f"v{number}").priority("low").cpu("100m").on("n1") for number in range(1, victims + 1)
    ]
    for label in labels:
        builders = [builder.label(*label) for builder in builders]
    pods = await space.run(*builders)
    await settle()
    return pods


async def preemptor(space: Space, victims: int, name: str = "p") -> Pod:
    """A pod that needs the room of so many victims."""
    (pod,) = await space.create(make_pod(name).priority("high").cpu(f"{100 * victims}m"))
    return pod


async def assert_whole(space: Space, preemptors: Iterable[Pod], *, orders: int | None = None) -> None:
    """What holds whatever crashed, once the preemptors are bound.

    Nothing was deleted but by an order, and nothing twice; each order has one outcome; one order was
    live at a time; each preemptor was bound once; no mark and no nomination is left behind. `orders`: how
    many there were for each preemptor.
    """
    preemptors = list(preemptors)
    await assert_only_ordered_pods_were_deleted(space, preemptors)
    deleted = Counter(
        event.precondition_uid
        for event in space.audit.events(verb="delete", resource="pods", namespace=space.namespace)
        if event.accepted and event.user == EVICTOR_USER
    )
    assert [uid for uid, times in deleted.items() if times > 1] == []
    for pod in preemptors:
        assert_bound_once(space, pod.metadata.name)
        stored = await space.bus.orders(pod.metadata.uid)
        assert orders is None or len(stored) == orders, [order.order_id for order in stored]
        ends = []
        for order in stored:
            outcome = await until_ended(space, order.order_id)
            ends.append((order.created_at, outcome))
        for (_, before), (begun, _) in pairwise(ends):
            assert before <= begun, "two orders of one preemptor were live at once"
    await assert_nothing_left_behind(space)


async def until_ended(space: Space, order_id: str) -> datetime:
    """Wait for an order's outcome, of which there is one; gives its end."""

    async def ask() -> datetime:
        outcomes = await space.bus.outcomes(order_id)
        if not outcomes:
            raise NotYet(f"{order_id} has no outcome")
        assert len(outcomes) == 1
        return outcomes[0].finished_at

    return await until(f"order {order_id} ends", ask, seconds=RECOVERY_SECONDS)


async def assert_nothing_left_behind(space: Space) -> None:
    """No mark on a pod that lives on, no nomination of a pod that is not bound."""

    async def clean() -> bool:
        left = []
        for name, pod in (await space.pods()).items():
            if pod.metadata.deletion_timestamp is not None:
                continue
            if is_marked(pod):
                left.append(f"{name} is marked")
            if pod.status.nominated_node_name and not pod.spec.node_name:
                left.append(f"{name} is nominated")
        if left:
            raise NotYet(", ".join(left))
        return True

    await until("nothing is left behind", clean, seconds=MARK_SECONDS)


async def ordered(space: Space, pod: Pod) -> None:
    """Wait until an order for a pod is stored."""

    async def ask() -> bool:
        return bool(await all_orders(space, [pod]))

    await until(f"an order for {pod.metadata.name}", ask)


def is_marked(pod: Pod) -> bool:
    """Whether a pod carries DisruptionTarget."""
    return ("DisruptionTarget", "True") in {(one.type, one.status) for one in pod.status.conditions or ()}


async def mark_as_victim(space: Space, name: str) -> None:
    """Mark a pod as an evictor does, though no order names it."""
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": preemption_message("default-scheduler"),
        # The disruption controller takes a mark without a time for an old one, and ends it.
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    await space.api.request(
        "PATCH",
        f"/api/v1/namespaces/{space.namespace}/pods/{name}/status",
        body=json.dumps({"status": {"conditions": [mark]}}).encode(),
        content_type="application/strategic-merge-patch+json",
    )


async def without_nats(cluster: RunningCluster, how: str) -> None:
    """Let nats-server be away for a while: `killed`, `frozen`, or `wiped` (killed, and its store removed)."""
    if how == "frozen":
        async with cluster.frozen("nats"):
            await asyncio.sleep(FROZEN_SECONDS)
        return
    await cluster.kill("nats")
    if how == "wiped":
        shutil.rmtree(cluster.owned.directory / "nats")
    await cluster.start("nats")
