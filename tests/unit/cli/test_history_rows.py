"""Decisions, orders and outcomes as rows, and what mode observe's comparisons come to."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from makeway.bus.comparison import Choice, Comparison, ComparisonResult
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome, Victim, Void
from makeway.bus.nats.jetstream import StoredMessage
from makeway.bus.plan import Refusal
from makeway.cli.history.comparisons import cells as compared_cells
from makeway.cli.history.comparisons import sentences, summed
from makeway.cli.history.following import Coming
from makeway.cli.history.rows import History, Wanted, cells
from makeway.cli.history.story import NOT_CARRIED_OUT, Row
from makeway.cli.history.streams import StreamEntry, entry_of
from makeway.dev.samples import MESSAGES
from narrowing import as_a, there

AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ALL = Wanted()


def sample(name: str) -> object:
    return MESSAGES[name]


def decision(number: int = 1, **changes: object) -> DecisionRecord:
    record = as_a(DecisionRecord, sample("decision.full"))
    fields = {"decision_id": f"dec-{number}", "at": AT + timedelta(seconds=number), "diagnosis": None}
    return replace(record, **{**fields, "status": "candidates", "mode": "enforce", **changes})


def refusal(number: int, reason: str) -> DecisionRecord:
    return decision(
        number,
        status="refused",
        diagnosis=Refusal(reason=reason, message="why"),
        nominated_node="",
        victims=(),
    )


def order(decision_id: str = "dec-1", **changes: object) -> EvictionOrder:
    one = as_a(EvictionOrder, sample("order.full"))
    return replace(one, order_id="ord-1", decision_id=decision_id, created_at=AT, **changes)


def outcome(result: str = "succeeded", reason: str = "") -> Outcome:
    one = as_a(Outcome, sample("outcome.full"))
    return replace(
        one, order_id="ord-1", result=result, reason=reason, finished_at=AT + timedelta(seconds=1.5)
    )


def rows(
    *messages: DecisionRecord | EvictionOrder | Outcome, wanted: Wanted = ALL, now: datetime = AT
) -> list[Row]:
    history = History()
    for message in messages:
        history.add(message)
    return history.rows(now, wanted)


def test_a_void_is_a_plan_that_was_not_carried_out_and_says_why() -> None:
    void = Void(reason="late", message="the nomination was not seen in time")
    one = replace(order(), victims=(), void=void)
    history = History()
    history.add(decision())
    history.add(one)

    [row] = history.rows(AT)

    assert (row.result, row.reason) == (NOT_CARRIED_OUT, "late: the nomination was not seen in time")
    assert row.victims == decision().victims
    assert row.until is None
    assert history.forget(0) == ["dec-1"]


def test_an_order_for_a_group_is_a_row_that_names_the_group_its_members_and_how_many_nodes() -> None:
    one, ended = sample("order.group"), sample("outcome.group")

    [row] = rows(as_a(EvictionOrder, one), as_a(Outcome, ended))

    assert (row.kind, row.namespace, row.name, row.members) == ("group", "shop", "train-7", 2)
    assert (row.result, row.reason) == ("failed", "delete-refused")
    shown = cells(row, AT)
    assert shown[2] == "group of 2: shop/train-7"
    assert shown[4] == "3 nodes"


def refused_group(number: int) -> DecisionRecord:
    one = as_a(DecisionRecord, sample("decision.group"))
    refused = Refusal(reason="NotEnoughRoom", message="why")
    return replace(
        one,
        decision_id=f"dec-{number}",
        at=AT + timedelta(seconds=number),
        status="refused",
        diagnosis=refused,
        victims=(),
    )


def test_a_group_that_is_refused_again_and_again_is_one_row_that_names_it() -> None:
    [row] = rows(refused_group(1), refused_group(2), refused_group(3), wanted=Wanted("shop"))

    assert (row.kind, row.namespace, row.name, row.times) == ("group", "shop", "train", 3)
    assert cells(row, AT)[2] == "group shop/train"
    assert row.uid == there(refused_group(1).group).uid


def test_a_decision_its_order_and_its_outcome_are_one_row_in_whatever_order_they_come() -> None:
    messages = (decision(), order(), outcome("failed", "delete-refused"))

    (row,) = rows(*messages)

    assert (row.result, row.reason, row.took_seconds) == ("failed", "delete-refused", 1.5)
    assert (row.decision_id, row.order_id) == ("dec-1", "ord-1")
    assert rows(*reversed(messages)) == [row]


def test_without_an_order_a_row_says_what_became_of_the_decision() -> None:
    results = [
        row.result for row in rows(decision(1), decision(2, mode="observe"), refusal(3, "NotEnoughRoom"))
    ]

    assert results == ["planned", "observed", "refused"]


def test_a_plan_asked_for_ahead_says_so_until_it_has_an_order() -> None:
    assert [row.reason.partition(":")[0] for row in rows(decision(ahead=True))] == ["asked ahead"]
    assert [row.reason for row in rows(decision(ahead=True), order())] == [""]


def test_a_plan_that_no_order_has_come_of_is_marked_once_none_can_come() -> None:
    later = AT + timedelta(minutes=1)
    asked = decision(1, ahead=False), decision(2, ahead=False), decision(3, preemptor=None)

    found = rows(*asked, now=later)

    assert {row.result for row in rows(*asked, now=AT + timedelta(seconds=20))} == {"planned"}
    assert [row.result for row in found] == [NOT_CARRIED_OUT] * 3
    assert [row.reason.partition(":")[0] for row in found] == ["planned again", "no order", "asked ahead"]
    assert cells(found[1], later)[7:9] == ("not carried out", "no order")
    assert [row.result for row in rows(decision(), order(), now=later)] == ["live"]
    (late,) = rows(decision(), order(), now=later + timedelta(minutes=9))
    assert (late.result, cells(late, later)[7]) == ("overdue", "no outcome")
    assert [row.result for row in rows(decision(mode="observe"), now=later)] == ["observed"]


def test_a_pod_refused_again_for_the_same_reason_is_one_row_and_for_another_reason_a_new_one() -> None:
    found = rows(refusal(1, "A"), refusal(2, "A"), refusal(3, "A"), refusal(4, "B"))

    assert [(row.times, row.reason.partition(":")[0], row.decision_id) for row in found] == [
        (3, "A", "dec-3"),
        (1, "B", "dec-4"),
    ]
    assert cells(found[0], AT)[7:9] == ("refused (x3)", "A")


def test_rows_are_asked_for_by_namespace_of_preemptor_or_victim_and_by_queue_or_what_is_below_it() -> None:
    one = decision(queue="root.shop.web")

    for wanted in (Wanted("shop"), Wanted("batch"), Wanted(queue="root.shop"), Wanted(queue="root.shop.web")):
        assert rows(one, wanted=wanted), wanted
    for wanted in (Wanted("other"), Wanted(queue="root.sho"), Wanted("shop", "root.ml")):
        assert rows(one, wanted=wanted) == [], wanted


def test_what_is_no_longer_live_is_forgotten_beyond_the_bound() -> None:
    history = History()
    history.add(order("dec-9", not_after=AT + timedelta(minutes=1)))
    for number in range(10, 20):
        history.add(decision(number))

    history.forget(3)

    assert [row.decision_id for row in history.rows(AT) if row.result == "live"] == ["dec-9"]
    assert len(history.rows(AT)) == 4


def victims(count: int) -> tuple[Victim, ...]:
    one = decision().victims[0]
    return tuple(replace(one, uid=f"{one.uid}-{number}") for number in range(count))


def comparison(
    result: ComparisonResult, ours: int, theirs: int, *, violations: int = 0, by: str = ""
) -> Comparison:
    one = as_a(Comparison, sample("comparison.full"))
    return replace(
        one,
        result=result,
        decided_by=by,
        makeway=Choice(node="n1", victims=victims(ours)) if ours else None,
        default_preemption=Choice(node="n2", victims=victims(theirs), pdb_violations=violations)
        if theirs
        else None,
    )


def test_victims_and_violations_are_summed_only_where_both_made_a_choice() -> None:
    summary = summed(
        [
            comparison("better", 1, 3, violations=2, by="fewest-pdb-violations"),
            comparison("worse", 2, 1, by="fewest-victims"),
            comparison("same", 1, 1),
            comparison("defaultOnly", 0, 5),
            comparison("makewayOnly", 4, 0),
        ]
    )

    assert (summary.compared, summary.pairs) == (5, 3)
    assert (summary.victims.makeway, summary.victims.default_preemption) == (4, 5)
    assert (summary.saved_victims, summary.saved_pdb_violations) == (1, 2)
    assert summary.worse_by == {"fewest-victims": 1}
    assert sentences(summary) == [
        "5 compared, 3 with a choice on both sides: same 1, better 1, worse 1, makewayOnly 1, defaultOnly 1",
        "victims: 5 by DefaultPreemption, 4 by makeway, which would have saved 1 victim",
        "PDB violations: 2 by DefaultPreemption, 0 by makeway, which would have saved 2 violations",
        "makeway would have done worse: 1 by fewest-victims",
    ]


def test_groups_that_were_broken_are_told_where_there_are_any() -> None:
    one = comparison("better", 1, 3, by="fewest-victims")
    broken = replace(one, default_preemption=replace(there(one.default_preemption), groups_broken=2))

    summary = summed([broken, comparison("same", 1, 1)])

    assert (summary.groups_broken.default_preemption, summary.saved_groups) == (2, 2)
    told = "groups broken: 2 by DefaultPreemption, 0 by makeway, which would have saved 2 groups"
    assert told in sentences(summary)
    assert compared_cells(broken, AT)[3].startswith("2 groups broken, 3 pods, n2: ")
    assert not any("groups" in line for line in sentences(summed([one])))


def test_what_victims_lose_of_their_work_is_said_where_they_lose_any() -> None:
    one = comparison("better", 1, 3, by="fewest-victims")
    assert one.makeway is not None
    assert one.default_preemption is not None
    worked = replace(
        one,
        makeway=replace(one.makeway, lost_work_seconds=3_600),
        default_preemption=replace(one.default_preemption, lost_work_seconds=9_000),
    )

    said = "lost work: 2h30m by DefaultPreemption, 1h by makeway, which would have saved 1h30m "
    assert said + "of pods of the preemptors' size" in sentences(summed([worked]))
    assert not any("lost work" in line for line in sentences(summed([one])))


def test_a_loss_and_an_empty_sum_are_said_as_what_they_are() -> None:
    assert "cost 1 victim more" in sentences(summed([comparison("worse", 2, 1, by="fewest-victims")]))[1]
    assert "nothing was compared" in sentences(summed([]))[0]


def test_what_cannot_be_read_is_told_with_its_place_and_its_text() -> None:
    stored = StoredMessage(subject="s", sequence=3, time=AT, headers={}, data=b"\x1b[31m\n")

    plain = entry_of("order", stored).plain()

    assert (plain["kind"], plain["sequence"]) == ("order", 3)
    assert plain["malformed"]["reason"] == "not-json"
    assert plain["data"] == "\x1b[31m\n"


def test_what_changes_no_row_is_followed_by_the_namespaces_that_it_names() -> None:
    unmatched = replace(as_a(Comparison, sample("comparison.full")), default_preemption=None)
    without_its_order = replace(outcome(), order_id="ord-before")
    stored = StoredMessage(subject="s", sequence=3, time=AT, headers={}, data=b"")

    for message, namespace in (
        (unmatched, unmatched.preemptor.namespace),
        (without_its_order, without_its_order.victims[0].namespace),
    ):
        entry = StreamEntry(stored, "decision", AT, message)
        follows = {name: Coming(Wanted(namespace=name)).take(entry, AT) for name in (namespace, "elsewhere")}
        assert follows == {namespace: (True, []), "elsewhere": (False, [])}
