"""What `makeway why podgroup/NAME` says, from the streams of a real NATS."""

import pytest

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder
from makeway.cli.output import Printer
from makeway.cli.why.command import _lines
from makeway.cli.why.explanation import NotKept, of_group
from makeway.core.k8s.times import api_time
from makeway.dev.samples import MESSAGES
from narrowing import as_a
from unit.cli.test_screens import is_as_kept
from unit.planner.building import HIGH, LOW, MID, make_budget, make_pod, make_snapshot
from unit.planner.test_group_service import Bench, member

pytestmark = pytest.mark.nats


async def decided(bus: Bus) -> DecisionRecord:
    """Decide for one member: a node with a dear pod, one with many, and one whose pod a budget keeps."""
    await bus.ensure_streams()
    pods = [
        make_pod("dear", "n1", MID, 500),
        *(make_pod(f"many-{number}", "n2", LOW, 100) for number in range(5)),
        make_pod("kept", "n3", LOW, 500, labels={"app": "kept"}),
        make_pod("M", "", HIGH, 500),
    ]
    snapshot = make_snapshot(["n1", "n2", "n3"], pods, budgets=[make_budget("kept", {"app": "kept"}, 0)])
    bench = Bench(snapshot)
    await bench.ask(classes=(member(1),), must_place=1)
    (record,) = await bench.written()
    await bus.publish_decision(record)
    return record


async def test_the_last_decision_is_told_with_its_price(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    record = await decided(bus)

    answer = await of_group(bus, "shop", "train")

    capsys.readouterr()
    printer = Printer("text")
    for line in _lines(answer):
        printer.line(line.replace(record.decision_id, "dec-1").replace(api_time(record.at), "now"))
    shown = capsys.readouterr().out
    is_as_kept("why-group", shown)


async def test_a_preemption_by_others_is_told_where_makeway_made_none(bus: Bus) -> None:
    await bus.ensure_streams()
    found = as_a(Comparison, MESSAGES["comparison.group"])
    await bus.publish_comparison(found)

    answer = await of_group(bus, "shop", "train")

    assert (answer.uid, answer.served_by_others) == (found.preemptor.uid, (found,))
    assert "made room for group shop/train" in "\n".join(_lines(answer))


async def test_of_an_unknown_group_nothing_is_said_about_options_which_the_page_has_not(bus: Bus) -> None:
    await bus.ensure_streams()

    with pytest.raises(NotKept, match="is about PodGroup shop/unknown, ") as error:
        await of_group(bus, "shop", "unknown")

    assert "--" not in str(error.value)


async def test_a_group_that_went_whole_is_told_for_whom(bus: Bus) -> None:
    await bus.ensure_streams()
    found = as_a(EvictionOrder, MESSAGES["order.group"])
    assert "PodGroup batch/train" in {victim.unit for victim in found.victims}
    await bus.publish_order(found, 0)

    answer = await of_group(bus, "batch", "train")

    assert [story.order.order_id for story in answer.taken_by if story.order] == [found.order_id]
    assert _lines(answer)[0].startswith("group batch/train: 1 pod on 1 node, chosen by order")
