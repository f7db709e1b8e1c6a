"""Messages become entries; readers learn what has changed; memory is bounded."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from builders_bus import NOW, make_decision, make_order, make_outcome, make_preemptor, make_victim
from makeway.bus.comparison import Comparison
from makeway.bus.plan import Refusal
from makeway.cli.history.story import OVERDUE
from makeway.dev.samples import MESSAGES
from makeway.ui.edge.answers import encoded
from makeway.ui.model.entries import MOST_TEXT, MOST_VICTIMS
from makeway.ui.model.timeline import Timeline

_LATER = NOW + timedelta(minutes=5)


def refusal(number: int, reason: str = "NotEnoughRoom", uid: str = "uid-preemptor") -> object:
    return make_decision(
        decision_id=f"dec-{number}",
        at=NOW + timedelta(seconds=number),
        status="refused",
        preemptor=make_preemptor(uid),
        diagnosis=Refusal(reason=reason, message="why not"),
    )


def test_a_decision_its_order_and_its_outcome_are_one_entry_that_changes() -> None:
    timeline, order = Timeline(), make_order(decision_id="dec-1")
    timeline.add(make_decision(decision_id="dec-1", victims=order.victims), NOW)
    (planned,) = timeline.entries()
    timeline.add(order, NOW)
    (live,) = timeline.entries()
    timeline.add(make_outcome(order), NOW)
    (ended,) = timeline.entries()

    assert [entry.result for entry in (planned, live, ended)] == ["planned", "live", "succeeded"]
    assert planned.key == live.key == ended.key
    assert planned.revision < live.revision < ended.revision == timeline.revision
    assert (ended.namespace, ended.name, ended.node) == ("shop", "urgent", "node-1")
    assert [victim.name for victim in ended.victims] == ["victim"]


def test_time_alone_changes_a_plan_without_an_order_and_an_order_without_an_outcome() -> None:
    timeline = Timeline()
    timeline.add(make_decision(decision_id="dec-1"), NOW)
    timeline.add(make_order("uid-2", decision_id="dec-2"), NOW)
    before = timeline.revision

    timeline.settle(NOW + timedelta(seconds=1))
    assert timeline.revision == before
    timeline.settle(_LATER)

    changes = timeline.since(before, 10)
    assert {entry.key: entry.result for entry in changes.entries} == {
        "dec-1": "notCarriedOut",
        "dec-2": OVERDUE,
    }
    timeline.settle(_LATER + timedelta(minutes=1))
    assert timeline.since(changes.revision, 10).entries == ()


def test_a_reader_gets_what_has_changed_since_its_revision_in_pieces() -> None:
    timeline = Timeline()
    for number in range(5):
        timeline.add(refusal(number, uid=f"uid-{number}"), NOW)  # type: ignore[arg-type]

    first = timeline.since(0, 2)
    second = timeline.since(first.revision, 2)
    third = timeline.since(second.revision, 2)

    assert [len(one.entries) for one in (first, second, third)] == [2, 2, 1]
    assert [one.more for one in (first, second, third)] == [True, True, False]
    assert third.revision == timeline.revision
    assert len({entry.key for one in (first, second, third) for entry in one.entries}) == 5


def test_a_pod_refused_again_for_the_same_reason_is_one_entry_and_the_one_before_is_removed() -> None:
    timeline = Timeline()
    timeline.add(refusal(1), NOW)  # type: ignore[arg-type]
    revision = timeline.revision
    timeline.add(refusal(2), NOW)  # type: ignore[arg-type]

    changes = timeline.since(revision, 10)
    assert [(entry.key, entry.times) for entry in changes.entries] == [("dec-2", 2)]
    assert changes.removed == ("dec-1",)
    assert len(timeline) == 1


def test_the_oldest_are_forgotten_and_a_reader_that_is_too_far_behind_begins_anew() -> None:
    timeline = Timeline(most=10)
    for number in range(1200):
        timeline.add(refusal(number, uid=f"uid-{number}"), NOW)  # type: ignore[arg-type]

    assert 10 <= len(timeline) <= 510
    assert next(iter(timeline.entries())).key == "dec-1199"
    assert timeline.since(1, 10).reset
    assert timeline.since(timeline.revision + 1, 10).reset, "of another process"
    assert not timeline.since(timeline.revision, 10).reset


def test_a_reader_that_has_nothing_gets_all_from_the_newest_to_the_oldest() -> None:
    timeline = Timeline()
    for number in range(7):
        timeline.add(refusal(number, uid=f"uid-{number}"), NOW)  # type: ignore[arg-type]

    *pieces, last = timeline.whole(3)

    assert [entry.key for one in pieces for entry in one.entries] == [f"dec-{n}" for n in range(6, -1, -1)]
    assert [(one.revision, len(one.entries)) for one in pieces] == [(0, 3), (0, 3), (0, 1)]
    assert (last.revision, last.entries, last.more) == (timeline.revision, (), False)


def test_what_a_message_says_never_decides_how_much_is_kept_of_it() -> None:
    victims = tuple(make_victim(f"victim-{number}") for number in range(5000))
    timeline = Timeline()
    timeline.add(make_order(decision_id="dec-1", victims=victims), NOW)
    timeline.add(
        make_decision(
            decision_id="dec-2",
            status="refused",
            diagnosis=Refusal(reason="R" * 10_000, message="m" * 100_000, node_reasons={"x": 1}),
        ),
        NOW,
    )
    by_key = {entry.key: entry for entry in timeline.entries()}

    assert len(by_key["dec-1"].victims) == MOST_VICTIMS
    assert by_key["dec-1"].victims_total == 5000
    assert len(by_key["dec-2"].reason) <= MOST_TEXT
    assert len(msgspec.json.encode(by_key["dec-2"])) < 3000


def test_a_reader_learns_that_all_was_read_only_with_the_last_of_it() -> None:
    timeline = Timeline()
    timeline.add(refusal(1), NOW)  # type: ignore[arg-type]
    before = timeline.revision
    assert not any(one.loaded for one in timeline.whole(10))

    timeline.add(refusal(2, uid="uid-2"), NOW)  # type: ignore[arg-type]
    timeline.complete()

    assert [one.loaded for one in timeline.whole(1)] == [False, False, True]
    first = timeline.since(0, 1)
    assert (first.more, first.loaded) == (True, False)
    assert timeline.since(before, 10).loaded
    revision = timeline.revision
    timeline.complete()
    assert timeline.revision == revision


def test_what_others_preempted_is_told_as_theirs() -> None:
    comparison = MESSAGES["comparison.full"]
    assert isinstance(comparison, Comparison)
    timeline = Timeline()
    timeline.add(replace(comparison, planned_at=NOW), NOW)

    (entry,) = timeline.entries()
    assert (entry.result, entry.preempted_by) == ("preempted", comparison.preemptor.scheduler_name)


@pytest.mark.parametrize("text", ["a\x1b[31m", "a\nb", "a\u202eb"])
def test_what_a_browser_might_act_on_is_escaped(text: str) -> None:
    timeline = Timeline()
    timeline.add(make_order(decision_id="dec-1", node=text), NOW)

    (entry, _) = timeline.whole(10)
    (sent,) = msgspec.json.decode(encoded(entry))["entries"]
    assert sent["node"].isprintable()
    assert msgspec.json.decode(encoded({text: 1})).popitem()[0].isprintable()
