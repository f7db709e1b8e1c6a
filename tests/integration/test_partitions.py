"""One process alone is cut off, and its replica goes on: leaders, and the only evictor that has an order."""

from campaign.lines import Lines, lines_of
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.invariants import assert_invariants
from integration.preempting import run_victims, sized
from integration.space import Space, open_space
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER

BOUND_SECONDS = 60.0


async def test_a_replica_goes_on_while_a_process_is_cut_off_alone(cut_cluster: RunningCluster) -> None:
    nats_servers = cut_cluster.owned.options.nats_servers
    async with (
        lines_of(cut_cluster.info.toxiproxy_url, nats_servers) as lines,
        open_space(cut_cluster) as space,
    ):
        await space.add_nodes(*(make_node(f"n{number}").cpu("500m") for number in range(1, 5)))
        await run_victims(
            space, *(sized(f"low-{number}", "low", 500).on(f"n{number}") for number in range(1, 5))
        )

        await bound_without(space, lines, SCHEDULER, "api silent")
        await bound_without(space, lines, PLANNER, "all cut")
        await bound_without(space, lines, EVICTOR, "nats silent")
        await bound_without(space, lines, EVICTOR, "api cut")
        await assert_invariants(space)


async def bound_without(space: Space, lines: Lines, process: str, fault: str) -> None:
    """Have one more urgent pod bound while a process is cut off."""
    what, how = fault.split()
    name = f"urgent-{process}-{what}"
    await lines.spoil(process, what, how)
    try:
        await space.create(sized(name, "high", 500))
        await space.until_bound(name, seconds=BOUND_SECONDS)
    finally:
        await lines.mend(process, what)
