"""The checker finds every seeded violation, by the right rule, and nothing in a correct history."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from makeway.dev.checker.findings import Invariant
from makeway.dev.checker.history import InForce, Streams
from unit.dev.falsifying import MUTATIONS
from unit.dev.recorded_history import (
    GANG,
    SCHEDULER,
    Recording,
    at,
    gang_made_room,
    gang_pending,
    listing,
    made_no_room,
    made_room,
    made_room_for_pinned,
    order_of,
    pending,
    quota_order_of,
)

pytestmark = pytest.mark.tools


def with_waiting_pod() -> Recording:
    """A good preemption that clears the nomination of a less important pod."""
    return (
        Recording()
        .pod("victim", 0, priority=0, node="node-1")
        .pod("urgent", 1, priority=1000)
        .pod("waiting", 1, priority=100)
        .nominated("waiting", 1.2)
        .nominated("urgent", 1.5)
    )


def quota(**victim: Any) -> Recording:
    """A queue brought down to its maximum by one victim of any priority; without its outcome."""
    return (
        Recording()
        .pod("victim", 0, **{"priority": 5000, "node": "node-1", **victim})
        .ordered(quota_order_of())
        .marked("victim", 2.1)
        .deleted("victim", 2.2)
        .removed("victim", 3)
    )


def reclaimed(*, on: bool = True, **changes: Any) -> Recording:
    """A pod of equal priority that goes since the preemptor's queue takes its room back."""
    found = made_room_for_pinned(daemon=False, **{"rule": "reclaim", **changes})
    return replace(found, in_force=InForce(reclaims=on))


CORRECT: dict[str, Callable[[], Recording]] = {
    "room is made": made_room,
    "a pod of equal priority makes room for one bound to its node": made_room_for_pinned,
    "a pod of equal priority goes for a queue that takes back": reclaimed,
    "an order fails and is rolled back": made_no_room,
    "a listed nomination is cleared": lambda: (
        with_waiting_pod()
        .ordered(listing("uid-waiting"))
        .deleted("victim", 2.2)
        .cleared("waiting", 2.25)
        .ended(order_of(), 2.3)
        .removed("victim", 3)
        .bound("urgent", 3.1)
    ),
    "a quota is enforced on a pod of whatever priority": lambda: quota().ended(quota_order_of(), 2.3),
    "one victim of a quota goes, the other keeps no mark": lambda: (
        quota()
        .pod("other", 0, priority=0, node="node-2")
        .ordered(quota_order_of(2, "other", queue="root.other"), 2.05)
        .marked("other", 2.1)
        .unmarked("other", 2.2)
        .ended(quota_order_of(2, "other", queue="root.other"), 2.3, result="failed")
        .ended(quota_order_of(), 2.4)
    ),
}

_BY_RULE: dict[str, dict[str, Callable[[], Recording]]] = {
    "victim-in-two-orders": {
        "a victim of a queue's and of a preemptor's live order": lambda: (
            made_room().ordered(quota_order_of(2), 2.25).ended(quota_order_of(2), 5)
        ),
    },
    "victim-not-lower": {
        "an equal priority where no queue takes back": lambda: reclaimed(on=False),
        "an equal priority for a pod of no DaemonSet": lambda: made_room_for_pinned(daemon=False),
        "an equal priority for a pod bound to another node": lambda: made_room_for_pinned(only_on="node-2"),
        "an equal priority for a DaemonSet of a namespace that the policy does not list": lambda: replace(
            made_room_for_pinned(), in_force=InForce(daemonset_namespaces=frozenset({"kube-system"}))
        ),
    },
    "victim-of-daemonset": {
        "a DaemonSet's pod for another DaemonSet's": lambda: made_room_for_pinned(
            priority=10, victim_priority=0, victim_daemon=True
        ),
    },
    "barrier-skipped": {"a gang's victims that were read too early": lambda: gang_made_room(read=0.5)},
    "gang-short": {"a gang of which too few wait": lambda: gang_made_room(gang_pending(members=GANG[:1]))},
}
VIOLATIONS = {name: (rule, history) for rule, named in _BY_RULE.items() for name, history in named.items()}


@pytest.mark.parametrize("history", CORRECT.values(), ids=CORRECT.keys())
def test_nothing_is_found_in_a_correct_history(history: Callable[[], Recording]) -> None:
    assert str(history().report()) == "nothing found"


@pytest.mark.parametrize(("rule", "history"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_seeded_violation_is_found_by_its_rule(rule: str, history: Callable[[], Recording]) -> None:
    assert history().found() == [rule]


def test_every_rule_has_a_seeded_violation() -> None:
    here = {rule for rule, _ in VIOLATIONS.values()}

    assert here | {mutation.rule for mutation in MUTATIONS.values()} == {rule.value for rule in Invariant}


def test_a_promise_with_time_left_is_pending_and_not_broken() -> None:
    report = pending().marked("victim", 2.1).ended(order_of(), 33, result="failed").report(35)

    assert report.violations == ()
    assert [(p.rule.value, p.due) for p in report.pending] == [
        ("nomination-left", at(43)),
        ("preemptor-idle", at(43)),
        ("mark-left", at(63)),
    ]


def test_the_scheduler_may_delete_where_it_may_fall_back() -> None:
    history = made_room().pod("other", 0, priority=0).deleted("other", 4, SCHEDULER)

    assert history.found(fallback=True) == []


def test_time_in_which_a_part_was_stopped_on_purpose_does_not_count() -> None:
    history = pending().cleared("urgent", 3).ended(order_of(), 3.1, result="failed")
    history.outages.append((at(5), at(25)))

    assert history.failed_scheduling("urgent", 32).found() == []


def test_an_order_published_again_after_a_loss_is_one_order_unless_it_says_something_else() -> None:
    before = Streams(orders=tuple(made_room().orders))
    (order,) = before.orders
    again = replace(order, at=order.at + timedelta(seconds=4), sequence=1)
    other = replace(again, message=msgspec.structs.replace(order.message, node="another"))

    assert Streams(orders=(again,)).joined(before).orders == (order,)
    assert Streams(orders=(other,)).joined(before).orders == (order, other)


def test_a_nominators_preemptor_has_kube_schedulers_back_off_before_it_is_tried() -> None:
    order = msgspec.structs.replace(order_of(), writer="makeway/nominator/n")
    history = pending(order).cleared("urgent", 3).ended(order, 3.1, result="failed")

    idle = [found for found in history.report(22).pending if found.rule is Invariant.PREEMPTOR_IDLE]
    assert [found.due for found in idle] == [at(23.1)]
    assert "preemptor-idle" in history.found()
