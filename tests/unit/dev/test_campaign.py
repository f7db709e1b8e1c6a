"""The parts of a campaign that are pure: its schedule, its tenants' grammar, its table of numbers."""

from typing import TypeVar

import pytest

from builders_bus import make_outcome
from builders_keys import KEYS, PUBLIC_DATA
from campaign.counted import Counted, Deaths, Preemptor
from campaign.forging import Forger
from campaign.injecting import rule_of
from campaign.judging import answered
from campaign.schedule import (
    API,
    CLOCK,
    COMMIT,
    KILL,
    LINE,
    MOST_AT_ONCE,
    STOP,
    draw,
    storms,
    usual_processes,
)
from makeway.bus import codec
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.signing.keys import PublicKeys, SigningKind
from makeway.bus.subjects import Subjects
from makeway.dev.checker.history import StoredRecord, Streams
from makeway.dev.checker.orders import OrderHistory
from unit.dev.recorded_history import at, order_of

pytestmark = pytest.mark.tools

M = TypeVar("M", EvictionOrder, Outcome)

PROCESSES = usual_processes(planners=2, evictors=3, schedulers=2, nats_servers=3)


def test_a_seed_plays_the_same_schedule_again_and_another_seed_another() -> None:
    assert draw(7, 30, PROCESSES) == draw(7, 30, PROCESSES)
    assert draw(7, 30, PROCESSES) != draw(8, 30, PROCESSES)


@pytest.mark.parametrize("seed", range(50))
def test_injections_end_with_their_storm_and_a_process_suffers_one_thing_at_a_time(seed: int) -> None:
    schedule = draw(seed, 30, PROCESSES)

    for begin, end in storms(30):
        within = [one for one in schedule if begin <= one.at_seconds < end]
        assert 1 <= len(within) <= MOST_AT_ONCE
        assert all(one.at_seconds + one.seconds <= end + 0.1 for one in within)
        assert len(within) == 1 or not any(one.kind == COMMIT for one in within)
        hurt = [one.target for one in within if one.kind in (KILL, STOP, LINE, CLOCK)]
        assert len(hurt) == len(set(hurt))
    assert all(rule_of(one) for one in schedule if one.kind == API)


def test_an_evictor_that_answers_a_forged_order_is_found_and_one_that_answers_its_replay_is_not() -> None:
    real, forged = order_of(1), order_of(2)
    orders = (stored(1, real), stored(2, forged), stored(3, real))
    streams = Streams(
        orders=orders, outcomes=(stored(7, make_outcome(real)), stored(8, make_outcome(forged)))
    )
    sent = {(Subjects().orders_stream, 2), (Subjects().orders_stream, 3)}

    assert answered(streams, sent) == [f"forged order {forged.order_id} has an outcome: succeeded"]
    assert answered(streams, {*sent, (Subjects().outcomes_stream, 8)}) == []


def test_no_forged_message_verifies_whatever_form_it_has() -> None:
    order = order_of(1)
    subject = Subjects().order(order)
    forger = Forger("nats://nowhere", "cluster", 3, KEYS)

    verdicts = {
        PublicKeys.parse(PUBLIC_DATA).verify(
            codec.unwrap(forger.sealed(order, subject))[0], SigningKind.ORDER, subject
        )
        for _ in range(60)
    }

    assert verdicts == {"unsigned", "unknown-key", "invalid-signature"}


def test_a_preemptor_with_one_victim_and_one_order_is_as_it_has_to_be() -> None:
    assert counted(ended(1)).findings([Deaths(at(0), at(60), (at(5),))]) == []


@pytest.mark.parametrize(
    ("orders", "gone", "bound", "found"),
    [
        ([], 1, 12, "high-1 is bound with 0 victims; its orders: none"),
        ([1, 2], 2, 12, "high-1 is bound with 2 victims; its orders: ord-"),
        ([1, 2], 2, 12, "2 victims are gone for 1 preemptors that are bound"),
        ([1, 2], 2, 12, "high-1, of a storm of deaths, has ord-"),
        ([1], 1, 32, "high-1 was bound 22 s after the last death of a storm"),
        ([1], 0, None, "preemptor high-1 is not bound"),
    ],
)
def test_preemptors_that_are_robbed_late_or_served_twice_are_found(
    orders: list[int], gone: int, bound: int | None, found: str
) -> None:
    seen = counted(*map(ended, orders), gone=gone, bound=bound)

    findings = seen.findings([Deaths(at(0), at(60), (at(5), at(10)))])

    assert any(found in one for one in findings), findings


@pytest.mark.parametrize(("unbound", "found"), [((), 2), (("uid",), 0), (("other",), 1)])
def test_an_equal_may_take_the_room_of_a_preemptor_whose_binding_failed(
    unbound: tuple[str, ...], found: int
) -> None:
    pods = tuple(Preemptor(uid, uid, at(8), at(12)) for uid in ("uid", "other"))
    seen = Counted(pods, 2, {"uid": (ended(1), ended(2))}, unbound)

    assert len(seen.findings()) == found


def counted(*orders: OrderHistory, gone: int = 1, bound: int | None = 12) -> Counted:
    preemptor = Preemptor("uid", "high-1", at(8), None if bound is None else at(bound))
    return Counted((preemptor,), gone, {"uid": orders})


def ended(number: int) -> OrderHistory:
    order = order_of(number)
    return OrderHistory(order, at(9), make_outcome(order), at(11))


def stored(sequence: int, message: M) -> StoredRecord[M]:
    return StoredRecord(sequence, at(sequence), "subject", message)
