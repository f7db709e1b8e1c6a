"""Many urgent pods at once: everybody is placed, nobody is evicted for nothing."""

from collections import Counter

import pytest

from integration.builders import make_node, make_pod
from integration.preempting import (
    all_orders,
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    run_victims,
)
from integration.scraping import scrape
from integration.space import Space
from integration.waiting import until_seen

pytestmark = pytest.mark.wide

NODES = 50
PREEMPTORS = 100
AHEAD = "makeway_scheduler_plans_ahead_total"


async def test_a_hundred_urgent_pods_on_fifty_full_nodes(space: Space) -> None:
    await space.add_nodes(*[make_node(f"n{number:02}").cpu(1) for number in range(NODES)])
    await run_victims(
        space,
        *[
            make_pod(f"low-{number:03}").priority("low").cpu("500m").on(f"n{number // 2:02}")
            for number in range(PREEMPTORS)
        ],
    )
    scheduler = space.cluster.info.scheduler_url
    before = await scrape(scheduler)

    urgent = await space.create(
        *[make_pod(f"urgent-{number:03}").priority("high").cpu("500m") for number in range(PREEMPTORS)]
    )

    await until_seen(
        "every urgent pod is bound",
        space.pods,
        lambda pods: all(pod.spec.node_name for name, pod in pods.items() if name.startswith("urgent")),
        every=0.2,
    )
    orders = await all_orders(space, urgent)
    ordered = Counter(victim.uid for order in orders for victim in order.victims)
    assert len(ordered) == PREEMPTORS
    assert set(ordered.values()) == {1}
    # A preemptor whose room is there may still have to wait for a neighbour's victims, since the neighbour's
    # nomination counts already. That is an order with awaited pods and no victims of its own.
    with_victims = Counter(order.preemptor.uid for order in orders if order.preemptor and order.victims)
    assert max(with_victims.values()) == 1
    assert_bound_once(space, *[pod.metadata.name for pod in urgent])
    await assert_only_ordered_pods_were_deleted(space, urgent)
    # All but the first two are expected to need a plan, and are asked for while the filters run.
    used = (await scrape(scheduler)).total(AHEAD, result="used") - before.total(AHEAD, result="used")
    assert used > PREEMPTORS / 2
