from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from builders_bus import (
    NOW,
    make_decision,
    make_group_order,
    make_order,
    make_outcome,
    make_preemptor,
    make_victim,
)
from makeway.bus import codec
from makeway.bus.follow import StreamMessage
from makeway.bus.messages import DecisionRecord, EvictionOrder, Refusal, Rollback, VictimOutcome
from makeway.cli.history.audit_lines import AuditEntry, Auditor
from makeway.dev import samples

STORED = datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC)


def stored(message: codec.StreamMessage | bytes) -> StreamMessage:
    data = message if isinstance(message, bytes) else codec.wrap(message, "makeway/test/x", at=NOW)
    return StreamMessage(subject="makeway.v1.x", sequence=7, time=STORED, data=data)


def read(
    message: codec.StreamMessage | bytes, auditor: Auditor | None = None, kind: str = "order"
) -> AuditEntry:
    return (auditor or Auditor()).read(stored(message), kind)


def line(message: codec.StreamMessage | bytes, auditor: Auditor | None = None) -> str:
    auditor = auditor or Auditor()
    return auditor.line(read(message, auditor)).plain


def test_an_order_says_who_takes_which_node_from_whom_and_by_which_rule() -> None:
    text = line(
        make_order(
            victims=(make_victim("a", priority=-5), make_victim("b", pdb_violating=True)), pdb_violations=1
        )
    )

    assert text.startswith("2026-01-31T12:00:00.000Z  order     shop/urgent (1000) takes node-1:")
    assert "evict batch/a (-5, lower-priority), batch/b (0, lower-priority, violates a PDB)" in text
    assert "1 PDB violation" in text
    assert "until 2026-01-31T12:01:00.000Z" in text


def test_an_outcome_names_its_preemptor_and_counts_from_the_order() -> None:
    auditor = Auditor()
    order = make_order()
    auditor.read(stored(order), "order")

    text = line(make_outcome(order), auditor)

    assert "shop/urgent (1000) on node-1 succeeded: batch/victim deleted" in text
    assert "40.0 ms, 40.0 ms after the order" in text
    assert order.order_id in text


def test_an_order_for_a_group_and_its_outcome_name_the_group_and_its_members() -> None:
    auditor = Auditor()
    order = make_group_order(victims=(make_victim("a"), make_victim("b", node="node-2")))
    undone = Rollback(conditions_cleared=("uid-a",), nominations_reverted=("uid-train-1", "uid-train-2"))
    failed = make_outcome(
        order, result="failed", reason="delete-refused", message="b: no", victims=(), rollback=undone
    )

    begun, ended = line(order, auditor), line(failed, auditor)

    assert "order     group shop/train (2 members) (1000) takes 2 nodes: evict batch/a" in begun
    assert "outcome   group shop/train (2 members) (1000) failed (delete-refused: b: no)" in ended
    assert "rolled back: 2 nominations reverted, 1 condition cleared" in ended
    assert "outcome   group uid-train failed" in line(failed)


def test_an_outcome_whose_order_was_not_seen_names_the_uid() -> None:
    assert "pod uid-preemptor on node-1 succeeded" in line(make_outcome(make_order()))


def test_a_failed_outcome_says_why_and_what_was_undone() -> None:
    order = make_order()
    text = line(
        make_outcome(
            order,
            result="failed",
            reason="DeleteRefused",
            message="admission said no",
            deliveries=3,
            rollback=Rollback(nomination_reverted=True, conditions_cleared=("a", "b")),
            victims=(
                VictimOutcome(
                    namespace="batch", name="v", uid="u", result="failed", reason="Forbidden", attempts=4
                ),
            ),
        )
    )

    assert "failed (DeleteRefused: admission said no): batch/v failed (Forbidden) after 4 attempts" in text
    assert "rolled back: nomination reverted, 2 conditions cleared" in text
    assert "delivery 3" in text


def test_a_decision_says_what_was_chosen_by_which_rule_from_how_many() -> None:
    text = line(samples._DECISION_FULL)

    assert "shop/urgent (1000) may have node-1: evict batch/batch-a" in text
    assert "best by lowest-priority-sum; 312 candidates on 4000 of 5000 nodes; 1 PDB violation" in text
    assert "2 pods already leaving" in text


def test_a_refusal_says_why_what_stood_in_the_way_and_when_to_try_again() -> None:
    text = line(
        make_decision(
            status="refused",
            diagnosis=Refusal(
                reason="NoVictims",
                message="nothing lower",
                node_reasons={"A": 1, "B": 9},
                retry_at=NOW + timedelta(seconds=5),
            ),
        )
    )

    assert "refused: NoVictims: nothing lower; nodes: 9 B, 1 A; again at 2026-01-31T12:00:05.000Z" in text


def test_a_mode_that_acts_on_nothing_is_said() -> None:
    assert "mode observe" in line(make_decision(mode="observe", nominated_node="node-1"))


def test_a_plan_that_was_asked_for_while_the_filters_ran_says_so() -> None:
    assert "asked ahead" in line(make_decision(ahead=True, nominated_node="node-1"))
    assert "asked ahead" not in line(make_decision(nominated_node="node-1"))


@pytest.mark.parametrize("rubbish", [b"", b"\xff\xfe", b"{}", b"\x1b[31m", b'{"specversion":"9"}'])
def test_what_is_not_understood_becomes_a_line_that_says_so(rubbish: bytes) -> None:
    text = line(rubbish)

    assert "malformed order  makeway.v1.x (sequence 7): " in text


def test_nothing_in_a_message_reaches_the_terminal_as_a_control_sequence() -> None:
    nasty = "a\x1b[2J\r\n\u2028b"
    order = make_order(
        preemptor=make_preemptor(name=nasty), node=nasty, victims=(make_victim(nasty, rule=nasty),)
    )
    outcome = make_outcome(order, message=nasty, reason=nasty, node=nasty)
    decision = make_decision(
        status="refused",
        diagnosis=Refusal(reason=nasty, message=nasty, node_reasons={nasty: 1}),
        preemptor=make_preemptor(name=nasty),
    )

    for message in (order, outcome, decision):
        assert line(message).isprintable()


@pytest.mark.parametrize("name", sorted(samples.ENVELOPES))
def test_every_kind_of_message_has_a_line_and_a_json_line(name: str) -> None:
    auditor = Auditor()
    entry = auditor.read(stored(codec.encode(samples.ENVELOPES[name])), "order")

    assert auditor.line(entry).plain
    assert json.loads(auditor.json_line(entry))["event"]["specversion"] == "1.0"


def test_a_json_line_is_one_line_and_holds_the_event_with_where_it_stood() -> None:
    order = make_order()
    pretty = json.dumps(json.loads(codec.wrap(order, "makeway/test/x")), indent=2).encode()

    text = Auditor.json_line(read(pretty))

    assert "\n" not in text
    parsed = json.loads(text)
    assert (parsed["kind"], parsed["sequence"], parsed["storedAt"]) == ("order", 7, "2026-01-31T12:00:01Z")
    assert msgspec.convert(parsed["event"]["data"], EvictionOrder) == order


def test_a_malformed_message_as_json_keeps_its_reason_and_its_bytes() -> None:
    parsed = json.loads(Auditor.json_line(read(b"{\xff")))

    assert parsed["malformed"]["reason"] == "not-json"
    assert parsed["data"].startswith("{")


def test_a_namespace_selects_by_preemptor_and_by_victim() -> None:
    order = make_order(victims=(make_victim(),))

    for namespace, wanted in (("shop", True), ("batch", True), ("other", False)):
        auditor = Auditor(namespace=namespace)
        assert auditor.wanted(read(order, auditor)) is wanted
        # Its outcome names only victims; the order is remembered.
        assert auditor.wanted(read(make_outcome(order), auditor)) is wanted
        assert auditor.wanted(read(b"rubbish", auditor))


def test_an_order_id_selects_the_order_and_its_outcome() -> None:
    order, other = make_order(), make_order()
    auditor = Auditor(order=order.order_id)

    assert auditor.wanted(read(order, auditor))
    assert auditor.wanted(read(make_outcome(order), auditor))
    assert not auditor.wanted(read(other, auditor))
    assert not auditor.wanted(read(make_decision(), auditor))


def test_a_quota_says_how_far_it_comes_and_what_stood_in_the_way() -> None:
    record = samples.MESSAGES["decision.quota"]
    assert isinstance(record, DecisionRecord)

    text = line(record)

    assert "queue root.shop comes nearer to its quota: memory 45 above max memory 55" in text
    assert "; memory 5 short; 1 pod kept by the guarantee of root.shop" in text
