"""Room is made again and again for a preemptor that is not bound: it waits, longer each time."""

from datetime import datetime, timedelta

import msgspec
import pytest

from makeway.bus.commit import LATE, TOO_LARGE
from makeway.bus.messages import (
    EvictionOrder,
    OrderedGroup,
    Outcome,
    Placement,
    Preemptor,
    VictimOutcome,
    Void,
)
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.planner.orders import pauses as module
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker, NotNow
from makeway.planner.orders.pauses import FIRST_FAILED, PAUSES, PREEMPTION_PAUSED, TRIES
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.planner.building import LOW, NOW, make_order, make_outcome, make_pod, make_snapshot

XL = 3000
FAR = timedelta(seconds=2)
PREEMPTOR = Asker("P", "shop", 1000)


def order(order_id: str, at: datetime, *, uid: str = "P", namespace: str = "shop") -> EvictionOrder:
    return make_order(
        order_id,
        at,
        node="n1",
        preemptor=Preemptor(
            namespace=namespace, name=uid, uid=uid, priority=1000, scheduler_name="default-scheduler"
        ),
    )


def outcome(order_id: str, at: datetime, *victims: str) -> Outcome:
    return make_outcome(
        order_id,
        at,
        preemptor_uid="P",
        node="n1",
        victims=tuple(VictimOutcome(namespace="ns", name=uid, uid=uid, result="deleted") for uid in victims),
    )


def room_made(ledger: Ledger, number: int, at: datetime, *, uid: str = "P") -> None:
    ledger.ordered(order(f"o{number}", at, uid=uid))
    ledger.ended(outcome(f"o{number}", at, f"v{number}"))


def asked(ledger: Ledger, now: datetime, snapshot: Snapshot | None = None) -> NotNow | None:
    return ledger.pauses.of(PREEMPTOR, snapshot or make_snapshot(["n1"], []), now)


def test_the_third_room_that_comes_to_nothing_begins_a_pause_that_grows_to_ten_minutes() -> None:
    ledger, now, waited = Ledger(), NOW, []

    for number in range(10):
        room_made(ledger, number, now)
        now += FAR
        pause = asked(ledger, now)
        if pause is not None:
            assert asked(ledger, pause.retry_at - timedelta(seconds=1)) == pause
            waited.append((number + 1, pause.retry_at - now))
            now = pause.retry_at
        assert asked(ledger, now) is None

    minutes = [*PAUSES, *PAUSES[-1:] * 3]
    assert waited == [(number + 3, wait) for number, wait in enumerate(minutes)]


def test_the_pause_says_how_often_where_and_until_when() -> None:
    ledger = Ledger()
    for number in range(3):
        room_made(ledger, number, NOW)

    pause = there(asked(ledger, NOW + FAR))

    assert "room was made for this pod 3 times, the last time on node n1" in pause.message
    assert f"the next try is at {pause.retry_at:%Y-%m-%dT%H:%M:%S}" in pause.message
    assert ledger.pauses.paused(NOW + FAR) == 1
    assert ledger.pauses.paused(pause.retry_at) == 0


def test_a_room_counts_only_once_its_victims_have_left() -> None:
    ledger = Ledger()
    for number in range(3):
        room_made(ledger, number, NOW)
    leaving = make_snapshot(["n1"], [make_pod("v2", "n1", LOW, XL)])

    assert asked(ledger, NOW + FAR, leaving) is None
    assert asked(ledger, NOW + FAR) is not None


@pytest.mark.parametrize(("priority", "counts"), [(999, True), (1000, False), (2000, False)])
def test_a_room_that_a_pod_took_which_may_is_no_loop(priority: int, counts: bool) -> None:
    ledger = Ledger()
    for number in range(3):
        room_made(ledger, number, NOW + number * FAR)
    since = microseconds(NOW + 2 * FAR)
    took = msgspec.structs.replace(make_pod("other", "n1", priority, XL), start_micros=since)

    pause = asked(ledger, NOW + 3 * FAR, make_snapshot(["n1"], [took]))

    assert (pause is not None) is counts


def test_orders_in_a_row_that_make_no_room_begin_a_short_pause() -> None:
    ledger, now = Ledger(), NOW
    for number in range(4):
        ledger.ordered(order(f"o{number}", now))
        ended = msgspec.structs.replace(outcome(f"o{number}", now), result="failed", reason="delete-refused")
        ledger.ended(ended)

    pause = there(asked(ledger, now))

    assert pause.retry_at == now + timedelta(seconds=2)
    assert pause.message.startswith(
        "the last 4 eviction orders for this pod made no room; the next try is at "
    )
    assert ledger.pauses.paused(now) == 0
    assert asked(ledger, now + timedelta(seconds=2)) is None


def test_orders_that_are_too_large_have_their_preemptor_alone_wait_and_leave_out_the_node() -> None:
    ledger, why = Ledger(), Void(reason=TOO_LARGE, message="4000 victims: 2 MB are more than NATS takes")
    for number in range(TRIES):
        ledger.voided(order(f"ord-{number}", NOW), why)

    found = there(asked(ledger, NOW))

    assert (found.reason, found.retry_at) == (PREEMPTION_PAUSED, NOW + FIRST_FAILED)
    assert ledger.left_out("P", NOW).nodes == {"n1"}
    assert ledger.breakers.held(PREEMPTOR, NOW) is None


def test_orders_whose_nominations_do_not_show_in_time_begin_a_short_pause_and_blame_no_node() -> None:
    ledger = Ledger()
    for number in range(TRIES):
        ledger.voided(order(f"ord-{number}", NOW), Void(reason=LATE, message="not seen in time: m2"))

    assert there(asked(ledger, NOW)).retry_at == NOW + FIRST_FAILED
    assert ledger.left_out("P", NOW).nodes == frozenset()


def test_a_success_ends_a_row_of_failures_and_a_breaker_begins_none() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.ordered(order(f"b{number}", NOW))
        ended = msgspec.structs.replace(outcome(f"b{number}", NOW), result="refused", reason="breaker-open")
        ledger.ended(ended)
    assert asked(ledger, NOW) is None

    for number in range(2):
        ledger.ordered(order(f"f{number}", NOW))
        ledger.ended(msgspec.structs.replace(outcome(f"f{number}", NOW), result="failed"))
    room_made(ledger, 1, NOW)
    ledger.ordered(order("f3", NOW))
    ledger.ended(msgspec.structs.replace(outcome("f3", NOW), result="failed"))

    assert asked(ledger, NOW) is None


def test_a_planner_that_starts_counts_what_the_streams_tell_in_either_order_and_once() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.ended(outcome(f"o{number}", NOW, f"v{number}"))
    assert asked(ledger, NOW) is None

    for _ in range(2):
        for number in range(3):
            ledger.ordered(order(f"o{number}", NOW))

    pause = there(asked(ledger, NOW + FAR))
    assert pause.retry_at == NOW + FAR + PAUSES[0]


def test_a_namespace_makes_the_planner_forget_its_preemptors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IN_NAMESPACE", 2)
    ledger = Ledger()
    for number in range(3):
        room_made(ledger, number, NOW)
    for number in range(5):
        noisy = order(f"x{number}", NOW, uid=f"x{number}", namespace="noisy")
        ledger.ordered(noisy)
        ledger.ended(outcome(f"x{number}", NOW, f"w{number}"))

    assert len(ledger.pauses) == 3
    assert asked(ledger, NOW + FAR) is not None


def test_a_preemptor_is_forgotten_half_an_hour_after_its_last_order() -> None:
    ledger = Ledger()
    for number in range(3):
        room_made(ledger, number, NOW)

    assert asked(ledger, NOW + module.REMEMBERED + FAR) is None
    assert len(ledger.pauses) == 0


def test_no_pod_of_a_node_that_is_unknown_has_taken_its_room() -> None:
    ledger = Ledger()
    for number in range(3):
        room_made(ledger, number, NOW)

    assert ledger.pauses.of(PREEMPTOR, make_snapshot([], []), NOW + FAR) is not None


@pytest.mark.parametrize(("waits", "counts"), [(True, True), (False, False)])
def test_a_room_counts_for_a_group_while_a_pod_that_it_was_made_for_waits(waits: bool, counts: bool) -> None:
    ledger = Ledger()
    for number in range(3):
        member = Placement(namespace="shop", name=f"m{number}", uid=f"m{number}", node="n1")
        group = OrderedGroup(
            namespace="shop", name="P", uid="P", priority=1000, scheduler_name="s", must_place=1
        )
        ledger.ordered(
            msgspec.structs.replace(
                order(f"o{number}", NOW),
                kind="group",
                node="",
                preemptor=None,
                group=group,
                members=(member,),
            )
        )
        ledger.ended(outcome(f"o{number}", NOW, f"v{number}"))
    left = [make_pod(f"m{number}", priority=1000) for number in range(3)] if waits else []

    pause = ledger.pauses.of(Asker("P", "shop", 1000, is_pod=False), make_snapshot(["n1"], left), NOW + FAR)

    assert (pause is not None) is counts


def test_the_node_of_a_room_is_left_out_but_not_while_an_equal_pod_is_nominated_there() -> None:
    ledger = Ledger()
    room_made(ledger, 1, NOW)
    equal, lower = make_pod("equal", priority=1000), make_pod("lower", priority=LOW)
    snapshot = make_snapshot(["n1"], [equal, lower])

    def nominated(uid: str) -> frozenset[str]:
        placement = Placement(namespace="ns", name=uid, uid=uid, node="n1")
        return ledger.pauses.tried(PREEMPTOR, snapshot, (placement,))

    assert nominated("P") == nominated(lower.uid) == {"n1"}
    assert nominated(equal.uid) == frozenset()


def test_a_node_whose_room_another_pod_took_is_not_left_out() -> None:
    ledger = Ledger()
    room_made(ledger, 1, NOW)
    taker = make_pod("taker", node="n1", priority=1000, start_micros=NOT_STARTED)

    assert ledger.pauses.tried(PREEMPTOR, make_snapshot(["n1"], [taker]), ()) == frozenset()
