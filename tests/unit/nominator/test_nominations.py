"""Nominations without an order: whose are looked at, how often, and how many in one round."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from builders_bus import make_order, make_outcome
from makeway.bus.errors import Malformed
from makeway.bus.messages import EvictionOrder, Outcome, OutcomeResult, Preemptor, Void
from makeway.bus.records import Last
from makeway.core.k8s.authorship import NOMINATOR
from makeway.core.k8s.objects import Pod
from makeway.nominator.cluster import StoredPod
from makeway.nominator.commits import MOST_LOOKED_AT, ORPHAN_AFTER, Nominations
from makeway.nominator.in_flight import OrdersInFlight
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods, PriorityClasses

NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)


class Stored:
    """An API server with these pods; it counts what is read of it."""

    def __init__(self) -> None:
        self.pods: dict[str, StoredPod] = {}
        self.read: list[str] = []
        self.cleared: list[str] = []
        self.order: EvictionOrder | None = None
        self.outcome_of_it: Outcome | None = None
        self.unreadable = False

    async def last_order(self, uid: str) -> Last[EvictionOrder] | None:
        if self.unreadable:
            raise Malformed("invalid", "an order")
        return None if self.order is None else Last(self.order, 1, NOW)

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        return None if self.outcome_of_it is None else Last(self.outcome_of_it, 1, NOW)

    def add(self, name: str, manager: str) -> Pod:
        made = {
            "metadata": {
                "namespace": "default",
                "name": name,
                "uid": name,
                "managedFields": [
                    {
                        "manager": manager,
                        "subresource": "status",
                        "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
                    }
                ],
            },
            "spec": {"preemptionPolicy": "Never"},
            "status": {"nominatedNodeName": "n1"},
        }
        raw = msgspec.json.encode(made)
        self.pods[name] = StoredPod(msgspec.json.decode(raw, type=Pod), raw)
        return self.pods[name].pod

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        self.read.append(name)
        return self.pods.get(name)

    async def clear_nomination(self, stored: Pod) -> None:
        self.cleared.append(stored.metadata.name)


def watching(stored: Stored, in_flight: OrdersInFlight | None = None, /, **managers: str) -> Nominations:
    """Nominations of pods, by the field manager that wrote each."""
    pods = PendingPods()
    for name, manager in managers.items():
        pods.put(stored.add(name, manager))
    parts = SimpleNamespace(
        bus=stored,
        cluster=stored,
        pods=pods,
        classes=PriorityClasses(),
        metrics=NominatorMetrics(CollectorRegistry()),
        writer=SimpleNamespace(cluster_uid="cluster-1"),
    )
    return Nominations(cast("NominatorParts", parts), OrdersInFlight() if in_flight is None else in_flight)


async def test_one_of_its_own_is_taken_back_when_no_order_has_come_for_it() -> None:
    stored = Stored()
    nominations = watching(stored, ours=NOMINATOR, theirs="kube-scheduler")

    await nominations.look_for_orphans(NOW)
    assert stored.read == []
    await nominations.look_for_orphans(NOW + ORPHAN_AFTER)

    assert stored.cleared == ["ours"]


async def test_one_of_another_is_read_once() -> None:
    stored = Stored()
    nominations = watching(stored, theirs="kube-scheduler")

    for number in range(5):
        await nominations.look_for_orphans(NOW + number * ORPHAN_AFTER)

    assert stored.read == ["theirs"]


async def test_a_flood_of_nominations_takes_a_round_no_longer_and_each_has_its_turn() -> None:
    stored = Stored()
    flood = {f"flood{number}": "a tenant" for number in range(MOST_LOOKED_AT * 2)}
    nominations = watching(stored, **flood, ours=NOMINATOR)
    await nominations.look_for_orphans(NOW)

    reads = []
    for _ in range(3):
        before = len(stored.read)
        await nominations.look_for_orphans(NOW + ORPHAN_AFTER)
        reads.append(len(stored.read) - before)

    assert reads == [MOST_LOOKED_AT, MOST_LOOKED_AT, 1]
    assert stored.cleared == ["ours"]


def order(**changes: Any) -> EvictionOrder:
    """An order of a nominator for pod `ours`, on n1, that has just been stored."""
    now = datetime.now(UTC)
    about = Preemptor(namespace="default", name="ours", uid="ours", priority=1, scheduler_name="s")
    made = replace(
        make_order(),
        cluster_uid="cluster-1",
        writer="makeway/nominator/another",
        preemptor=about,
        node="n1",
        not_after=now + timedelta(minutes=1),
    )
    return replace(made, **changes)


def outcome(result: OutcomeResult) -> Outcome:
    return replace(make_outcome(order()), result=result, finished_at=datetime.now(UTC))


@pytest.mark.parametrize("made_room", [False, True], ids=["live", "made room"])
async def test_the_order_of_a_nominator_before_goes_on(*, made_room: bool) -> None:
    stored, in_flight = Stored(), OrdersInFlight()
    ended = outcome("succeeded") if made_room else None
    stored.order, stored.outcome_of_it = order(), ended
    nominations = watching(stored, in_flight, ours=NOMINATOR)

    await nominations.look_for_orphans(NOW)
    await nominations.look_for_orphans(NOW + ORPHAN_AFTER)

    one = in_flight.of("ours")
    assert one is not None
    assert (one.stored, one.order, one.outcome) == (True, stored.order, ended)
    assert stored.cleared == []


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        pytest.param(order(), outcome("failed"), id="failed"),
        pytest.param(order(not_after=NOW), None, id="its time is over"),
        pytest.param(order(void=Void(reason="late", message="late")), None, id="void"),
        pytest.param(order(node="n2"), None, id="another node"),
        pytest.param(order(cluster_uid="another"), None, id="another cluster"),
        pytest.param(order(writer="makeway/scheduler/s"), None, id="a plugin's"),
        pytest.param(None, None, id="unreadable"),
    ],
)
async def test_no_other_order_keeps_a_nomination(last: EvictionOrder | None, ended: Outcome | None) -> None:
    stored, in_flight = Stored(), OrdersInFlight()
    stored.order, stored.outcome_of_it, stored.unreadable = last, ended, last is None
    nominations = watching(stored, in_flight, ours=NOMINATOR)

    await nominations.look_for_orphans(NOW)
    await nominations.look_for_orphans(NOW + ORPHAN_AFTER)

    assert (stored.cleared, len(in_flight)) == (["ours"], 0)
