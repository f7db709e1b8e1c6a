"""Disruption budgets that change all the time, and many of them: planning goes on, and none is violated."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.selector import Requirement, Selector
from makeway.core.policy.document import Policy
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.budgets import MOST_A_POD, MOST_LOOSE, TOO_MANY, BudgetTable
from makeway.planner.snapshot.changes import Enforce, PutBudget, PutNode, PutPod, RemoveBudget
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import (
    LOW,
    MID,
    NOW,
    XL,
    L,
    ask,
    choices,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
    planned,
    refused,
    settle,
)
from unit.planner.caching import plan

HARD = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))
LABELS = {"app": "web"}


def serving(policy: Policy | None = None, *, pods: int = 3, chunk: int | None = 1) -> Snapshot:
    """Nodes n0, n1 ... with a pod each in `default`, and one of `other` on z; plans are being made."""
    snapshot = make_snapshot(
        [*(f"n{number}" for number in range(pods)), "z"],
        [
            *(make_pod(f"p{number}", f"n{number}", LOW, XL, labels=LABELS) for number in range(pods)),
            make_pod("other", "z", MID, XL, namespace="other", labels=LABELS),
        ],
        policy=policy,
        chunk=chunk,
    )
    settle(snapshot)
    snapshot.updates.serving = True
    return snapshot


PREEMPTOR = make_pod("P", "", 900, L)


def test_planning_goes_on_while_a_namespaces_budgets_are_applied() -> None:
    snapshot = serving()

    snapshot.apply(PutBudget(make_budget("b", LABELS, 0)))

    assert not snapshot.pending_updates.pending
    assert snapshot.undecided == {"default"}
    assert choices(planned(snapshot, ask(PREEMPTOR)))[0] == ("n0", {"p0"})
    settle(snapshot)
    assert not snapshot.undecided
    assert planned(snapshot, ask(PREEMPTOR)).candidates[0].node == "z"


def test_a_pod_that_a_hard_budget_may_cover_stays_until_that_is_known() -> None:
    snapshot = serving(HARD)

    snapshot.apply(PutBudget(make_budget("b", {"app": "other"}, 0)))

    assert choices(planned(snapshot, ask(PREEMPTOR))) == [("z", {"other"})]
    kept = refused(snapshot, ask(PREEMPTOR, nodes=["n0", "n1"]))
    assert kept.exempt == {HARD_BUDGET: 2}
    settle(snapshot)
    assert choices(planned(snapshot, ask(PREEMPTOR)))[0] == ("n0", {"p0"})


def test_budgets_that_change_all_the_time_are_matched_in_one_pass_after_another() -> None:
    snapshot = serving(pods=8)
    visits = 0
    for number in range(100):
        snapshot.apply(PutBudget(make_budget("b", {"app": f"web-{number}"}, 0)))
        snapshot.upkeep.apply_chunk()
        visits += 1
    snapshot.apply(PutBudget(make_budget("b", LABELS, 0)))
    while snapshot.upkeep.pending:
        snapshot.upkeep.apply_chunk()
        visits += 1

    # 100 edits end no pass: at the most two more are made after the last one.
    assert visits <= 100 + 3 * (8 + 1)
    assert snapshot.budgets.members(snapshot.budget_set("p7")) == (("default", "b"),)


def test_what_changes_while_plans_are_made_is_seen_by_the_next_plan_of_the_class() -> None:
    snapshot = serving()
    assert planned(snapshot, ask(PREEMPTOR)).candidates[0].node == "n0"

    snapshot.apply(PutBudget(make_budget("b", LABELS, 0)))
    while snapshot.upkeep.pending:
        planned(snapshot, ask(PREEMPTOR))
        snapshot.upkeep.apply_chunk()

    assert planned(snapshot, ask(PREEMPTOR)).candidates[0].node == "z"


@pytest.mark.parametrize("number", [MOST_A_POD, MOST_A_POD + 1])
def test_a_pod_under_too_many_budgets_has_none_to_give(number: int) -> None:
    snapshot = serving(pods=1, chunk=None)
    for index in range(number):
        snapshot.apply(PutBudget(make_budget(f"b{index}", LABELS, 5)))

    found = {one.node: one.pdb_violations for one in planned(snapshot, ask(PREEMPTOR)).candidates}

    assert found["n0"] == (0 if number <= MOST_A_POD else 1)
    covering = snapshot.budgets.members(snapshot.budget_set("p0"))
    assert (covering == (("default", TOO_MANY),)) == (number > MOST_A_POD)
    assert len(snapshot.budgets) == number


def test_where_too_many_budgets_require_no_label_the_pods_of_the_namespace_have_none_to_give() -> None:
    snapshot = serving(HARD, pods=1, chunk=None)
    for index in range(MOST_LOOSE + 1):
        snapshot.apply(PutBudget(loose(f"b{index}", f"key-{index}")))

    assert choices(planned(snapshot, ask(PREEMPTOR))) == [("z", {"other"})]
    snapshot.apply(RemoveBudget(("default", "b0")))
    assert choices(planned(snapshot, ask(PREEMPTOR)))[0] == ("n0", {"p0"})


def test_a_pod_is_compared_only_with_budgets_that_require_a_label_of_it() -> None:
    table, asked = BudgetTable(), 0

    class Counted(Budget):
        def covers(self, *args: Any) -> bool:
            nonlocal asked
            asked += 1
            return super().covers(*args)

    for number in range(600):
        one = make_budget(f"b{number}", {"app": f"app-{number}"}, 1)
        table.put(Counted(one.namespace, one.name, one.allowed, one.selector, one.disrupted), number)

    assert table.covering("default", "p", {"app": "app-7", "tier": "1"}) == (7,)
    assert asked == 1


def loose(name: str, key: str) -> Budget:
    return Budget("default", name, 5, Selector((Requirement(key, "Exists", frozenset()),)), frozenset())


REQUIREMENTS = st.builds(
    lambda key, operator, values: Requirement(
        key, operator, frozenset(values) if operator in ("In", "NotIn") else frozenset()
    ),
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.sets(st.sampled_from("ab"), min_size=1),
)
BUDGETS = st.builds(
    Budget,
    st.sampled_from(["default", "other"]),
    st.sampled_from(["u", "v", "w"]),
    st.integers(0, 2),
    st.one_of(
        st.none(), st.lists(REQUIREMENTS, min_size=1, max_size=2).map(lambda some: Selector(tuple(some)))
    ),
    st.frozensets(st.sampled_from(["p0", "p1"]), max_size=1),
)
POD_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from("ab"))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), BUDGETS),
        st.tuples(
            st.just("remove"), st.tuples(st.sampled_from(["default", "other"]), st.sampled_from("uvw"))
        ),
        st.tuples(st.just("pod"), st.tuples(st.integers(0, 5), POD_LABELS)),
        st.tuples(st.just("work"), st.none()),
        st.tuples(st.just("plan"), st.none()),
    ),
    max_size=40,
)


@given(EVENTS)
def test_whatever_changes_meanwhile_no_plan_violates_a_hard_budget(events: list[tuple[str, Any]]) -> None:
    snapshot = Snapshot(chunk=1)
    snapshot.apply(Enforce(HARD, "rev-1"))
    snapshot.updates.serving = True
    budgets: dict[tuple[str, str], Budget] = {}
    for name in ("a", "b"):
        snapshot.apply(PutNode(make_node(name)))
    there = [("pod", (number, {"app": "a"})) for number in range(6)]
    for kind, what in [*there, *events, ("plan", None)]:
        if kind == "put":
            snapshot.apply(PutBudget(what))
            budgets[what.key] = what
        elif kind == "remove":
            snapshot.apply(RemoveBudget(what))
            budgets.pop(what, None)
        elif kind == "pod":
            number, labels = what
            pod = make_pod(
                f"p{number}", "ab"[number % 2], number, namespace=("default", "other")[number % 3 % 2]
            )
            snapshot.apply(PutPod(msgspec.structs.replace(pod, labels=labels)))
        elif kind == "work":
            snapshot.upkeep.apply_chunk()
        else:
            result = plan(snapshot, ask(make_pod("P", "", 900, 450)), NOW)
            for candidate in result.candidates if isinstance(result, Plan) else ():
                for budget in budgets.values():
                    gone = [
                        one.pod
                        for one in candidate.removable
                        if budget.covers_eviction(one.pod.namespace, one.pod.name, one.pod.labels)
                    ]
                    assert len(gone) <= max(budget.allowed, 0)
    settle(snapshot)
    for pod in snapshot.pods.values():
        assert set(snapshot.budgets.members(snapshot.budget_set(pod.uid))) == {
            key for key, one in budgets.items() if one.covers_eviction(pod.namespace, pod.name, pod.labels)
        }
