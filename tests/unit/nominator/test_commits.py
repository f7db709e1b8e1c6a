"""A pod is nominated, and the planner asked for its order until it answers; else nothing is left behind."""

import asyncio
from collections import deque
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.commit import NOTHING, ORDER_LIFE, CommitReply, CommitRequest, named_order
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import API_VERSION, EvictionOrder, Void
from makeway.bus.orders import voided
from makeway.bus.records import Last
from makeway.core.k8s.objects import Pod
from makeway.nominator import commits as committing
from makeway.nominator import decide
from makeway.nominator.cluster import StoredPod
from makeway.nominator.commits import Commits
from makeway.nominator.in_flight import OrderInFlight, OrdersInFlight
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods
from unit.nominator.test_decide import a_commit, a_pod, an_order, candidate, view

WHY = Void(reason="victim-spared", message="the policy says so")


class World:
    """A nominator's commits: `last`, the pod's last order; `replies`, what the planner says in turn."""

    def __init__(self, *replies: CommitReply | Exception, last: Last[EvictionOrder] | None = None) -> None:
        self.replies = deque(replies)
        self.asked: list[CommitRequest] = []
        self.last = last
        self.nominated: list[str] = []
        self.cleared: list[str] = []
        self.pods = PendingPods()
        self.pods.put(view(a_pod()))
        self.in_flight = OrdersInFlight()
        self.failed: list[str] = []
        self.woken = asyncio.Event()
        parts = SimpleNamespace(
            bus=self, cluster=self, pods=self.pods, metrics=NominatorMetrics(CollectorRegistry())
        )
        self.commits = Commits(
            cast("NominatorParts", parts),
            self.in_flight,
            self.failed.append,
            cast("Any", self),
            self.woken.set,
        )

    async def last_order(self, uid: str) -> Last[EvictionOrder] | None:
        return self.last

    async def outcome(self, order_id: str) -> None:
        return None

    async def nominate(self, stored: Pod, node: str) -> None:
        self.nominated.append(node)
        pod = a_pod()
        pod["status"]["nominatedNodeName"] = node
        self.pods.put(view(pod))

    async def clear(self, namespace: str, name: str, uid: str, reason: str) -> bool:
        self.cleared.append(name)
        return True

    async def request_commit(self, data: bytes, timeout_seconds: float) -> bytes:
        self.asked.append(codec.decode(CommitRequest, data))
        answer = self.replies.popleft() if self.replies else BusUnavailable("no answer")
        if isinstance(answer, Exception):
            raise answer
        return codec.encode(answer)

    async def commit(self) -> OrderInFlight:
        now = datetime.now(UTC)
        asked = replace(a_commit(candidate("v")), store_by=now)
        pod = view(a_pod())
        order = named_order(asked, decision_id="dec-1", priority=0, scheduler_name="s", now=now)
        begun = self.commits.begin(asked, order, StoredPod(pod, msgspec.json.encode(a_pod())))
        await self.woken.wait()
        return begun


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "ASKS_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(committing, "ANSWERED_WITHIN", timedelta(seconds=0.25))


def stored(order_id: str = "ord-1") -> CommitReply:
    order = an_order(order_id)
    return CommitReply(api_version=API_VERSION, order_id=order_id, planner="p", status="stored", order=order)


def void(why: Void) -> CommitReply:
    return CommitReply(api_version=API_VERSION, order_id="ord-1", planner="p", status="void", void=why)


async def test_a_stored_order_is_in_flight_as_it_is_stored() -> None:
    world = World(stored())

    begun = await world.commit()

    assert (begun.stored, begun.order) == (True, an_order())
    assert (world.nominated, world.cleared) == (["n1"], [])
    assert [one.victims for one in world.asked] == [("v-uid",)]


async def test_it_asks_again_with_the_same_id_until_there_is_an_answer_to_it() -> None:
    world = World(BusUnavailable("lost"), stored("ord-0"), stored())

    begun = await world.commit()

    assert begun.stored
    assert [one.order_id for one in world.asked] == ["ord-1"] * 3
    assert len(set(map(codec.encode, world.asked))) == 1


@pytest.mark.parametrize("replies", [(void(WHY),), ()], ids=["void", "no answer"])
async def test_without_an_order_the_nomination_is_taken_back(replies: tuple[CommitReply, ...]) -> None:
    world = World(*replies)

    begun = await world.commit()

    assert not begun.stored
    assert (world.cleared, len(world.in_flight)) == (["p"], 0)
    assert world.failed == ["p-uid"]


async def test_where_all_victims_leave_anyway_the_nomination_stays() -> None:
    world = World(void(Void(reason=NOTHING, message="they leave")))

    begun = await world.commit()

    assert (begun.waits, begun.made, begun.stored) == (True, True, True)
    assert (world.cleared, len(world.in_flight)) == ([], 1)


async def test_it_asks_behind_the_last_order_of_the_pod_or_the_void_in_its_place() -> None:
    now = datetime.now(UTC)
    dead = replace(an_order("ord-0"), not_after=now)
    over = World(stored(), last=Last(replace(dead, not_after=now - decide.SETTLES), 7, now))
    empty = World(stored(), last=Last(voided(dead, WHY), 9, now))

    await over.commit()
    await empty.commit()

    assert [over.asked[0].after, empty.asked[0].after] == [7, 9]


async def test_a_pod_with_a_live_order_is_not_nominated() -> None:
    now = datetime.now(UTC)
    world = World(stored(), last=Last(replace(an_order("ord-0"), not_after=now + ORDER_LIFE), 7, now))

    await world.commit()

    assert (world.nominated, world.asked, len(world.in_flight)) == ([], [], 0)
