"""Queues bind their tenants: what a label says takes no pod out of its limits."""

import json
from collections.abc import AsyncIterator

import pytest_asyncio

from integration.builders import PodBuilder, make_pod
from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, control_state, put_queues
from integration.preempting import settle
from integration.queueing import queue, queues_yaml, run_in_queue, state_of, until_state
from integration.scraping import scrape
from integration.space import Space
from integration.waiting import NotYet, until


@pytest_asyncio.fixture
async def space(crash_cluster: RunningCluster, crash_space: Space) -> AsyncIterator[Space]:
    """Give a space; no limits are left behind."""
    yield crash_space
    await put_queues(crash_cluster, NO_LIMITS)


async def limit_queues(cluster: RunningCluster, text: str) -> None:
    """Put queues in force and wait until the scheduler's gate keeps to them."""
    await put_queues(cluster, text)
    state = await control_state(cluster)

    async def read() -> bool:
        seen = (await scrape(cluster.info.scheduler_url)).total("makeway_scheduler_control_revision")
        if seen < state.revision:
            raise NotYet(f"revision {seen}")
        return True

    await until("the scheduler has read the limits", read)


def waiting(name: str, path: str = "") -> PodBuilder:
    """A pod of one core that the scheduler has to place, in a queue."""
    builder = make_pod(name).priority("low").cpu(1)
    return builder.label("queue", path) if path else builder


async def events_of(space: Space, name: str) -> dict[str, str]:
    """The Events on a pod, message by reason."""
    found = await space.cluster.kubectl(
        "get",
        "events.events.k8s.io",
        "-n",
        space.namespace,
        "--field-selector",
        f"regarding.name={name}",
        "-o",
        "json",
    )
    return {event["reason"]: event["note"] for event in json.loads(found)["items"]}


async def test_a_label_that_names_no_queue_of_the_namespace_holds_the_pod_and_says_so(space: Space) -> None:
    await run_in_queue(space, 1)
    limited = queue(space.namespace, max=1)
    await limit_queues(space.cluster, queues_yaml(limited, queue("team-of-others", max=10)))
    await settle()

    labels = {"nonsense": "nonsense", "theirs": "root.team-of-others", "default": "root.default"}
    await space.create(*(waiting(name, path) for name, path in labels.items()))

    async def told() -> bool:
        for name in labels:
            if "QueueNotUsed" not in (events := await events_of(space, name)):
                raise NotYet(f"{name}: {events}")
        return True

    await until("each pod has a Warning", told)
    assert (await events_of(space, "nonsense"))["QueueNotUsed"] == (
        "there is no queue nonsense; it counts in root.@unplaced, and is held while it has no node"
    )
    pods = await space.pods()
    assert [name for name in labels if pods[name].spec.node_name] == []
    (scheduled,) = [one for one in pods["theirs"].status.conditions or () if one.type == "PodScheduled"]
    assert scheduled.reason == "QueueFull"
    assert "no queue takes the pod" in (scheduled.message or "")


async def test_a_label_that_is_changed_on_a_running_pod_frees_no_quota(space: Space) -> None:
    await run_in_queue(space, 2)
    path = f"root.{space.namespace}"
    await limit_queues(space.cluster, queues_yaml(queue(space.namespace, max=2)))
    await until_state(space.cluster, path, "the pod counts", lambda state: state.pods == 1)

    await space.cluster.kubectl("label", "pod", "-n", space.namespace, "p1", "queue=nonsense")
    await space.create(waiting("next"))
    await settle()

    assert (await state_of(space.cluster, path)).pods == 1
    assert (await space.pods())["next"].spec.node_name is None
