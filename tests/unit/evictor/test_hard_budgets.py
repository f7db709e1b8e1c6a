"""Victims in namespaces whose disruption budgets are hard: the API server counts, and its no is heeded."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from makeway.bus.control import ControlState
from makeway.core.policy.document import Policy
from makeway.evictor.retry import PermanentError, TemporaryError, classify
from makeway.runtime.kube import ApiError, api_error
from narrowing import as_a
from unit.evictor.building import CLUSTER, NOW, a_pod, changed, make_order, make_victim
from unit.evictor.fakes import UNAVAILABLE
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, running

BUDGET = "The disruption budget web needs 1 healthy pods and has 1 currently"
REFUSED = {
    "kind": "Status",
    "reason": "TooManyRequests",
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": BUDGET}]},
    "code": 429,
}
SEVERAL = {
    "kind": "Status",
    "message": (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    ),
    "code": 500,
}
NOT_NOW = TemporaryError("budget", BUDGET)


def hard(world: World, *namespaces: str) -> World:
    world.policy = Policy(disruption_budgets="hard", hard_budget_namespaces=namespaces or ("default",))
    return world


def answered(body: object, status: int, retry_after: str | None = None) -> ApiError:
    return api_error(status, msgspec.json.encode(body), retry_after)


TOLD = ControlState(revision=1, mode="enforce", cluster_uid=CLUSTER, hard_budget_namespaces=("default",))


@pytest.mark.parametrize(
    ("make", "evicted"),
    [
        (hard, True),
        (lambda world: hard(world, "payments"), False),
        (lambda world: world.mode_guard.put_control(TOLD), True),
    ],
    ids=["by the policy", "in another namespace", "by the planner's word"],
)
async def test_victims_go_through_the_eviction_api_alone_where_budgets_are_hard(
    make: Callable[[World], object], evicted: bool
) -> None:
    world = World(*running("a", "b"))
    make(world)

    await world.ends(make_order("a", "b"), "succeeded", victims={"a": "deleted", "b": "deleted"})

    both: list[str] = ["a", "b"]
    expected = (both, []) if evicted else ([], both)
    assert (world.cluster.evictions(), world.cluster.deletes()) == expected


async def test_a_policy_that_becomes_hard_holds_for_the_next_victim_of_an_order_under_way() -> None:
    world = World(*running("a", "b"))
    world.cluster.before("delete", "a", lambda: hard(world))

    await world.carry_out(make_order("a", "b"))

    assert (world.cluster.deletes(), world.cluster.evictions()) == (["a"], ["b"])


async def test_a_victim_whose_budget_allows_it_a_moment_later_goes_then() -> None:
    world = hard(World(*running("a")))
    world.cluster.fail("evict", "a", TemporaryError("budget", BUDGET, 10.0))

    await world.ends(make_order("a"), "succeeded")

    assert world.clock.now() >= NOW + timedelta(seconds=10)
    assert world.metric("makeway_evictor_retries_total", operation="evict", reason="budget") == 1


async def test_a_budget_that_allows_nothing_until_not_after_fails_the_order_by_name_and_undoes_it() -> None:
    world = hard(World(*running("a", "b")))
    world.cluster.always_fail("evict", "a", NOT_NOW)
    order = make_order("a", "b")

    outcome = await world.ends(
        order,
        "failed",
        "disruption-budget",
        says="disruption budget web",
        deletes=[],
        victims={"a": "failed", "b": "notAttempted"},
    )

    assert outcome.victims[0].reason == "budget"
    assert (world.cluster.marks(), world.cluster.is_marked("a")) == (["a"], False)
    assert world.nominated_node() is None
    assert world.clock.now() <= order.not_after


async def test_a_budget_that_allows_nothing_costs_no_pod_without_a_hard_budget_its_life() -> None:
    world = hard(World(*running("a", "b", "c")), "payments")
    world.cluster.always_fail("evict", "b", NOT_NOW)

    await world.ends(
        make_order("a", make_victim("b", namespace="payments"), "c"),
        "failed",
        "disruption-budget",
        deletes=[],
        victims={"a": "notAttempted", "b": "failed", "c": "notAttempted"},
    )


async def test_a_budgets_no_to_one_victim_costs_no_other_victim_with_a_hard_budget_its_life() -> None:
    world = hard(World(*running("a", "b", "c", "d")))
    world.cluster.always_fail("evict", "b", NOT_NOW)

    await world.ends(
        make_order("a", "b", "c", "d"),
        "failed",
        "disruption-budget",
        victims={"a": "deleted", "b": "failed", "c": "notAttempted", "d": "notAttempted"},
    )

    assert set(world.cluster.evictions()) <= {"a", "b"}


async def test_the_other_victims_are_read_again_after_those_with_hard_budgets_have_gone() -> None:
    world = hard(World(*running("a", "b", "c")), "payments")
    world.cluster.before("evict", "b", lambda: world.cluster.remove("a"))

    await world.ends(
        make_order("a", make_victim("b", namespace="payments"), "c"),
        "succeeded",
        victims={"a": "gone", "b": "deleted", "c": "deleted"},
    )

    assert (world.cluster.evictions(), world.cluster.deletes()) == (["b"], ["c"])


async def test_an_eviction_whose_answer_was_lost_is_recognised_by_reading() -> None:
    world = hard(World(*running("a")))
    world.cluster.before("evict", "a", lambda: world.cluster.leave("a"))
    world.cluster.fail("evict", "a", UNAVAILABLE)

    outcome = await world.carry_out(make_order("a"))

    assert (outcome.result, outcome.victims[0].reason) == ("succeeded", "answer-lost")
    assert world.cluster.evictions() == ["a"]


async def test_an_evicted_pod_has_the_grace_period_of_its_own() -> None:
    world = hard(World(changed(a_pod("a").build(), "spec", termination_grace_period_seconds=45)))

    outcome = await world.carry_out(make_order("a"))

    assert outcome.victims[0].grace_period_seconds == 45


async def test_one_pod_of_a_quota_that_its_budget_keeps_does_not_keep_the_others() -> None:
    world = hard(World(*running("a", "b")))
    world.cluster.always_fail("evict", "a", NOT_NOW)

    await world.ends(
        quota_order("a", "b"), says="disruption budget web", victims={"a": "failed", "b": "deleted"}
    )


@pytest.mark.parametrize(("header", "seconds"), [(None, None), ("10", 10.0)])
def test_a_budgets_no_is_not_now_and_says_which_budget(header: str | None, seconds: float | None) -> None:
    error = as_a(TemporaryError, classify(answered(REFUSED, 429, header)))

    assert (error.reason, str(error), error.retry_after_seconds) == ("budget", BUDGET, seconds)


def test_a_server_that_is_busy_is_no_budget() -> None:
    error = as_a(TemporaryError, classify(api_error(429, b"Too many requests, please try again later.", "1")))

    assert error.reason == "throttled"


def test_a_pod_under_several_budgets_is_refused_for_good_as_the_eviction_api_knows_no_way() -> None:
    error = as_a(PermanentError, classify(answered(SEVERAL, 500)))

    assert error.reason == "several-budgets"
    assert "more than one PodDisruptionBudget" in str(error)
