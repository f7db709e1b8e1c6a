"""Cases that need more than one or two nodes: a spread over zones (DP-9), the best of 200 (DP-14).

The numbers are of docs/conformance.md.
"""

import asyncio

import pytest

from integration.builders import make_node, make_pod
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    outcome_of_order,
    run_victims,
    settle,
    sized,
)
from integration.space import Space

pytestmark = pytest.mark.both_forms(by_target=True)

NODES = 200
BATCH = 25
ZONE = "topology.kubernetes.io/zone"


async def test_dp_9_a_hard_spread_over_zones_and_nodes_decides_where_room_can_be_made(space: Space) -> None:
    await space.add_nodes(
        *[make_node(name).label(ZONE, zone) for name, zone in (("a", "one"), ("b", "one"), ("x", "two"))]
    )
    await run_victims(
        space,
        *[
            make_pod(name).priority(priority).label("app", "foo").on(node).started(start)
            for name, priority, node, start in (
                ("a-mid", "mid", "a", 1),
                ("a-low", "low", "a", 1),
                ("b-low", "low", "b", 2),
                ("x-1", "high", "x", 1),
                ("x-2", "high", "x", 1),
            )
        ],
    )

    builder = make_pod("p").priority("high").label("app", "foo")
    (preemptor,) = await space.create(
        builder.spread("app", "foo", ZONE).spread("app", "foo", "kubernetes.io/hostname")
    )

    # Both nodes of zone one would do with one victim each; that of b has run for the shorter time.
    assert await space.until_bound("p") == "b"
    order, _ = await outcome_of_order(space, preemptor)
    assert [victim.name for victim in order.victims] == ["b-low"]
    assert_bound_once(space, "p")
    await assert_only_ordered_pods_were_deleted(space, [preemptor])


@pytest.mark.slow
async def test_dp_14_the_one_good_node_of_200_is_found(space: Space) -> None:
    # kube-scheduler looks at a tenth of the candidates, and would find it one time in two.
    names = [f"n{number:03}" for number in range(NODES)]
    best = names[NODES * 2 // 3]
    for first in range(0, NODES, BATCH):
        batch = names[first : first + BATCH]
        await space.add_nodes(*[make_node(name).cpu("500m") for name in batch])
        await asyncio.gather(
            *[space.create(sized(f"on-{n}", "low" if n == best else "mid", 500).on(n)) for n in batch]
        )
    await asyncio.gather(*[space.until_running(f"on-{name}", seconds=60) for name in names])
    await settle()

    (preemptor,) = await space.create(sized("p", "high", 500))

    assert await space.until_bound("p") == best
    order, _ = await outcome_of_order(space, preemptor)
    assert [victim.name for victim in order.victims] == [f"on-{best}"]
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
