"""What tests of queues ask of a cluster: trees in YAML, reports, quota orders of a queue."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from integration.builders import PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.preempting import run_victims
from integration.space import Space
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.bus.client import Bus
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import BusError
from makeway.bus.messages import EvictionOrder
from makeway.bus.queue_report import QueueQuery, QueueReport, QueueState, QuotaEnd
from narrowing import there

Tree = dict[str, Any]


def queue(name: str, *queues: Tree, **resources: Any) -> Tree:
    """A queue; `max=5` is so many cores, `delay="1s"` and `miss=10` are the quota's."""
    keys = {"delay": "quota.preemption.delay", "miss": "quota.preemption.miss"}
    written = {
        keys.get(key, key): {"vcore": str(value)} if key in ("max", "guaranteed") else value
        for key, value in resources.items()
    }
    return {"name": name, "resources": written, "queues": list(queues)}


def queues_yaml(*queues: Tree, enabled: bool = True, reclaim: bool = False) -> str:
    """A file with these queues below root."""
    preemption = {"quotapreemptionenabled": enabled, "enabled": reclaim}
    return yaml.safe_dump({"partitions": [{"preemption": preemption, "queues": list(queues)}]})


def in_queue(name: str, cpu: int, path: str = "") -> PodBuilder:
    """A pod of so many cores on node n1, in the queue of the space's namespace or another."""
    builder = make_pod(name).priority("low").cpu(cpu).on("n1")
    return builder.label("queue", path) if path else builder


async def run_in_queue(space: Space, *sizes: int) -> None:
    """Run pods p1, p2, … of so many cores on one node of 100."""
    await space.add_nodes(make_node("n1").cpu(100))
    await run_victims(space, *(in_queue(f"p{place}", cpu) for place, cpu in enumerate(sizes, 1)))


async def report_of(cluster: RunningCluster, path: str = "") -> QueueReport:
    """What the leading planner says of queues."""
    bus = await Bus.connect(cluster.info.nats_url, name="tests/queues")
    try:
        answer = await bus.request_queues(msgspec.json.encode(QueueQuery(queue=path)), 5)
    finally:
        await bus.close()
    return msgspec.json.decode(answer, type=QueueReport)


async def state_of(cluster: RunningCluster, path: str) -> QueueState:
    """What it says of one."""
    report = await report_of(cluster, path)
    assert not report.unknown, path
    return report.queues[0]


async def until_state(
    cluster: RunningCluster,
    path: str,
    what: str,
    wanted: Callable[[QueueState], bool],
    *,
    seconds: float = PATIENT_SECONDS,
) -> QueueState:
    """Wait until a queue is as wanted."""

    async def ask() -> QueueState:
        try:
            state = await state_of(cluster, path)
        except BusError as error:
            raise NotYet(str(error)) from error
        if not wanted(state):
            raise NotYet(str(state))
        return state

    return await until(f"{path}: {what}", ask, seconds=seconds)


async def until_ended(
    cluster: RunningCluster, path: str, *ended: str | int, seconds: float = PATIENT_SECONDS
) -> QuotaEnd:
    """Wait until a queue's process has ended. `ended`: with which result, and how many pods evicted."""
    state = await until_state(
        cluster,
        path,
        "its process has ended",
        lambda state: state.last is not None and state.process is None,
        seconds=seconds,
    )
    last = there(state.last)
    assert not ended or (last.result, last.evicted) == ended, last
    return last


async def living(space: Space) -> dict[str, int]:
    """The cores of the pods that stay, by name."""
    return {
        name: int(pod.spec.containers[0].resources.requests["cpu"])  # type: ignore[union-attr,index]
        for name, pod in (await space.pods()).items()
        if pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"
    }


async def quota_orders(space: Space, path: str) -> list[EvictionOrder]:
    """The quota orders of a queue, oldest first."""
    return [order for order in await space.bus.orders() if order.queue == path]


async def quota_decisions(space: Space, path: str) -> list[DecisionRecord]:
    """The decision records of a queue's quota, oldest first."""
    return [
        record for record in await space.bus.decisions() if record.queue == path and record.kind == "quota"
    ]


async def never(seconds: float, what: str, happened: Callable[[], Any]) -> None:
    """Look for so long that something does not happen."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        assert not await happened(), what
        await asyncio.sleep(0.2)
