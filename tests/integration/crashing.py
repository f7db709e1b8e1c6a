"""Crashes at named points, and what must hold after each of them."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from itertools import pairwise

from integration.arming import FROZEN_SECONDS
from integration.cluster import RunningCluster
from integration.preempting import EVICTOR_USER, assert_bound_once, assert_only_ordered_pods_were_deleted
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.disruption import preemption_message
from makeway.core.k8s.objects import Pod

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

REHEARSING = ("evictor.before-dry-run", "evictor.barrier-passed")
"""Points of orders whose deletions are tried first: for a group, or with a group among the victims."""
PLANNING = (
    "planner.request-received",
    "planner.before-reply",
    "planner.before-record",
    "planner.after-record",
)
PLANNING_GROUPS = ("planner.group-request-received", "planner.before-group-reply")
REPAIRING = ("planner.before-proposal", "evictor.before-repair", "evictor.after-repair")
SCHEDULING = (
    "scheduler.nominated",
    "scheduler.before-publish",
    "scheduler.after-publish",
    "scheduler.after-commit",
    "scheduler.on-outcome",
    "scheduler.before-activate",
)
QUOTA = ("planner.before-quota-order", "planner.after-quota-order")
COMMITTING = ("planner.commit-received", "planner.order-stored")
NOMINATING = (
    "nominator.before-nominate",
    "nominator.after-nominate",
    "nominator.before-commit",
    "nominator.after-commit",
)
ALL_POINTS = {
    *EVICTING,
    *ROLLING_BACK,
    *CLEARING,
    *REHEARSING,
    *PLANNING,
    *PLANNING_GROUPS,
    *REPAIRING,
    *QUOTA,
    *SCHEDULING,
    *COMMITTING,
    *NOMINATING,
}
"""Every failpoint there is."""


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
        for event in space.audit.events(
            about=(space.namespace,), verb="delete", resource="pods", namespace=space.namespace
        )
        if event.accepted and event.user == EVICTOR_USER
    )
    assert [uid for uid, times in deleted.items() if times > 1] == []
    assert_bound_once(space, *[pod.metadata.name for pod in preemptors])
    for pod in preemptors:
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


async def assert_nothing_left_behind(space: Space, *names: str) -> None:
    """No mark on a pod that lives on, no nomination of a pod that is not bound; of all pods, or of these."""

    async def clean() -> bool:
        left = []
        for name, pod in (await space.pods()).items():
            if pod.metadata.deletion_timestamp is not None or (names and name not in names):
                continue
            if is_marked(pod):
                left.append(f"{name} is marked")
            if pod.status.nominated_node_name and not pod.spec.node_name:
                left.append(f"{name} is nominated")
        if left:
            raise NotYet(", ".join(left))
        return True

    await until("nothing is left behind", clean, seconds=MARK_SECONDS)


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


async def without_nats(
    cluster: RunningCluster, how: str, meanwhile: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Let nats-server be away: `killed`, `frozen`, or `wiped` (killed, and its store removed).

    meanwhile: what is done while it is away; else some time passes.
    """
    await (cluster.pause("nats") if how == "frozen" else cluster.kill("nats"))
    await (meanwhile() if meanwhile else asyncio.sleep(FROZEN_SECONDS))
    if how == "wiped":
        shutil.rmtree(cluster.owned.directory / "nats")
    await (cluster.resume("nats") if how == "frozen" else cluster.start("nats"))
