"""Whose a preemption is, whatever the watch and the ledger learn first."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from makeway.core.k8s.authorship import (
    EVICTOR,
    MOST_ENTRIES,
    ManagedPod,
    with_writers,
    writers_of_mark,
    writers_of_nomination,
)
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.authors import author
from unit.planner.test_observing import Bench, following, looks, planned, two_nodes, unasked_preemptor
from unit.planner.test_observing_groups import Groups, cluster

__all__ = ["looks"]

KUBE_SCHEDULER = "kube-scheduler"


@pytest.mark.parametrize("writers", [frozenset(), frozenset({KUBE_SCHEDULER}), frozenset({EVICTOR})])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_the_writer_decides_then_an_order_that_names_the_pod_then_that_all_orders_were_read(
    writers: frozenset[str], named: bool, read: bool
) -> None:
    found = author(writers, named=named, read=read)

    if EVICTOR in writers or named:
        assert found == "makeway"
    elif writers:
        assert found == "others"
    else:
        assert found == ("others" if read else "undecided")


@pytest.mark.parametrize("by", [EVICTOR, ""], ids=["writer-known", "writer-unknown"])
async def test_an_own_preemption_seen_before_its_order_is_read_is_told_as_no_others(by: str) -> None:
    bench = following(two_nodes())
    bench.ledger.are_read(False)

    bench.observing.put(unasked_preemptor())
    bench.mark("a", by=by)
    bench.observing.put(unasked_preemptor(nodeName="n1"))  # bound before the ledger has read the order
    await planned(bench)
    assert await bench.told(timedelta(seconds=1)) == []
    bench.ledger.named.add("a")
    bench.ledger.are_read(True)
    bench.observing.orders_read()
    await planned(bench)

    assert await bench.told() == []
    assert len(bench.observing) == 0


@pytest.mark.parametrize("by", [EVICTOR, ""], ids=["writer-known", "writer-unknown"])
async def test_a_mark_of_an_order_that_failed_and_was_rolled_back_is_told_as_no_others(by: str) -> None:
    bench = following(two_nodes())
    bench.ledger.named.add("a")

    bench.mark("a", by=by)
    bench.observing.put(unasked_preemptor())
    bench.end("P", "a", "failed")
    bench.unmark("a")
    await planned(bench)

    assert await bench.told() == []


async def test_a_mark_that_is_taken_back_while_it_is_held_is_none() -> None:
    bench = following(two_nodes())
    bench.ledger.are_read(False)

    bench.mark("a")
    bench.unmark("a")
    bench.ledger.are_read(True)
    bench.observing.put(unasked_preemptor())
    await planned(bench)

    assert await bench.told() == []


@pytest.mark.parametrize("by", [KUBE_SCHEDULER, ""], ids=["writer-known", "writer-unknown"])
async def test_kube_schedulers_own_preemption_in_mode_observe_is_compared(by: str) -> None:
    bench = Bench(two_nodes())
    bench.ledger.are_read(bool(by))
    bench.decide()

    bench.nominate("n1")
    bench.mark("a", by=by)
    bench.observing.put(unasked_preemptor(nodeName="n1"))
    if not by:
        assert await bench.told(timedelta(seconds=60)) == [], "held until all orders have been read"
    bench.ledger.are_read(True)

    (comparison,) = await bench.told(timedelta())
    assert comparison.result == "same"
    assert [one.name for one in comparison.default_preemption.victims] == ["a"]  # type: ignore[union-attr]


@pytest.mark.parametrize("own", [True, False])
async def test_marks_for_a_group_are_told_apart_in_the_same_way(own: bool) -> None:
    bench = Groups(cluster())
    bench.ledger.are_read(False)
    bench.decide_group()

    bench.mark_for_group("a", *(f"s{n}" for n in range(5)))
    bench.place(g0="n1", g1="n3")
    assert await bench.told(timedelta(seconds=60)) == []
    if own:
        bench.ledger.named.update(("a", *(f"s{n}" for n in range(5))))
    bench.ledger.are_read(True)

    found = await bench.told(timedelta())
    evicted = [one for each in found if each.default_preemption for one in each.default_preemption.victims]
    assert len(evicted) == (0 if own else 6)


def decoded(*entries: dict[str, Any]) -> Pod:
    metadata = {"name": "a", "managedFields": list(entries)}
    pod = {"metadata": metadata, "spec": {}, "status": {"conditions": [{"type": "DisruptionTarget"}]}}
    return msgspec.json.decode(msgspec.json.encode(pod), type=ManagedPod)


def entry(manager: str, subresource: str = "status", **status: Any) -> dict[str, Any]:
    fields = {"f:status": {f"f:{name}": value for name, value in status.items()}}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-26T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }


def test_the_writers_of_mark_and_nomination_are_read_from_the_status_alone() -> None:
    mark: dict[str, Any] = {'k:{"type":"DisruptionTarget"}': {".": {}, "f:message": {}, "f:reason": {}}}
    ready: dict[str, Any] = {".": {}, 'k:{"type":"Ready"}': {".": {}}}
    pod = decoded(
        {"manager": "kubectl-create", "fieldsV1": {"f:metadata": {}, "f:spec": {}}},
        entry("kubelet", conditions=ready),
        entry(EVICTOR, conditions=mark),
        entry("forger", subresource="", conditions=mark),
        entry(KUBE_SCHEDULER, nominatedNodeName={}),
    )

    assert writers_of_mark(pod) == {EVICTOR}
    assert writers_of_nomination(pod) == {KUBE_SCHEDULER}


def test_a_watch_reads_the_writers_of_pods_alone_that_carry_a_mark_and_have_few() -> None:
    mark: dict[str, Any] = {'k:{"type":"DisruptionTarget"}': {".": {}}}
    few, many = [entry(EVICTOR, conditions=mark)], [entry(f"m{n}") for n in range(MOST_ENTRIES + 1)]

    def read(condition: str, entries: list[dict[str, Any]]) -> Pod:
        metadata = {"name": "a", "managedFields": entries}
        pod = {"metadata": metadata, "spec": {}, "status": {"conditions": [{"type": condition}]}}
        event = msgspec.json.encode({"type": "MODIFIED", "object": pod})
        return with_writers(msgspec.convert(pod, Pod), event)

    assert writers_of_mark(read("DisruptionTarget", few)) == {EVICTOR}
    assert type(read("Ready", few)) is Pod
    assert type(read("DisruptionTarget", many)) is Pod
