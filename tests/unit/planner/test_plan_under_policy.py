"""Hard budgets, limits, and what a refusal under a policy says: why, who is exempt, when to ask again."""

from datetime import timedelta
from functools import partial

import msgspec
import pytest

from makeway.core.k8s.budget import PENDING, READY, UNREADY, Budget, Health, budget_of
from makeway.core.k8s.objects import PodDisruptionBudget
from makeway.core.policy.document import Policy, PolicyLimits, Protection
from makeway.core.policy.facts import PodFacts
from makeway.planner.snapshot.changes import Enforce, PutBudget, PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    ask,
    choices,
    make_budget,
    make_class,
    make_pod,
    make_snapshot,
    planned,
    refused,
    scheduled,
)

HARD = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))
URGENT = make_pod("P", priority=HIGH, size=200)
APP = {"app": "web"}
SOURCE = ("ConfigMap", "makeway-system", "makeway-policy")


def web(uid: str, node: str, size: int = 200, **more: object) -> object:
    return make_pod(uid, node, LOW, size, labels=APP, **more)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- hard budgets


def test_a_pod_under_an_exhausted_hard_budget_is_not_removable() -> None:
    snapshot = make_snapshot(
        ["a"],
        [web("w", "a", 400), make_pod("x", "a", LOW, 100)],  # type: ignore[list-item]
        [make_budget("web", APP, 0)],
        policy=HARD,
    )

    refusal = refused(snapshot, ask(URGENT))

    assert refusal.reason == "NotEnoughRoom"
    assert "1 pod exempt by hard-budget" in refusal.message
    assert refusal.exempt == {"hard-budget": 1}
    assert ("PodDisruptionBudget", "default", "web") in refusal.depends_on


@pytest.mark.parametrize(
    ("health", "unhealthy", "healthy", "goes"),
    [
        (READY, "AlwaysAllow", (1, 2), False),
        (UNREADY, "AlwaysAllow", (1, 2), True),
        (UNREADY, "IfHealthyBudget", (1, 2), False),
        (UNREADY, "IfHealthyBudget", (2, 2), True),
        (UNREADY, None, (2, 2), True),
        (UNREADY, None, (0, 0), False),
        (PENDING, None, (1, 2), True),
    ],
)
def test_a_pod_that_is_not_healthy_goes_where_the_eviction_api_would_evict_it(
    health: Health, unhealthy: str | None, healthy: tuple[int, int], goes: bool
) -> None:
    snapshot = make_snapshot(
        ["a"],
        [web("w", "a", 400, health=health)],  # type: ignore[list-item]
        [make_budget("web", APP, 0, unhealthy=unhealthy, healthy=healthy)],
        policy=HARD,
    )

    if goes:
        (proposal,) = planned(snapshot, ask(URGENT)).candidates
        assert proposal.pdb_violations == 0
    else:
        assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}


def test_a_plan_that_is_made_again_sees_that_a_pod_became_ready_and_that_its_budget_is_healthy() -> None:
    budget = partial(make_budget, "web", APP, 0)
    snapshot = make_snapshot(
        ["a"],
        [web("w", "a", 400, health=UNREADY)],  # type: ignore[list-item]
        [budget(healthy=(1, 2))],
        policy=HARD,
    )
    assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}

    snapshot.apply(PutBudget(budget(healthy=(2, 2))))
    assert planned(snapshot, ask(URGENT)).candidates

    snapshot.apply(PutPod(web("w", "a", 400)))  # type: ignore[arg-type]
    assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}


def test_a_pod_under_two_hard_budgets_stays_since_the_eviction_api_evicts_no_such_pod() -> None:
    budgets = [make_budget("one", APP, 5), make_budget("two", APP, 5)]
    hard = make_snapshot(["a"], [web("w", "a", 400)], budgets, policy=HARD)  # type: ignore[list-item]
    soft = make_snapshot(["a"], [web("w", "a", 400)], budgets)  # type: ignore[list-item]

    assert refused(hard, ask(URGENT)).exempt == {"hard-budget": 1}
    assert planned(soft, ask(URGENT)).candidates


def test_budgets_become_hard_and_soft_again_with_the_policy() -> None:
    snapshot = make_snapshot(["a"], [web("w", "a", 400)], [make_budget("web", APP, 1, settled=False)])  # type: ignore[list-item]

    snapshot.apply(Enforce(HARD, "2"))
    assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}

    snapshot.apply(Enforce(Policy(), "3"))
    assert planned(snapshot, ask(URGENT)).candidates


def test_a_tenants_budget_keeps_no_pod_where_the_policy_does_not_list_its_namespace() -> None:
    held = Policy(disruption_budgets="hard", hard_budget_namespaces=("payments",))
    budgets = [make_budget("web", APP, 0), make_budget("web", APP, 0, namespace="payments")]
    pods = [web("w", "a", 400), web("paid", "b", 400, namespace="payments")]
    snapshot = make_snapshot(["a", "b"], pods, budgets, policy=held)  # type: ignore[arg-type]

    (proposal,) = planned(snapshot, ask(URGENT)).candidates

    assert (proposal.node, proposal.pdb_violations) == ("a", 1)


def test_of_pods_whose_hard_budget_allows_some_so_many_may_go_and_no_more() -> None:
    pods = [web(uid, "a", 100, start=start) for start, uid in enumerate("vwxyz", 1)]
    two = make_snapshot(["a"], pods, [make_budget("web", APP, 2)], policy=HARD)  # type: ignore[arg-type]
    one = make_snapshot(["a"], pods, [make_budget("web", APP, 1)], policy=HARD)  # type: ignore[arg-type]

    (proposal,) = planned(two, ask(URGENT)).candidates
    refusal = refused(one, ask(URGENT))

    assert len(proposal.victims) == len(proposal.removable) == 2
    assert proposal.pdb_violations == 0
    assert refusal.exempt == {"hard-budget": 4}


def test_the_pod_that_makes_the_room_alone_may_go_though_it_would_violate_as_one_of_all() -> None:
    snapshot = make_snapshot(
        ["a"],
        [web("small", "a", 100, start=1), web("large", "a", 400, start=2)],  # type: ignore[list-item]
        [make_budget("web", APP, 1)],
        policy=HARD,
    )

    (proposal,) = planned(snapshot, ask(URGENT)).candidates

    assert [one.pod.uid for one in proposal.removable] == ["large"]


def test_evictions_in_flight_are_taken_from_a_hard_budget() -> None:
    snapshot = make_snapshot(
        ["a", "b"],
        [web("gone", "b"), web("w", "a", 400)],  # type: ignore[list-item]
        [make_budget("web", APP, 1)],
        policy=HARD,
    )

    refusal = refused(snapshot, ask(URGENT, nodes=["a"], in_flight={"gone": "ord-1"}))

    assert refusal.exempt == {"hard-budget": 1}


# ------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("most", "nodes"), [(1, ["b"]), (2, ["a", "b"]), (100, ["a", "b"])])
def test_a_node_that_needs_more_victims_than_allowed_is_no_candidate(most: int, nodes: list[str]) -> None:
    snapshot = make_snapshot(
        ["a", "b"],
        [make_pod("a1", "a", LOW, 250), make_pod("a2", "a", LOW, 250), make_pod("b1", "b", MID, 500)],
        policy=Policy(limits=PolicyLimits(victims_per_order=most)),
    )

    result = planned(snapshot, ask(make_pod("P", priority=HIGH, size=300)))

    assert [node for node, _ in choices(result)] == nodes
    assert {proposal.max_victims for proposal in result.candidates} == {most or 0}


def test_a_refusal_for_too_many_victims_depends_on_the_policy() -> None:
    snapshot = make_snapshot(["a"], [make_pod("a1", "a", LOW, 250), make_pod("a2", "a", LOW, 250)])
    snapshot.apply(Enforce(Policy(limits=PolicyLimits(victims_per_order=1)), "rev-2", SOURCE))

    refusal = refused(snapshot, ask(make_pod("P", priority=HIGH, size=300)))

    assert refusal.reason == "ForbiddenByPolicy"
    assert refusal.node_reasons == {"More victims than an order may have": 1}
    assert refusal.depends_on == (SOURCE,)


# ---------------------------------------------------------------------------------------- refusals


def tolerant(*pods: tuple[str, int, float | None]) -> Snapshot:
    """One full node with pods of class steady (100 s) of a size, scheduled so many seconds ago."""
    return make_snapshot(
        ["a"],
        [make_pod(uid, "a", LOW, size, facts=scheduled(ago, "steady")) for uid, size, ago in pods],
        classes=[make_class("steady", HIGH + 1, 100), make_class("unused", HIGH + 1, 100)],
    )


def test_a_refusal_says_how_many_pods_a_toleration_spares_and_until_when_the_first() -> None:
    refusal = refused(tolerant(("x", 100, 40), ("y", 400, 10)), ask(URGENT))

    assert refusal.reason == "PodsSpared"
    assert "2 pods exempt by preemption-toleration, the first until 2026-01-01T12:01:00Z" in refusal.message
    assert refusal.node_reasons == {"All pods of lower priority are exempt": 1}


def test_it_is_to_be_asked_again_when_the_tolerations_that_matter_have_ended() -> None:
    refusal = refused(tolerant(("small", 100, 40), ("large", 400, 10)), ask(URGENT))

    assert refusal.retry_at == NOW + timedelta(seconds=90, milliseconds=1)


def test_tolerations_that_end_one_after_the_other_are_added_up() -> None:
    refusal = refused(tolerant(("x", 150, 30), ("y", 150, 20), ("z", 200, 10)), ask(URGENT))

    assert refusal.retry_at == NOW + timedelta(seconds=80, milliseconds=1)


def test_no_time_is_given_where_none_helps() -> None:
    assert refused(tolerant(("x", 100, 40), ("y", 400, None)), ask(URGENT)).retry_at is None


def test_it_depends_on_the_classes_that_exempt_and_are_in_use() -> None:
    assert refused(tolerant(("x", 500, 10)), ask(URGENT)).depends_on == (("PriorityClass", "", "steady"),)


def test_the_nearest_nodes_name_which_pods_are_exempt_by_which_rule_with_its_numbers() -> None:
    refusal = refused(tolerant(("x", 500, 10)), ask(URGENT))

    (near,) = refusal.nearest
    (exempt,) = near.exempt.pods
    assert near.missing == {"cpu": 200, "memory": 200}
    assert (exempt.pod.uid, exempt.verdict.rule) == ("x", "preemption-toleration")
    assert exempt.verdict.until == NOW + timedelta(seconds=90)
    assert f"{HIGH} < minimum-preemptable-priority {HIGH + 1}" in exempt.verdict.detail


def test_protected_pods_are_counted_by_rule_and_make_the_answer_depend_on_the_policy() -> None:
    snapshot = make_snapshot(
        ["a"],
        [
            make_pod("m", "a", LOW, 250, facts=PodFacts(mirror=True)),
            make_pod("p", "a", MID, 250, facts=PodFacts()),
        ],
    )
    snapshot.apply(Enforce(Policy(protection=Protection(minimum_priority=MID)), "rev-2", SOURCE))

    refusal = refused(snapshot, ask(URGENT))

    assert refusal.exempt == {"mirror-pod": 1, "protected-priority": 1}
    assert refusal.depends_on == (SOURCE,)
    assert refusal.retry_at is None


def test_without_policy_a_refusal_depends_on_nothing() -> None:
    refusal = refused(make_snapshot(["a"], [make_pod("x", "a", HIGH, 500)]), ask(URGENT))

    assert (refusal.reason, refusal.depends_on, refusal.exempt) == ("NoLowerPriorityPods", (), {})


def test_the_best_candidates_say_which_pods_are_exempt_there_the_least_important_first() -> None:
    kept = [make_pod(f"k{i}", "a", LOW, 10, start=i, facts=PodFacts(mirror=True)) for i in range(10)]
    snapshot = make_snapshot(["a"], [make_pod("v", "a", MID, 400), *kept])

    (proposal,) = planned(snapshot, ask(URGENT)).candidates

    assert proposal.exempt.total == 10
    assert [one.pod.uid for one in proposal.exempt.pods] == [f"k{i}" for i in range(9, 1, -1)]
    assert {one.verdict.rule for one in proposal.exempt.pods} == {"mirror-pod"}


# ------------------------------------------------------------------------------------ what hard budgets cover


ABSENT = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}


def frozen(selector: object, name: str = "freeze") -> Budget:
    made = {
        "metadata": {"namespace": "default", "name": name, "generation": 1},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    return budget_of(msgspec.convert(made, PodDisruptionBudget))


def snapshot_under(budget: Budget, labels: dict[str, str], policy: Policy) -> Snapshot:
    return make_snapshot(["a"], [make_pod("w", "a", LOW, 400, labels=labels)], [budget], policy=policy)


@pytest.mark.parametrize(("selector", "labels"), [({}, {"app": "web"}), ({}, {}), (ABSENT, {})])
def test_a_hard_budget_keeps_what_the_eviction_api_counts(selector: object, labels: dict[str, str]) -> None:
    snapshot = snapshot_under(frozen(selector), labels, HARD)
    assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}


@pytest.mark.parametrize(("selector", "labels"), [({}, {"app": "web"}), ({}, {}), (ABSENT, {})])
def test_a_soft_budget_covers_only_what_schedulers_count(selector: object, labels: dict[str, str]) -> None:
    snapshot = snapshot_under(frozen(selector), labels, Policy())
    assert snapshot.budgets.members(snapshot.budget_set("w")) == ()
    assert planned(snapshot, ask(URGENT)).candidates[0].node == "a"


@pytest.mark.parametrize(("selector", "labels"), [({}, {"app": "web"}), ({}, {}), (ABSENT, {})])
def test_pods_are_matched_anew_when_their_budgets_become_hard_or_soft(
    selector: object, labels: dict[str, str]
) -> None:
    snapshot = snapshot_under(frozen(selector), labels, Policy())
    snapshot.apply(Enforce(HARD, "hard"))
    assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}
    snapshot.apply(Enforce(Policy(), "soft"))
    assert planned(snapshot, ask(URGENT)).candidates[0].node == "a"
    assert snapshot.budgets.members(snapshot.budget_set("w")) == ()


def test_only_namespaces_whose_budgets_become_hard_and_cover_others_then_are_matched_anew() -> None:
    snapshot = snapshot_under(frozen({"matchLabels": {"app": "web"}}), {"app": "web"}, Policy())
    assert snapshot.budgets.hold(("*",)) == []
    snapshot.apply(PutBudget(frozen({}, "all")))
    assert snapshot.budgets.hold(("*",)) == []
    assert snapshot.budgets.hold(("other",)) == ["default"]
    assert snapshot.budgets.hold(("default",)) == ["default"]


def test_many_budgets_with_an_empty_selector_are_too_many_only_where_they_are_hard() -> None:
    snapshot = snapshot_under(frozen({}), {"app": "web"}, Policy())
    for number in range(200):
        snapshot.apply(PutBudget(frozen({}, f"b{number}")))
    assert planned(snapshot, ask(URGENT)).candidates[0].victims[0].pdb_violating is False
    snapshot.apply(Enforce(HARD, "hard"))
    assert refused(snapshot, ask(URGENT)).exempt == {"hard-budget": 1}
