"""The limit of orders in flight on a real control plane: no namespace's victims or orders keep out others."""

import json
from collections.abc import Iterator

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import run_victims, sized
from integration.space import Space, another_namespace
from integration.waiting import NotYet, until, until_seen
from makeway.dev.cluster import DevCluster
from makeway.dev.options import ClusterOptions

LIMIT = 10
"""Orders without an outcome. One is kept for higher priorities."""

HELD = 12
"""Preemptors of one namespace: more than the limit."""

SIZE = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Give a control plane whose policy allows ten orders in flight."""
    options = ClusterOptions(limits=(("ordersInFlight", LIMIT),))
    running = RunningCluster(DevCluster(tmp_path_factory.mktemp("limit") / "cluster", options).start())
    yield running
    running.owned.stop()


async def full_nodes(space: Space, *, stay: int) -> None:
    """Make full nodes for all preemptors.

    The victims on so many of them stay terminating. The others' have the preemptors' own priority then, so
    that only a higher one evicts them: else those go that have started last, by the second.
    """
    names = [f"n{number:02}" for number in range(HELD + 2)]
    await space.add_nodes(*[make_node(name).cpu(f"{SIZE}m") for name in names])
    staying = [
        sized(f"low-{name}", "low", SIZE).on(name).finalizer("test.makeway.dev/stay") for name in names[:stay]
    ]
    leaving = [sized(f"low-{name}", "mid" if stay else "low", SIZE).on(name) for name in names[stay:]]
    await run_victims(space, *staying, *leaving)


async def told(space: Space, name: str) -> str:
    """Return the message of a pod's condition PodScheduled."""
    pod = (await space.pods())[name]
    return next((one.message or "" for one in pod.status.conditions or () if one.type == "PodScheduled"), "")


async def test_more_victims_than_the_limit_that_stay_terminating_keep_no_one_out(space: Space) -> None:
    await full_nodes(space, stay=HELD)
    await space.create(*[sized(f"mid-{number:02}", "mid", SIZE) for number in range(HELD)])

    await until_seen(
        "more victims are leaving than orders may be in flight",
        space.pods,
        lambda pods: sum(bool(one.metadata.deletion_timestamp) for one in pods.values()) >= HELD,
        seconds=40,
    )
    await space.create(sized("urgent", "high", SIZE))

    await space.until_nominated("urgent", seconds=20)


async def test_orders_without_an_outcome_keep_out_equals_and_not_a_higher_priority(space: Space) -> None:
    space.judged = False  # the checker looks at one namespace
    await full_nodes(space, stay=0)
    async with another_namespace(space) as other:
        async with space.cluster.without("evictor"):
            await space.create(*[sized(f"mid-{number:02}", "mid", SIZE) for number in range(HELD)])

            async def limited() -> bool:
                pods = await space.pods()
                nominated = sum(bool(one.status.nominated_node_name) for one in pods.values())
                waiting = [name for name in pods if "have no outcome yet" in await told(space, name)]
                if (nominated, len(waiting)) != (LIMIT - 1, HELD - LIMIT + 1):
                    raise NotYet(f"{nominated} nominated, {len(waiting)} wait for the limit")
                return True

            await until("nine have an order, and the others say why not", limited, seconds=20)
            manifest = space.manifest(sized("theirs", "mid", SIZE))
            manifest["metadata"]["namespace"] = other
            await space.post(f"/api/v1/namespaces/{other}/pods", manifest)
            await space.create(sized("urgent", "high", SIZE))
            await space.until_nominated("urgent", seconds=20)

        async def all_bound() -> bool:
            pods = {
                name: one.spec.node_name for name, one in (await space.pods()).items() if "low" not in name
            }
            theirs = json.loads(await space.api.request("GET", f"/api/v1/namespaces/{other}/pods/theirs"))
            waiting = [name for name, node in pods.items() if not node]
            if waiting or not theirs["spec"].get("nodeName"):
                raise NotYet(f"{waiting} wait; theirs is on {theirs['spec'].get('nodeName')}")
            return True

        await until("all are bound, as the orders end", all_bound, seconds=60)
