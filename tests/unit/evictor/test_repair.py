"""A proposed repair is re-checked from nothing; in doubt the mark stays."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.messages import API_VERSION
from makeway.bus.repairs import RepairProposal
from makeway.core.policy.mode import Mode
from makeway.evictor.intake.repair import MarkRepair
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError
from unit.evictor.building import CLUSTER, PodBuilder, a_pod
from unit.evictor.fakes import FakeCluster, VirtualClock


class Orders:
    def __init__(self, live: bool | Exception = False) -> None:
        self.live = live

    async def name(self, victim_uid: str, now: datetime) -> bool:
        if isinstance(self.live, Exception):
            raise self.live
        return self.live


def proposal(**changes: str) -> RepairProposal:
    fields = {
        "api_version": API_VERSION,
        "cluster_uid": CLUSTER,
        "namespace": "default",
        "name": "a",
        "uid": "a-uid",
    }
    return RepairProposal(**fields | changes)


class Case:
    """One evictor and the pod `a`."""

    def __init__(self, pod: PodBuilder, *, live: bool | Exception = False, mode: Mode = "enforce") -> None:
        self.cluster = FakeCluster(pod.build())
        self.registry = CollectorRegistry()
        self.mark_repair = MarkRepair(
            CLUSTER,
            ModeGuard(mode),
            cluster=self.cluster,
            orders=Orders(live),
            clock=VirtualClock(),
            metrics=EvictorMetrics(self.registry),
        )

    async def result(self, data: bytes) -> str:
        """Handle it; gives the result that was counted."""
        await self.mark_repair.handle(data)
        samples = [s for metric in self.registry.collect() for s in metric.samples]
        (result,) = [
            s.labels["result"] for s in samples if s.name == "makeway_evictor_repairs_total" and s.value
        ]
        return result


@pytest.mark.parametrize(
    ("state", "result"),
    [
        ({}, "cleared"),
        ({"live": True}, "live"),
        ({"live": TemporaryError("bus", "no answer")}, "failed"),
        ({"mode": "observe"}, "mode"),
    ],
    ids=["no live order", "of a live order", "it is not known which are live", "mode observe"],
)
async def test_a_mark_that_no_live_order_names_is_cleared(state: dict[str, Any], result: str) -> None:
    case = Case(a_pod("a").marked(), **state)

    assert await case.result(codec.encode(proposal())) == result
    assert case.cluster.is_marked("a") is (result != "cleared")


@pytest.mark.parametrize(
    ("change", "pod", "result"),
    [
        ({"cluster_uid": "another"}, lambda: a_pod("a").marked(), "other-cluster"),
        ({"uid": "an-earlier-one"}, lambda: a_pod("a").marked(), "gone"),
        ({"name": "b"}, lambda: a_pod("a").marked(), "gone"),
        ({}, lambda: a_pod("a"), "not-marked"),
        ({}, lambda: a_pod("a").marked().terminating(), "not-marked"),
        ({}, lambda: a_pod("a").marked(reason="EvictionByEvictionAPI"), "not-marked"),
        ({}, lambda: a_pod("a").marked(message="somebody else's words"), "not-marked"),
    ],
)
async def test_nothing_is_written_where_the_pod_is_not_as_proposed(
    change: dict[str, str], pod: Callable[[], PodBuilder], result: str
) -> None:
    case = Case(pod())

    assert await case.result(codec.encode(proposal(**change))) == result
    assert [operation for operation, _ in case.cluster.calls if operation != "get_pod"] == []


@pytest.mark.parametrize(
    "error", [TemporaryError("conflict", "it has changed"), PermanentError("forbidden", "no")]
)
async def test_a_refused_write_is_left_to_the_next_proposal(error: Exception) -> None:
    case = Case(a_pod("a").marked())
    case.cluster.fail("clear_mark", "a", error)

    assert await case.result(codec.encode(proposal())) == "failed"
    await case.mark_repair.handle(codec.encode(proposal()))
    assert not case.cluster.is_marked("a")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"apiVersion":"makeway.dev/v2"}', b"\xff" * 100])
async def test_a_proposal_that_is_not_understood_is_counted(data: bytes) -> None:
    case = Case(a_pod("a").marked())

    assert await case.result(data) == "malformed"
    assert case.cluster.calls == []
