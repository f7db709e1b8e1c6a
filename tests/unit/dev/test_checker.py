"""The checker finds every seeded violation, by the right rule, and nothing in a correct history."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from makeway.bus.messages import Awaited
from makeway.dev.checker.epochs import Epochs, LeaseEpoch
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


def second_attempt(seconds: float) -> Recording:
    """A failed preemption, and another order of the preemptor's at a moment."""
    return (
        made_no_room()
        .nominated("urgent", 4)
        .ordered(order_of(2), seconds)
        .marked("victim", seconds + 0.1)
        .deleted("victim", seconds + 0.2)
        .ended(order_of(2), seconds + 0.3)
        .removed("victim", seconds + 1)
        .bound("urgent", seconds + 1.1)
    )


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


def rival(seconds: float, *, outcome_of_first: float, result: str = "failed") -> Recording:
    """Two preemptors' orders for one victim; the first ends at a moment."""
    second = order_of(2, preemptor="rival")
    return (
        pending()
        .pod("rival", 1, priority=2000)
        .ended(order_of(), outcome_of_first, result=result)
        .cleared("urgent", outcome_of_first - 0.1)
        .failed_scheduling("urgent", outcome_of_first + 1)
        .ordered(second, seconds)
        .marked("victim", seconds + 0.1)
        .deleted("victim", seconds + 0.2)
        .ended(second, seconds + 0.3)
        .removed("victim", seconds + 1)
        .bound("rival", seconds + 1.1)
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
    "a victim without a grace period is evicted under a hard budget, and no more is heard of it": lambda: (
        Recording()
        .pod("victim", 0, priority=0, node="node-1", grace_seconds=0)
        .pod("urgent", 1, priority=1000)
        .nominated("urgent", 1.5)
        .ordered(order_of())
        .marked("victim", 2.1)
        .evicted("victim", 2.2)
        .ended(order_of(), 2.3)
        .bound("urgent", 3.1)
    ),
    "an order fails and is rolled back": made_no_room,
    "a second order after the first has failed": lambda: second_attempt(5),
    "a listed nomination is cleared": lambda: (
        with_waiting_pod()
        .ordered(listing("uid-waiting"))
        .deleted("victim", 2.2)
        .cleared("waiting", 2.25)
        .ended(order_of(), 2.3)
        .removed("victim", 3)
        .bound("urgent", 3.1)
    ),
    "a victim is ordered again while an order lives that is cancelled with nothing done": lambda: rival(
        3.5, outcome_of_first=4, result="cancelled"
    ),
    "the nomination stands for another order": lambda: (
        pending()
        .ended(order_of(), 33, result="failed")
        .ordered(order_of(2), 35)
        .deleted("victim", 35.2)
        .ended(order_of(2), 35.3)
        .removed("victim", 36)
        .bound("urgent", 36.1)
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
    "a mark on a victim that leaves in the end": lambda: (
        pending()
        .marked("victim", 2.1)
        .cleared("urgent", 3)
        .ended(order_of(), 33.1, result="cancelled")
        .deleted("victim", 50, "someone")
        .failed_scheduling("urgent", 34)
    ),
}

_BY_RULE: dict[str, dict[str, Callable[[], Recording]]] = {
    "two-live-orders": {
        "a second order of a queue while the first is live": lambda: (
            quota().ordered(quota_order_of(2), 2.25).ended(quota_order_of(), 2.3).ended(quota_order_of(2), 5)
        ),
    },
    "victim-in-two-orders": {
        "a victim of a queue's and of a preemptor's live order": lambda: (
            made_room().ordered(quota_order_of(2), 2.25).ended(quota_order_of(2), 5)
        ),
    },
    "victim-not-lower": {
        "an equal priority where no policy turns the simple preemptor on": lambda: made_room_for_pinned(
            policy=False
        ),
        "an equal priority where no queue takes back": lambda: reclaimed(on=False),
        "an equal priority by another rule than reclaim": lambda: reclaimed(rule="lower-priority"),
        "a higher priority for a queue that takes back": lambda: reclaimed(victim_priority=1),
        "a DaemonSet's pod for a queue that takes back": lambda: reclaimed(victim_daemon=True),
        "an equal priority for a pod of no DaemonSet": lambda: made_room_for_pinned(daemon=False),
        "an equal priority for a pod bound to another node": lambda: made_room_for_pinned(only_on="node-2"),
        "an equal priority for a DaemonSet's pod bound to no node": lambda: made_room_for_pinned(only_on=""),
        "a higher priority for a pod bound to the node": lambda: made_room_for_pinned(victim_priority=1),
        "an equal priority for a DaemonSet of a namespace that the policy does not list": lambda: replace(
            made_room_for_pinned(), in_force=InForce(daemonset_namespaces=frozenset({"kube-system"}))
        ),
        "an equal priority that is system-critical": lambda: made_room_for_pinned(priority=2_000_000_000),
    },
    "victim-of-daemonset": {
        "a DaemonSet's pod for another DaemonSet's": lambda: made_room_for_pinned(
            priority=10, victim_priority=0, victim_daemon=True
        ),
    },
    "late-write": {
        "a listed nomination cleared after notAfter + 2 s": lambda: (
            with_waiting_pod()
            .ordered(listing("uid-waiting"))
            .deleted("victim", 2.2)
            .cleared("waiting", 64.1)
            .ended(order_of(), 64.2)
            .removed("victim", 3)
            .bound("urgent", 64.3)
        ),
    },
    "nomination-left": {
        "a nomination taken back too late": lambda: (
            pending()
            .ended(order_of(), 3, result="failed")
            .failed_scheduling("urgent", 3.5)
            .cleared("urgent", 13.5, SCHEDULER)
        ),
    },
    "mark-left": {
        "a mark taken off too late": lambda: (
            pending()
            .marked("victim", 2.1)
            .cleared("urgent", 3)
            .ended(order_of(), 3.1, result="failed")
            .failed_scheduling("urgent", 3.5)
            .unmarked("victim", 33.5)
        ),
    },
    "preemptor-idle": {
        "a preemptor that is tried too late after its victims left": lambda: (
            pending().deleted("victim", 2.2).ended(order_of(), 2.3).removed("victim", 3).bound("urgent", 13.5)
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
    found = set(history().found())

    assert rule in found
    # What is left behind was left before its outcome, too.
    assert found - {rule} <= (
        {"outcome-before-rollback"} if rule in {"mark-left", "nomination-left"} else set()
    )


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


def test_a_preemptor_waits_for_awaited_victims_too() -> None:
    awaiting = msgspec.structs.replace(
        order_of(2, preemptor="second", victims=()), awaited=(Awaited(uid="uid-victim", order_id="ord-1"),)
    )
    history = pending().pod("second", 1, priority=500).ordered(awaiting).deleted("victim", 2.2)
    history.ended(order_of(), 2.3).ended(awaiting, 2.4).removed("victim", 30)

    assert history.bound("urgent", 31).bound("second", 39).found() == []


def test_an_order_published_again_after_a_loss_is_one_order_unless_it_says_something_else() -> None:
    before = Streams(orders=tuple(made_room().orders))
    (order,) = before.orders
    again = replace(order, at=order.at + timedelta(seconds=4), sequence=1)
    other = replace(again, message=msgspec.structs.replace(order.message, node="another"))

    assert Streams(orders=(again,)).joined(before).orders == (order,)
    assert Streams(orders=(other,)).joined(before).orders == (order, other)


@pytest.mark.parametrize(("later", "node", "once"), [(9, "", True), (-1, "", False), (9, "another", False)])
def test_an_order_stored_again_may_be_later_and_is_else_the_same(later: float, node: str, once: bool) -> None:
    (lost,) = made_room().orders
    store_by = lost.at + timedelta(seconds=2)
    lost = replace(lost, message=msgspec.structs.replace(lost.message, store_by=store_by))
    changed = msgspec.structs.replace(
        lost.message, store_by=store_by + timedelta(seconds=later), node=node or lost.message.node
    )
    again = replace(lost, at=lost.at + timedelta(seconds=4), sequence=1, message=changed)

    found = Streams(orders=(again,)).joined(Streams(orders=(lost,))).orders

    assert found == ((lost,) if once else (lost, again))


def test_a_log_that_begins_in_the_middle_of_an_epoch_knows_it_from_its_beginning() -> None:
    renewal = replace(
        pending().requests[0],
        verb="update",
        resource="leases",
        namespace="kube-system",
        name="makeway-scheduler",
        answered_at=at(10),
        request={"spec": {"acquireTime": at(1).isoformat(), "leaseTransitions": 3}},
    )

    epochs = Epochs((renewal,)).of("kube-system", "makeway-scheduler")

    assert epochs == [LeaseEpoch(3, at(1), at(1))]


def test_a_nominators_preemptor_has_kube_schedulers_back_off_before_it_is_tried() -> None:
    order = msgspec.structs.replace(order_of(), writer="makeway/nominator/n")
    history = pending(order).cleared("urgent", 3).ended(order, 3.1, result="failed")

    idle = [found for found in history.report(22).pending if found.rule is Invariant.PREEMPTOR_IDLE]
    assert [found.due for found in idle] == [at(23.1)]
    assert "preemptor-idle" in history.found()
