"""A scheduler that dies while an order is live; its successor adopts it and issues no second.

Case A-13 of docs/conformance.md.
"""

import pytest

from integration.builders import make_node
from integration.crashing import assert_nothing_left_behind
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    ordered,
    outcome_of_order,
    run_victims,
    sized,
)
from integration.space import Space
from integration.waiting import until_seen

LEADS_SECONDS = 30.0
"""For a lease to run out and a successor to lead; the machine is shared."""


@pytest.mark.parametrize("evictor", [pytest.param("meanwhile", marks=pytest.mark.slow), "afterwards"])
async def test_a_13_the_successor_adopts_a_live_order(race_space: Space, evictor: str) -> None:
    space = race_space
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    await race_space.cluster.stop("evictor")
    preemptor = await ordered(space, sized("p", "high", 500))

    await race_space.cluster.kill("scheduler")
    if evictor == "meanwhile":
        await race_space.cluster.start("evictor")
        await outcome_of_order(space, preemptor)
    await race_space.cluster.start("scheduler")
    if evictor == "afterwards":
        await space.create(sized("thief", "mid", 500))
        await until_led(space)
        await assert_stays_pending(space, "thief", seconds=1)
        await race_space.cluster.start("evictor")

    assert await space.until_bound("p", seconds=LEADS_SECONDS) == "n1"
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    assert_bound_once(space, "p")
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
    await assert_nothing_left_behind(space)


async def until_led(space: Space) -> None:
    """Wait until a scheduler schedules: a pod that needs no node of the others' is bound."""
    await space.add_nodes(make_node("free").cpu("100m"))
    await space.create(sized("canary", "low", 100))

    await until_seen(
        "a scheduler leads",
        lambda: space.node_of("canary"),
        lambda seen: seen == "free",
        seconds=LEADS_SECONDS,
    )
