"""kube-scheduler's own preemption rules, asked of the whole of makeway on the real control plane.

The DP cases of docs/conformance.md.

Each case fills nodes of its own, lets one pod fail, and reads the answer where anyone can: the decision
record, the order, the audit log and the binding. Nodes hold 500 milli-CPU and 500 MiB.
"""

import pytest

from integration.builders import NEVER_PREEMPTS, NodeBuilder, PodBuilder, make_node, make_pod
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    first_decision,
    outcome_of_order,
    run_victims,
    settle,
)
from integration.space import Space
from makeway.bus.decisions import DecisionRecord
from makeway.core.k8s.objects import Pod
from preemption_cases import CASES, XL, Case, M, S

pytestmark = pytest.mark.both_forms(by_target=True)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_default_preemption(space: Space, case: Case) -> None:
    await fill(space, case)

    (preemptor,) = await space.create(sized("p", case.priority, case.size))
    decision = await first_decision(space, preemptor)

    assert candidates(space, decision) == case.candidates
    assert list(candidates(space, decision)) == list(case.candidates)
    if not case.candidates:
        await assert_refused(space, preemptor, decision)
        return
    await assert_carried_out(space, preemptor, case.nominated, case.candidates[case.nominated])


@pytest.mark.parametrize(
    ("min_available", "disrupted", "violations"),
    [(1, [], 1), (0, ["b"], 0)],
    ids=["DP-6 one of two violates the budget", "DP-7 an eviction already counted does not"],
)
async def test_a_budget_counts_violations(
    space: Space, min_available: int, disrupted: list[str], violations: int
) -> None:
    await space.add_nodes(node("n1"))
    await space.run(*[sized(name, "mid", M).label("app", "foo").on("n1").started(1) for name in "ab"])
    await space.disruption_budget("foo", {"app": "foo"}, minAvailable=min_available)
    await space.mark_disrupted("foo", *disrupted)
    await space.until_disruptions_allowed("foo", 1)
    await settle()

    (preemptor,) = await space.create(sized("p", "high", XL))
    decision = await first_decision(space, preemptor)

    assert candidates(space, decision) == {"n1": {"a", "b"}}
    assert decision.pdb_violations == violations
    await assert_carried_out(space, preemptor, "n1", {"a", "b"})


@pytest.mark.both_forms
async def test_dp_8_a_constraint_the_planner_does_not_model_is_verified_by_the_scheduler(
    space: Space,
) -> None:
    await space.add_nodes(node("n1"))
    await run_victims(
        space,
        sized("a", "low", S).anti_affinity("app", "foo").on("n1"),
        sized("b", "mid", S).on("n1"),
        sized("c", "high", S).on("n1"),
    )

    (preemptor,) = await space.create(sized("p", "high", S).label("app", "foo"))

    await assert_carried_out(space, preemptor, "n1", {"a"})


@pytest.mark.both_forms
async def test_dp_15_a_pod_that_may_never_preempt_evicts_nobody(space: Space) -> None:
    await space.add_nodes(node("n1"))
    await run_victims(space, sized("a", "low", XL).on("n1"))

    (preemptor,) = await space.create(sized("p", NEVER_PREEMPTS, XL))
    with pytest.raises(AssertionError, match="Insufficient cpu"):
        await space.until_bound("p", seconds=2)

    assert await space.bus.orders(preemptor.metadata.uid) == []
    assert await space.pod("a") is not None


def node(name: str) -> NodeBuilder:
    return make_node(name).cpu("500m").memory("500Mi")


def sized(name: str, priority: str, size: int) -> PodBuilder:
    return make_pod(name).priority(priority).cpu(f"{size}m").memory(f"{size}Mi")


async def fill(space: Space, case: Case) -> None:
    """Create the case's nodes and running pods; a pod's name in the cluster has its node in front."""
    await space.add_nodes(*[node(name) for name in case.nodes])
    await run_victims(
        space,
        *[
            sized(f"{on}-{name}", priority, size).on(on).started(start)
            for on, pods in case.nodes.items()
            for name, priority, size, start in pods
        ],
    )


def candidates(space: Space, decision: DecisionRecord) -> dict[str, set[str]]:
    """Candidates and their victims, best first, in the case's words."""
    return {
        space.short(candidate.node): {victim.name.rpartition("-")[2] for victim in candidate.victims}
        for candidate in decision.candidates
    }


async def assert_carried_out(space: Space, preemptor: Pod, node: str, victims: set[str]) -> None:
    """One order, for exactly these; they are gone, the pod is bound there, once; nobody else was deleted."""
    name = preemptor.metadata.name
    assert await space.until_bound(name) == node
    order, outcome = await outcome_of_order(space, preemptor)

    assert space.short(order.node) == node
    assert {victim.name.rpartition("-")[2] for victim in order.victims} == victims
    assert outcome.result == "succeeded"
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    assert not {victim.name for victim in order.victims} & set(await space.pods())
    assert_bound_once(space, name)
    await assert_only_ordered_pods_were_deleted(space, [preemptor])


async def assert_refused(space: Space, preemptor: Pod, decision: DecisionRecord) -> None:
    """No order, nobody deleted, and a reason."""
    assert decision.status == "refused"
    assert decision.diagnosis is not None
    assert decision.diagnosis.message
    with pytest.raises(AssertionError, match="Insufficient cpu"):
        await space.until_bound(preemptor.metadata.name, seconds=1)
    assert await space.bus.orders(preemptor.metadata.uid) == []
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
