"""The parts of a campaign that are pure: its schedule, its tenants' grammar, its table of numbers."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from builders_bus import make_outcome
from builders_keys import KEYS, PUBLIC_DATA
from campaign import document, grammar
from campaign.counted import Counted, Deaths, Preemptor
from campaign.forging import Forger
from campaign.injecting import rule_of
from campaign.judging import answered, without
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
from makeway.bus.signing.keys import PublicKeys, SignatureVerdict, SigningKey, SigningKind
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


def test_the_grammar_is_drawn_from_the_seed_and_stays_below_what_the_api_server_refuses() -> None:
    chance, again = random.Random(3), random.Random(3)
    pods = [grammar.hostile(chance, f"hostile-{number}") for number in range(300)]

    assert pods == [grammar.hostile(again, f"hostile-{number}") for number in range(300)]
    assert max(len(json.dumps(pod)) for pod in pods) < 1_500_000
    assert all(len(value) <= 63 for pod in pods for value in pod["metadata"]["labels"].values())


def test_the_numbers_of_a_run_stand_between_the_marks_of_the_document(tmp_path: Path) -> None:
    path = tmp_path / "reliability.md"
    path.write_text(f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n")
    summary = {
        "seed": 7,
        "minutes": 30.0,
        "nodes": 24,
        "nats_servers": 3,
        "injected": {"kill evictor": 4, "kill nats": 3},
        "forged": {},
        "requests_spoilt": 1200,
        "load": {},
        "seen": {"orders": 1500},
        "violations": 0,
        "not_settled": 0,
    }

    document.write([summary], path)

    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| kill 7, requests of the API server spoilt 1,200 |" in text
    assert "orders 1,500" in text
    assert "0 violations" in text
    with pytest.raises(ValueError, match="has no line"):
        document.write([summary], Path(__file__).parents[3] / "README.md")


def test_what_was_forged_is_no_part_of_the_history_that_is_judged() -> None:
    real, forged = order_of(1), order_of(2)
    streams = Streams(orders=(stored(1, real), stored(2, forged)), outcomes=(stored(7, make_outcome(real)),))
    answered = Streams(
        orders=streams.orders, outcomes=(*streams.outcomes, stored(8, make_outcome(forged, result="refused")))
    )

    assert without(answered, {(Subjects().orders_stream, 2)}) == Streams(streams.orders[:1], streams.outcomes)
    assert without(answered, {(Subjects().outcomes_stream, 7)}).outcomes == answered.outcomes[1:]


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

    assert verdicts == {SignatureVerdict.MISSING, SignatureVerdict.UNKNOWN_KEY, SignatureVerdict.INVALID}


@pytest.mark.parametrize(("keys", "sound"), [({}, False), (KEYS, True)])
def test_a_forged_control_state_is_wrong_in_itself_unless_signatures_keep_it_out(
    keys: dict[SigningKind, SigningKey], sound: bool
) -> None:
    forger = Forger("nats://nowhere", "cluster", 3, keys)
    states = [forger.control() for _ in range(60)]
    now = datetime.now(UTC)

    believable = [
        one for one in states if one.cluster_uid == "cluster" and not codec.is_ahead(one.revision, now)
    ]

    assert bool(believable) == sound
    assert len(believable) < len(states)
    assert all(forger.sealed(one, "makeway.control") for one in states)


def test_every_second_storm_kills_planners_that_commit_and_does_nothing_else() -> None:
    kinds = [{one.kind for one in draw(3, 30, PROCESSES) if b <= one.at_seconds < e} for b, e in storms(30)]

    assert all((found == {COMMIT}) == bool(number % 2) for number, found in enumerate(kinds))


def test_a_preemptor_with_one_victim_and_one_order_is_as_it_has_to_be() -> None:
    assert counted(ended(1)).findings([Deaths(at(0), at(60), (at(5),))]) == []


def test_an_order_that_was_cancelled_before_it_did_anything_is_no_second_one() -> None:
    order = order_of(2)
    cancelled = OrderHistory(order, at(9), make_outcome(order, result="cancelled", victims=()), at(10))

    assert counted(cancelled, ended(1)).findings([Deaths(at(0), at(60), (at(5),))]) == []


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


def test_the_numbers_of_equal_preemptors_tell_deaths_and_the_longest_wait_after_one() -> None:
    numbers = counted(ended(1)).counts([Deaths(at(0), at(60), (at(5), at(10)))])

    assert numbers["planners killed within a commit"] == 2
    assert numbers["longest wait after a leader's death, s"] == 2.0
    assert numbers["equal preemptors bound"] == numbers["their victims deleted"] == 1


def counted(*orders: OrderHistory, gone: int = 1, bound: int | None = 12) -> Counted:
    preemptor = Preemptor("uid", "high-1", at(8), None if bound is None else at(bound))
    return Counted((preemptor,), gone, {"uid": orders})


def ended(number: int) -> OrderHistory:
    order = order_of(number)
    return OrderHistory(order, at(9), make_outcome(order), at(11))


def stored(sequence: int, message: M) -> StoredRecord[M]:
    return StoredRecord(sequence, at(sequence), "subject", message)
