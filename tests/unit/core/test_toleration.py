"""PreemptionToleration: whom a PriorityClass exempts, from whom, and for how long."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Metadata, PriorityClass
from makeway.core.policy.facts import NOT_SCHEDULED, PodFacts
from makeway.core.policy.toleration import (
    MINIMUM_PREEMPTABLE_PRIORITY,
    TOLERATION_SECONDS,
    TolerationVerdict,
    can_tolerate_preemption,
    tolerates,
    toleration_of,
)
from makeway.core.policy.toleration_record import (
    UNREAD_RECORD,
    RecordError,
    TolerationRecord,
    entry_of,
    parse_record,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = timedelta(days=400)


def make_class(minimum: str | None = "200", seconds: str | None = None, value: int = 100) -> PriorityClass:
    annotations = {MINIMUM_PREEMPTABLE_PRIORITY: minimum, TOLERATION_SECONDS: seconds}
    return PriorityClass(
        metadata=Metadata(name="steady", annotations={k: v for k, v in annotations.items() if v is not None}),
        value=value,
    )


def make_victim(ago: timedelta | None = timedelta(0), priority: int = 100, cls: str = "steady") -> PodFacts:
    scheduled = NOT_SCHEDULED if ago is None else microseconds(NOW - ago)
    return PodFacts(priority=priority, priority_class=cls, scheduled_micros=scheduled)


def ask(
    preemptor: int, priority_class: PriorityClass | None, victim: PodFacts | None = None
) -> TolerationVerdict:
    return can_tolerate_preemption(victim or make_victim(), priority_class, preemptor, NOW)


@pytest.mark.parametrize(
    ("ago", "exempt"),
    [
        (timedelta(seconds=101), False),
        (timedelta(seconds=10), True),
        (timedelta(seconds=100), True),
        (timedelta(seconds=100, microseconds=1), False),
    ],
)
def test_a_toleration_lasts_so_long_its_last_second_included(ago: timedelta, exempt: bool) -> None:
    found = ask(199, make_class(seconds="100"), make_victim(ago))

    assert found.exempt is exempt
    assert found.until == (NOW - ago + timedelta(seconds=100) if exempt else None)


@pytest.mark.parametrize("preemptor", [199, 2_000_000_000])
@pytest.mark.parametrize(("minimum", "seconds"), [("a", "30"), ("200", "a")])
def test_a_class_that_cannot_be_read_exempts_its_pods_from_all_and_says_what_is_wrong(
    minimum: str, seconds: str, preemptor: int
) -> None:
    found = ask(preemptor, make_class(minimum, seconds), make_victim(ago=LONG_AGO))

    assert found.exempt
    assert found.until is None
    assert "is not a whole number" in found.detail


def test_a_class_that_is_gone_tolerates_nothing() -> None:
    found = ask(199, None)

    assert not found.exempt
    assert found.detail == "PriorityClass steady does not exist"


def test_a_class_that_is_gone_tolerates_what_the_record_has_of_it_and_the_detail_says_where() -> None:
    record = TolerationRecord({"steady": make_class(seconds="100")})

    found = can_tolerate_preemption(make_victim(), None, 199, NOW, record)

    assert found.exempt
    assert found.until == NOW + timedelta(seconds=100)
    assert found.detail.startswith("PriorityClass steady is gone, makeway-tolerations has it: 199 < minimum-")
    assert not can_tolerate_preemption(make_victim(), None, 200, NOW, record).exempt


def test_a_class_that_is_back_counts_as_it_is_and_not_as_it_is_on_record() -> None:
    record = TolerationRecord({"steady": make_class(seconds="-1")})

    assert not can_tolerate_preemption(make_victim(), make_class(seconds="0"), 199, NOW, record).exempt


def test_a_class_that_is_gone_exempts_its_pods_while_the_record_has_never_been_read() -> None:
    found = can_tolerate_preemption(make_victim(), None, 2_000_000_000, NOW, UNREAD_RECORD)

    assert found.exempt
    assert found.until is None
    assert found.detail == (
        "PriorityClass steady does not exist, and ConfigMap makeway-tolerations has not been read"
    )


@pytest.mark.parametrize("seconds", ["-1", "100", "ten"])
def test_a_class_that_tolerates_is_kept_with_what_decides(seconds: str) -> None:
    steady = make_class(None, seconds, value=7)

    entry = entry_of(steady)
    kept = parse_record({"steady": entry}).classes["steady"]

    assert tolerates(steady)
    assert tolerates(kept)
    assert toleration_of(kept) == toleration_of(steady)


def test_of_an_annotation_no_more_is_kept_than_tells_that_it_is_no_number() -> None:
    entry = entry_of(make_class("1" * 5000, "9" * 5000))

    assert len(entry) < 500
    assert tolerates(parse_record({"steady": entry}).classes["steady"])


@pytest.mark.parametrize("seconds", [None, "0"])
def test_a_class_that_tolerates_for_no_time_tolerates_nothing(seconds: str | None) -> None:
    assert not tolerates(make_class(seconds=seconds))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"metadata":{"annotations":{"a":1}}}'])
def test_a_record_with_an_entry_that_is_no_class_cannot_be_used_and_says_which(text: str) -> None:
    with pytest.raises(RecordError, match="the entry steady is no PriorityClass in JSON"):
        parse_record({"other": entry_of(make_class()), "steady": text})


def test_the_answer_names_both_priorities_and_the_seconds() -> None:
    assert ask(199, make_class(seconds="100")).detail == (
        "199 < minimum-preemptable-priority 200 of PriorityClass steady, "
        "for 100 s since it was scheduled at 2026-01-01T12:00:00Z"
    )


@given(
    minimum=st.integers(-(2**31), 2**31 - 1),
    seconds=st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
    preemptor=st.integers(-(2**31), 2**31 - 1),
    ago=st.none() | st.timedeltas(timedelta(seconds=-10), timedelta(seconds=10)),
)
def test_time_only_ever_ends_a_toleration_and_does_so_right_after_the_time_given(
    minimum: int, seconds: int, preemptor: int, ago: timedelta | None
) -> None:
    priority_class, victim = make_class(str(minimum), str(seconds)), make_victim(ago)

    found = can_tolerate_preemption(victim, priority_class, preemptor, NOW)

    if found.until is not None:
        assert found.exempt
        assert can_tolerate_preemption(victim, priority_class, preemptor, found.until).exempt
        after = found.until + timedelta(microseconds=1)
        assert not can_tolerate_preemption(victim, priority_class, preemptor, after).exempt
    else:
        much_later = NOW + timedelta(days=365_000)
        later = can_tolerate_preemption(victim, priority_class, preemptor, much_later)
        assert later.exempt == found.exempt
