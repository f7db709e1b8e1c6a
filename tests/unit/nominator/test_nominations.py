"""Nominations without an order: whose are looked at, how often, and how many in one round."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import msgspec
from prometheus_client import CollectorRegistry

from makeway.core.k8s.authorship import NOMINATOR
from makeway.core.k8s.objects import Pod
from makeway.nominator.cluster import StoredPod
from makeway.nominator.in_flight import OrdersInFlight
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.nominations import MOST_LOOKED_AT, ORPHAN_AFTER, Nominations
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods, PriorityClasses

NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)


class Stored:
    """An API server with these pods; it counts what is read of it."""

    def __init__(self) -> None:
        self.pods: dict[str, StoredPod] = {}
        self.read: list[str] = []
        self.cleared: list[str] = []

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


def watching(stored: Stored, **managers: str) -> Nominations:
    """Nominations of pods, by the field manager that wrote each."""
    pods = PendingPods()
    for name, manager in managers.items():
        pods.put(stored.add(name, manager))
    parts = SimpleNamespace(
        cluster=stored, pods=pods, classes=PriorityClasses(), metrics=NominatorMetrics(CollectorRegistry())
    )
    return Nominations(cast("NominatorParts", parts), OrdersInFlight())


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
