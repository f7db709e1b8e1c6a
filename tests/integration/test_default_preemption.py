"""kube-scheduler's own preemption rules, asked of the whole of makeway on the real control plane.

The DP cases of docs/conformance.md.

Each case fills nodes of its own, lets one pod fail, and reads the answer where anyone can: the decision
record, the order, the audit log and the binding. Nodes hold 500 milli-CPU and 500 MiB.
"""

from dataclasses import dataclass, field

import pytest

from integration.builders import NEVER_PREEMPTS, NodeBuilder, PodBuilder, make_node, make_pod
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    first_decision,
    outcome_of_order,
    settle,
)
from integration.space import Space
from makeway.bus.decisions import DecisionRecord
from makeway.core.k8s.objects import Pod

pytestmark = pytest.mark.both_forms(by_target=True)

S, M, L, XL = 100, 200, 300, 500


@dataclass(frozen=True)
class Case:
    """Which pods stand on which node, who asks, and each candidate's victims, the best candidate first.

    A filler is (name, priority class, size, start in seconds).
    """

    nodes: dict[str, list[tuple[str, str, int, int]]]
    priority: str
    size: int
    candidates: dict[str, set[str]] = field(default_factory=dict)

    @property
    def nominated(self) -> str:
        """The node that wins."""
        return next(iter(self.candidates), "")


def pair(first: str, second: str, size: int, starts: tuple[int, int]) -> list[tuple[str, str, int, int]]:
    return [("a", first, size, starts[0]), ("b", second, size, starts[1])]


HALF = 250

CASES = {
    "DP-1 one pod of lower priority on each node": Case(
        {"n1": [("p1", "mid", L, 1)], "n2": [("p2", "mid", L, 1)]},
        "high",
        L,
        {"n1": {"p1"}, "n2": {"p2"}},
    ),
    "DP-2 everybody has higher priority": Case(
        {"n1": [("a", "mid", L, 1)], "n2": [("b", "mid", L, 1)]}, "low", L
    ),
    "DP-2 everybody has equal priority": Case({"n1": [("a", "mid", L, 1)]}, "mid", L),
    "DP-3 the small one that need not go stays": Case(
        {"n1": [("low", "low", S, 1), ("mid", "mid", L, 1)]}, "high", L, {"n1": {"mid"}}
    ),
    "DP-4 the more important are reprieved, one node is out of reach": Case(
        {
            "n1": [("a", "mid", S, 1), ("b", "low", S, 1), ("c", "mid", M, 1), ("d", "high", S, 1)],
            "n2": [("e", "high", L, 1)],
        },
        "high",
        L,
        {"n1": {"b", "c"}},
    ),
    "DP-5 of two equals the newer goes": Case(
        {"n1": [("a", "low", S, 5), ("b", "low", S, 4), ("c", "mid", M, 3), ("d", "high", S, 2)]},
        "high",
        L,
        {"n1": {"a", "c"}},
    ),
    "DP-10 the lowest highest priority wins": Case(
        {
            "n1": pair("mid", "mid", HALF, (1, 1)),
            "n2": pair("mid", "low", HALF, (1, 1)),
            "n3": pair("low", "low", HALF, (1, 1)),
        },
        "high",
        XL,
        {"n3": {"a", "b"}, "n2": {"a", "b"}, "n1": {"a", "b"}},
    ),
    "DP-11 the lowest sum of priorities wins": Case(
        {
            "n1": [("a", "mid", M, 1), ("b", "mid", L, 1)],
            "n2": [("a", "mid", L, 1), ("b", "low", M, 1)],
            "n3": [("a", "mid", M, 1), ("b", "mid", M, 1)],
        },
        "high",
        XL,
        {"n2": {"a", "b"}, "n1": {"a", "b"}, "n3": {"a", "b"}},
    ),
    "DP-12 a few pods of negative priority do not outweigh one more pod": Case(
        {
            "n1": [("a", "mid", S, 1), ("b", "neg", S, 1), ("c", "mid", S, 1), ("d", "neg", S, 1)],
            "n2": [("a", "mid", L, 1), ("b", "neg", M, 1)],
            "n3": [("a", "mid", M, 1), ("b", "neg", S, 1), ("c", "low", S, 1)],
        },
        "high",
        XL,
        {"n2": {"a", "b"}, "n3": {"a", "b", "c"}, "n1": {"a", "b", "c", "d"}},
    ),
    "DP-13 the latest start wins": Case(
        {
            "n1": pair("mid", "mid", M, (2, 2)),
            "n2": pair("mid", "mid", M, (3, 3)),
            "n3": pair("mid", "mid", M, (1, 1)),
        },
        "high",
        XL,
        {"n2": {"a", "b"}, "n1": {"a", "b"}, "n3": {"a", "b"}},
    ),
    "DP-13 the latest of the earliest starts wins": Case(
        {
            "n1": pair("mid", "mid", M, (4, 2)),
            "n2": pair("mid", "mid", M, (5, 1)),
            "n3": pair("mid", "mid", M, (3, 6)),
        },
        "high",
        XL,
        {"n3": {"a", "b"}, "n1": {"a", "b"}, "n2": {"a", "b"}},
    ),
    "DP-18 two equals: the lower name wins": Case(
        {"n2": [("a", "mid", L, 1)], "n1": [("a", "mid", L, 1)]}, "high", L, {"n1": {"a"}, "n2": {"a"}}
    ),
}


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
    await space.run(
        sized("a", "low", S).anti_affinity("app", "foo").on("n1"),
        sized("b", "mid", S).on("n1"),
        sized("c", "high", S).on("n1"),
    )
    await settle()

    (preemptor,) = await space.create(sized("p", "high", S).label("app", "foo"))

    await assert_carried_out(space, preemptor, "n1", {"a"})


@pytest.mark.both_forms
async def test_dp_15_a_pod_that_may_never_preempt_evicts_nobody(space: Space) -> None:
    await space.add_nodes(node("n1"))
    await space.run(sized("a", "low", XL).on("n1"))
    await settle()

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
    await space.run(
        *[
            sized(f"{on}-{name}", priority, size).on(on).started(start)
            for on, pods in case.nodes.items()
            for name, priority, size, start in pods
        ]
    )
    await settle()


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
