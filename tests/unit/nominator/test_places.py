"""Who loses a place to a pod of higher priority: by where that pod is, not by its having left."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from background import background
from builders_bus import make_order, make_outcome, make_preemptor, make_victim
from makeway.bus.messages import EvictionOrder, NominationToClear, Victim
from makeway.core.k8s.authorship import NOMINATOR
from makeway.core.k8s.objects import Pod
from makeway.nominator.cluster import StoredPod
from makeway.nominator.decide import SETTLES
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods, PriorityClasses
from makeway.nominator.service import Nominator
from makeway.runtime.kube import ApiUnavailable


def a_pod(name: str, *, uid: str = "", bound: str = "", nominated: str = "", priority: int = 0) -> Pod:
    made: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": name, "uid": uid or name},
        "spec": {"priority": priority} | ({"nodeName": bound} if bound else {}),
        "status": {"nominatedNodeName": nominated} if nominated else {},
    }
    return msgspec.convert(made, Pod)


def order_for(name: str, *yielding: str) -> EvictionOrder:
    now = datetime.now(UTC)
    return make_order(
        order_id=f"ord-{name}",
        preemptor=make_preemptor(name, name=name),
        node="n1",
        created_at=now,
        not_after=now + timedelta(minutes=1),
        nominations_to_clear=tuple(
            NominationToClear(namespace="shop", name=one, uid=one) for one in yielding
        ),
    )


class World:
    """A nominator that leads, with an order for `higher` and one for `lower`, both on n1."""

    def __init__(self) -> None:
        self.pods = PendingPods()
        self.there: dict[str, Pod] = {}
        self.cleared: list[str] = []
        self.fails: list[ApiUnavailable] = []
        self.hang: set[str] = set()
        self.kept_out = False
        self.left: set[str] = set()
        self.pods.put(a_pod("higher", nominated="n1"))
        self.pods.put(a_pod("lower", nominated="n1"))
        parts = SimpleNamespace(
            bus=None,
            cluster=self,
            pods=self.pods,
            classes=PriorityClasses(),
            streams=SimpleNamespace(state=None, outcomes_read=None),
            brake=None,
            metrics=NominatorMetrics(CollectorRegistry()),
            writer=SimpleNamespace(cluster_uid="cluster-1"),
            synced=lambda: "",
            shadow=None,
        )
        self.nominator = Nominator(cast("NominatorParts", parts))

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        pod = self.there.get(name)
        managed = {"manager": NOMINATOR, "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}
        raw = {"metadata": {"managedFields": [managed | {"subresource": "status"}]}, "spec": {}}
        return None if pod is None else StoredPod(pod, msgspec.json.encode(raw))

    async def keeps_out(self, namespace: str, name: str, node: str) -> bool:
        return self.kept_out

    async def has_left(self, victim: Victim) -> bool:
        return victim.name in self.left

    async def clear_nomination(self, stored: Pod) -> None:
        if self.fails:
            raise self.fails.pop()
        if stored.metadata.name in self.hang:
            await asyncio.Event().wait()
        self.cleared.append(stored.metadata.name)

    @contextlib.asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        async with background(self.nominator.lead()):
            await asyncio.sleep(0)
            for order in (order_for("higher", "lower"), order_for("lower")):
                self.nominator.in_flight.begin(order, stored=True)
            yield

    async def until(self, reached: Any) -> None:
        for _ in range(1000):
            if reached():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it is not reached")


@pytest.mark.parametrize(
    ("there", "cancelled", "lost"),
    [
        pytest.param(a_pod("higher", bound="n1"), False, "yielded", id="bound there"),
        pytest.param(a_pod("higher", bound="n2"), False, "", id="bound elsewhere"),
        pytest.param(None, False, "", id="deleted"),
        pytest.param(a_pod("higher", uid="another", bound="n1"), False, "", id="another under its name"),
        pytest.param(a_pod("higher", bound="n2"), True, "", id="its order cancelled"),
    ],
)
async def test_an_order_loses_its_place_only_to_a_pod_that_is_bound_there(
    there: Pod | None, cancelled: bool, lost: str
) -> None:
    world = World()

    async with world.leading():
        if there is not None:
            world.there["higher"] = there
        if cancelled:
            ended = make_outcome(order_for("higher"), result="cancelled", reason="preemptor-bound")
            world.nominator.ended(ended)
        world.pods.drop(a_pod("higher"))
        await world.until(lambda: world.nominator.in_flight.of("higher") is None)

        lower = world.nominator.in_flight.of("lower")
        assert lower is not None
        assert lower.lost == lost


async def test_the_nomination_of_a_pod_that_lost_its_place_is_cleared() -> None:
    world = World()

    async with world.leading():
        world.nominator.ended(make_outcome(order_for("lower")))
        world.there |= {"higher": a_pod("higher", bound="n1"), "lower": a_pod("lower", nominated="n1")}
        world.pods.drop(a_pod("higher"))

        await world.until(lambda: world.cleared)

        assert world.cleared == ["lower"]
        assert len(world.nominator.in_flight) == 0


@pytest.mark.parametrize("fails", [0, 2])
async def test_a_nomination_to_a_node_that_lets_its_pod_in_no_more_is_cleared_until_that_has_worked(
    monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    for module in ("service", "commits"):
        monkeypatch.setattr(f"makeway.nominator.{module}.NODE_AGAIN", timedelta(seconds=0.1))
    monkeypatch.setattr("makeway.nominator.service.CLEARS_AGAIN", timedelta())
    world = World()
    world.fails = [ApiUnavailable("gone for a moment")] * fails

    async with world.leading():
        world.there["lower"] = a_pod("lower", nominated="n1")
        world.nominator.ended(make_outcome(order_for("lower")))
        await asyncio.sleep(0.3)
        assert world.nominator.in_flight.of("lower") is not None, "its node may take it yet"

        world.kept_out = True
        await world.until(lambda: world.nominator.in_flight.of("lower") is None)

    assert (world.cleared, world.fails) == (["lower"], [])


async def test_a_pod_waits_for_its_room_no_longer_than_a_minute_after_its_victims_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("service", "commits"):
        monkeypatch.setattr(f"makeway.nominator.{module}.NODE_AGAIN", timedelta(seconds=0.05))
    world = World()
    long = tuple(make_victim(name, grace_period_seconds=3600) for name in ("a", "b"))
    order = replace(order_for("higher"), victims=long)
    world.there["higher"] = a_pod("higher", nominated="n1")

    async with world.leading():
        one = world.nominator.in_flight.begin(order, stored=True)
        ended = make_outcome(order)
        victims = tuple(replace(victim, grace_period_seconds=3600) for victim in ended.victims)
        world.nominator.ended(replace(ended, victims=victims))
        await asyncio.sleep(0.3)
        world.left.add("b")
        await asyncio.sleep(0.3)
        assert one.until > datetime.now(UTC) + timedelta(minutes=50), "one of them is still there"

        world.left.add("a")
        await world.until(lambda: one.until < datetime.now(UTC) + SETTLES)


async def test_a_failed_order_stays_until_its_nomination_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.nominator.service.CLEARS_AGAIN", timedelta())
    world = World()
    world.fails = [ApiUnavailable("gone for a moment")] * 2

    async with world.leading():
        world.there["lower"] = a_pod("lower", nominated="n1")
        world.nominator.ended(make_outcome(order_for("lower"), result="failed", reason="x"))
        await world.until(lambda: world.nominator.in_flight.of("lower") is None)

    assert (world.cleared, world.fails) == (["lower"], [])


async def test_nominations_that_cannot_be_taken_back_hold_up_no_other() -> None:
    world = World()
    stuck = [f"stuck-{number}" for number in range(20)]
    world.hang = set(stuck)

    async with world.leading():
        for name in (*stuck, "last"):
            world.pods.put(a_pod(name, nominated="n1"))
            world.nominator.in_flight.begin(order_for(name), stored=True)
            world.there[name] = a_pod(name, nominated="n1")
            world.nominator.ended(make_outcome(order_for(name), result="failed", reason="x"))
        async with asyncio.timeout(2):
            await world.until(lambda: world.cleared == ["last"])

        assert world.nominator.in_flight.of("stuck-0") is not None


async def test_outcomes_that_say_expired_were_written_by_an_evictor_that_is_at_work() -> None:
    world = World()

    async with world.leading():
        for name in ("higher", "lower"):
            world.nominator.ended(make_outcome(order_for(name), result="expired", reason="expired"))
        await world.until(lambda: len(world.nominator.in_flight) == 0)

    assert world.nominator._unanswered == 0


async def test_a_nomination_that_is_gone_is_lost_once_it_has_been_seen() -> None:
    world = World()
    world.pods.tell = world.nominator.changed
    async with world.leading():
        higher = world.nominator.in_flight.of("higher")
        assert higher is not None
        world.pods.put(a_pod("higher"))
        await asyncio.sleep(0.3)
        assert higher.lost == "", "the API has not shown it yet"

        world.pods.put(a_pod("higher", nominated="n1"))
        world.pods.put(a_pod("higher", nominated="n2"))

        await world.until(lambda: higher.lost == "changed")


async def test_a_nomination_that_the_scheduler_clears_for_a_pod_of_higher_priority_is_none_that_is_lost() -> (
    None
):
    world = World()
    world.pods.tell = world.nominator.changed
    async with world.leading():
        higher = world.nominator.in_flight.of("higher")
        assert higher is not None
        world.nominator.ended(make_outcome(order_for("higher")))
        world.pods.put(a_pod("higher", nominated="n1", priority=1))
        world.pods.put(a_pod("higher", priority=1))
        await asyncio.sleep(0.3)
        assert (higher.lost, world.nominator.in_flight.of("higher")) == ("cleared", higher)

        world.pods.put(a_pod("system", nominated="n1", priority=2))
        await world.until(lambda: world.nominator.in_flight.of("higher") is None)

    assert world.nominator._losses.describe(datetime.now(UTC)) == ""
