"""Reclaim by itself: whose guarantee counts, and whose pods are evicted for it."""

from collections.abc import Mapping

import pytest

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.reclaim import Reclaim, reclaims, reclaims_in
from makeway.core.queues.tree import QueueTree
from narrowing import there
from unit.core.queue_building import queue, tree

GPU = "nvidia.com/gpu"
Held = Mapping[str, Amounts]


def asks(built: QueueTree, path: str, asked: Amounts, held: Held, priority: int = 5) -> Reclaim | None:
    paths = [one.path for one in built]
    number = built.at(path).number
    return next(reclaims(built, number, asked, priority, lambda at: held.get(paths[at], {})), None)


def lenders(built: QueueTree, found: Reclaim | None) -> set[str]:
    assert found is not None
    return {one.path for one in built if found.lenders[one.number] and one.is_leaf}


TWO = tree(queue("a", guaranteed={GPU: 4}), queue("b"), reclaim=True)


@pytest.mark.parametrize(
    ("held", "asked", "takes"), [(2, 2, True), (3, 2, False), (4, 1, False), (0, 5, False)]
)
def test_a_pod_takes_back_only_up_to_its_queues_guarantee(held: int, asked: int, takes: bool) -> None:
    found = asks(TWO, "root.a", {GPU: asked, "cpu": 9}, {"root.a": {GPU: held, "cpu": 99}})

    assert (found is not None) == takes


@pytest.mark.parametrize(
    "found",
    [
        asks(TWO, "root.a", {"cpu": 1}, {}),
        asks(TWO, "root.a", {GPU: 0, "cpu": 1}, {}),
        asks(TWO, "root.b", {GPU: 1}, {}),
        asks(tree(queue("a", guaranteed={GPU: 4})), "root.a", {GPU: 1}, {}),
        asks(TWO, "root.a", {GPU: 1}, {}, priority=2_000_000_000),
    ],
    ids=["not guaranteed", "none of it", "no guarantee", "not turned on", "system-critical"],
)
def test_nothing_is_taken_back(found: Reclaim | None) -> None:
    assert found is None


def test_the_deepest_queue_that_stays_within_its_guarantee_counts() -> None:
    built = tree(
        queue("team", queue("a", guaranteed={GPU: 1}), queue("b"), guaranteed={GPU: 4}),
        queue("other"),
        reclaim=True,
    )
    low, high = (
        {f"root.team{of}": {GPU: used} for of, used in both}
        for both in ([("", 2), (".a", 0)], [("", 2), (".a", 1)])
    )

    assert lenders(built, asks(built, "root.team.a", {GPU: 1}, low)) == {
        "root.team.b",
        "root.other",
        "root.default",
    }
    assert lenders(built, asks(built, "root.team.a", {GPU: 1}, high)) == {"root.other", "root.default"}


def test_every_resource_of_the_guarantee_that_is_requested_has_to_stay_within_it() -> None:
    built = tree(queue("a", guaranteed={GPU: 4, "cpu": 4}), reclaim=True)

    assert asks(built, "root.a", {GPU: 1, "cpu": 4}, {"root.a": {"cpu": 1}}) is None
    assert asks(built, "root.a", {GPU: 1}, {"root.a": {"cpu": 9}}) is not None


def test_a_fence_above_the_pod_holds_back_and_one_above_the_victim_does_not() -> None:
    built = tree(
        queue("p", queue("a", guaranteed={GPU: 4}), queue("b"), policy="fence"),
        queue("c", policy="fence"),
        queue("d", guaranteed={GPU: 4}),
        reclaim=True,
    )

    assert lenders(built, asks(built, "root.p.a", {GPU: 1}, {})) == {"root.p.b"}
    assert lenders(built, asks(built, "root.d", {GPU: 1}, {})) == {
        "root.p.a",
        "root.p.b",
        "root.c",
        "root.default",
    }


def test_a_queue_with_a_guarantee_takes_back_within_the_fence_around_it_and_no_fence_takes_anything() -> None:
    queues = (
        queue("p", queue("a", guaranteed={GPU: 4}), queue("b"), policy="fence", guaranteed={GPU: 8}),
        queue("d", guaranteed={GPU: 4}),
    )

    def within(built: QueueTree) -> dict[str, str]:
        return {one.path: found.path for one in built if (found := reclaims_in(built, one)) is not None}

    assert within(tree(*queues, reclaim=True)) == {"root.p.a": "root.p", "root.d": "root"}
    assert within(tree(*queues)) == {}


def test_nothing_is_taken_back_from_a_queue_that_lends_nothing() -> None:
    built = tree(queue("a", guaranteed={GPU: 4}), queue("b", policy="disabled"), reclaim=True)

    assert lenders(built, asks(built, "root.a", {GPU: 1}, {})) == {"root.default"}


def test_only_pods_of_the_very_priority_that_hold_what_is_guaranteed_go() -> None:
    found = there(asks(TWO, "root.a", {GPU: 1, "cpu": 1}, {}))

    assert found.with_pod("root.b", 5, {GPU: 1}) == f"queue root.a takes {GPU} back from queue root.b"
    assert not found.with_pod("root.b", 6, {GPU: 1})
    assert not found.with_pod("root.b", 4, {GPU: 1})
    assert not found.with_pod("root.b", 5, {"cpu": 1})
    assert not found.with_pod("root.a", 5, {GPU: 1})


def test_a_pod_of_a_queue_that_has_come_since_stays() -> None:
    found = there(asks(TWO, "root.a", {GPU: 1}, {}))

    assert (found.with_pod("root.b", 5, {GPU: 1}) != "", found.with_pod("root.c", 5, {GPU: 1})) == (True, "")
