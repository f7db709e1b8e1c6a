"""What `makeway why podgroup/NAME` says of other orders of the terms, from the recording on a real NATS."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder
from makeway.cli.output import Printer
from makeway.cli.why.command import _lines
from makeway.cli.why.explanation import of_group
from makeway.core.k8s.times import api_time
from makeway.dev.samples import MESSAGES
from makeway.planner.recording.entries import encode_entry, pack
from makeway.planner.recording.journal import Journal, contents
from unit.cli.test_screens import is_as_kept
from unit.planner.building import HIGH, LOW, MID, make_budget, make_pod, make_snapshot
from unit.planner.test_group_service import Bench, member

pytestmark = pytest.mark.nats


async def decided(bus: Bus) -> DecisionRecord:
    """Decide for one member: a node with a dear pod, one with many, and one whose pod a budget keeps."""
    await bus.ensure_streams()
    journal = Journal()
    pods = [
        make_pod("dear", "n1", MID, 500),
        *(make_pod(f"many-{number}", "n2", LOW, 100) for number in range(5)),
        make_pod("kept", "n3", LOW, 500, labels={"app": "kept"}),
        make_pod("M", "", HIGH, 500),
    ]
    snapshot = make_snapshot(["n1", "n2", "n3"], pods, budgets=[make_budget("kept", {"app": "kept"}, 0)])
    bench = Bench(snapshot, journal=journal)
    begun = [encode_entry(one) for one in contents(snapshot, "cluster-1", "planner-1", datetime.now(UTC))]
    journal.begin("rec-1")
    await bench.ask(classes=(member(1),), must_place=1)
    (record,) = await bench.written()
    await bus.publish_decision(record)
    entries = [*begun, *(encode_entry(one) for one in journal.take(10))]
    await bus.publish_recording("rec-1", 0, pack(0, entries), 0)
    return record


async def test_the_recording_tells_what_other_orders_would_have_cost(
    bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    record = await decided(bus)

    answer = await of_group(bus, "shop", "train", plan=True)

    capsys.readouterr()
    printer = Printer("text")
    for line in _lines(answer):
        printer.line(line.replace(record.decision_id, "dec-1").replace(api_time(record.at), "now"))
    shown = capsys.readouterr().out
    assert "other orders of the terms" in shown
    is_as_kept("why-group", shown)


async def test_nothing_is_planned_for_a_user_who_may_not_list_pods(bus: Bus) -> None:
    await decided(bus)

    answer = await of_group(bus, "shop", "train", plan=False)

    assert answer.other_orders is None


async def test_a_decision_without_its_recording_says_nothing_of_other_orders(bus: Bus) -> None:
    record = await decided(bus)
    await bus.publish_decision(replace(record, decision_id=f"{record.decision_id}x", recording="rec-2"))

    answer = await of_group(bus, "shop", "train", plan=True)

    assert answer.last_decision is not None
    assert answer.last_decision.recording == "rec-2"
    assert answer.other_orders is None


async def test_a_preemption_by_others_is_told_where_makeway_made_none(bus: Bus) -> None:
    await bus.ensure_streams()
    found = MESSAGES["comparison.group"]
    assert isinstance(found, Comparison)
    await bus.publish_comparison(found)

    answer = await of_group(bus, "shop", "train", plan=True)

    assert (answer.uid, answer.served_by_others) == (found.preemptor.uid, (found,))
    assert "made room for group shop/train" in "\n".join(_lines(answer))


async def test_a_group_that_went_whole_is_told_for_whom(bus: Bus) -> None:
    await bus.ensure_streams()
    found = MESSAGES["order.group"]
    assert isinstance(found, EvictionOrder)
    assert "PodGroup batch/train" in {victim.unit for victim in found.victims}
    await bus.publish_order(found, 0)

    answer = await of_group(bus, "batch", "train", plan=True)

    assert [story.order.order_id for story in answer.taken_by] == [found.order_id]
    assert _lines(answer)[0].startswith("group batch/train: 1 pod on 1 node, chosen by order")
