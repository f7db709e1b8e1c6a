"""Who waits for pods that are leaving, and for how long.

Case DP-16 of docs/conformance.md.
"""

import asyncio
import os
from datetime import UTC, datetime

import pytest

from integration.builders import make_node
from integration.preempting import (
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    first_decision,
    run_victims,
    settle,
    sized,
    until_ordered,
)
from integration.space import Space
from makeway.core.k8s.objects import Pod
from makeway.dev.kwok import NEVER

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
PAIR = "tests.makeway.dev/pair"


@pytest.fixture
def space(race_space: Space) -> Space:
    """Run with the test plugins, in each way of the scheduler to call the API."""
    return race_space


def preempted_now() -> dict[str, str]:
    """Return the condition of a pod that a scheduler has just preempted.

    Where the pod is not being deleted yet, kube-controller-manager sets one of two minutes ago to False.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": now,
    }


async def nominated_by_another(space: Space, *, preempted: bool) -> Pod:
    """A pending pod nominated to n1, where another is leaving, whether preempted or for its own reasons."""
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await space.run(
        sized("leaving", "low", 500).grace(30).leaves(NEVER).on("n1"), sized("other", "mid", 500).on("n2")
    )
    if preempted:
        await space.patch("leaving", {"status": {"conditions": [preempted_now()]}}, "status")
    await space.delete("leaving")
    (pod,) = await space.create(sized("p", "high", 500).spec(schedulingGates=[{"name": "example.com/hold"}]))
    await space.patch("p", {"status": {"nominatedNodeName": space.node_name("n1")}}, "status")
    await settle()
    return pod


@pytest.mark.both_forms
async def test_dp_16_a_pod_waits_for_a_pod_that_was_preempted_on_its_node(space: Space) -> None:
    pod = await nominated_by_another(space, preempted=True)

    await space.patch("p", {"spec": {"schedulingGates": []}})

    await assert_stays_pending(space, "p")
    assert await space.bus.decisions(pod.metadata.uid) == []
    await space.delete("leaving", grace_seconds=0)
    assert await space.until_bound("p", seconds=5) == "n1"
    assert await space.bus.orders(pod.metadata.uid) == []


async def test_dp_16_a_pod_that_leaves_for_another_reason_does_not_hold_a_preemptor_up(space: Space) -> None:
    pod = await nominated_by_another(space, preempted=False)

    await space.patch("p", {"spec": {"schedulingGates": []}})

    assert (await first_decision(space, pod)).status == "candidates"
    await space.delete("leaving", grace_seconds=0)
    assert await space.until_bound("p", seconds=10) == "n1"


async def test_dp_16_a_nominated_node_that_is_no_place_any_more_does_not_hold_a_preemptor_up(
    space: Space,
) -> None:
    pod = await nominated_by_another(space, preempted=True)
    await space.cordon("n1")
    await settle()

    await space.patch("p", {"spec": {"schedulingGates": []}})

    assert await space.until_bound("p") == "n2"
    assert [victim.name for victim in (await until_ordered(space, pod)).victims] == ["other"]


@pytest.mark.both_forms
@pytest.mark.slow
async def test_preemptors_whose_victims_never_leave_go_elsewhere_after_grace_and_more(space: Space) -> None:
    # kubernetes#95752: the preemptor is tied to the node for ever. Each has two nodes of its own.
    await space.add_nodes(
        *(make_node(f"{node}-{n}").cpu("500m").label(PAIR, f"{n}") for n in range(REPEAT) for node in "ab")
    )
    await run_victims(
        space,
        *(sized(f"stuck-{n}", "neg", 500).grace(1).leaves(NEVER).on(f"a-{n}") for n in range(REPEAT)),
        *(sized(f"other-{n}", "low", 500).on(f"b-{n}") for n in range(REPEAT)),
    )

    preemptors = await space.create(
        *(sized(f"p-{n}", "high", 500).spec(nodeSelector={PAIR: f"{n}"}) for n in range(REPEAT))
    )
    for n, preemptor in enumerate(preemptors):
        order = await until_ordered(space, preemptor)
        assert [victim.name for victim in order.victims] == [f"stuck-{n}"]
    await asyncio.sleep(50)
    assert [await space.node_of(pod.metadata.name) for pod in preemptors] == [""] * REPEAT

    for n, preemptor in enumerate(preemptors):
        assert await space.until_bound(f"p-{n}") == f"b-{n}"
        assert [
            [victim.name for victim in order.victims]
            for order in await space.bus.orders(preemptor.metadata.uid)
        ] == [[f"stuck-{n}"], [f"other-{n}"]]
    await assert_only_ordered_pods_were_deleted(space, preemptors)
