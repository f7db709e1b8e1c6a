"""A pod is nominated, and the planner asked for its order until it answers; else nothing is left behind."""

import asyncio
import contextlib
from collections import deque
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from builders_bus import make_order, make_outcome, make_preemptor
from makeway.bus import codec
from makeway.bus.commit import NOTHING, ORDER_LIFE, CommitReply, CommitRequest, named_order
from makeway.bus.errors import BusError, BusUnavailable, Malformed
from makeway.bus.messages import API_VERSION, EvictionOrder, Outcome, OutcomeResult, Void
from makeway.bus.orders import voided
from makeway.bus.records import Last
from makeway.core.k8s.authorship import NOMINATOR
from makeway.core.k8s.objects import Pod
from makeway.nominator import commits as committing
from makeway.nominator import decide
from makeway.nominator.cluster import Changed, StoredPod
from makeway.nominator.commits import MOST_LOOKED_AT, ORPHAN_AFTER, Commits, Nominations
from makeway.nominator.in_flight import OrderInFlight, OrdersInFlight
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods, PriorityClasses
from unit.nominator.test_decide import a_commit, a_pod, an_order, candidate, view

WHY = Void(reason="victim-spared", message="the policy says so")


class World:
    """A nominator's commits: `last`, the pod's last order; `replies`, what the planner says in turn."""

    def __init__(self, *replies: CommitReply | Exception, last: Last[EvictionOrder] | None = None) -> None:
        self.replies = deque(replies)
        self.asked: list[CommitRequest] = []
        self.last = last
        self.nominated: list[str] = []
        self.changes = 0
        self.there = a_pod()
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

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        return StoredPod(view(self.there), msgspec.json.encode(self.there))

    async def nominate(self, stored: Pod, node: str) -> None:
        if self.changes:
            self.changes -= 1
            raise Changed("409")
        self.nominated.append(node)
        pod = a_pod()
        pod["status"]["nominatedNodeName"] = node
        self.pods.put(view(pod))

    def written(self, uid: str) -> None:
        self.ours = uid

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

    assert (begun.stored, begun.order, world.ours) == (True, an_order(), "p-uid")
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


@pytest.mark.parametrize(
    ("changes", "there", "nominated"),
    [
        pytest.param(2, a_pod(), True, id="its condition"),
        pytest.param(100, a_pod(), False, id="without end"),
        pytest.param(1, a_pod(node="n2"), False, id="bound"),
        pytest.param(1, a_pod(uid="another"), False, id="another under its name"),
        pytest.param(1, a_pod() | {"status": {"nominatedNodeName": "n2"}}, False, id="nominated by another"),
    ],
)
async def test_a_pod_that_changes_while_it_is_planned_for_is_nominated_as_it_is_now(
    changes: int, there: dict[str, Any], nominated: bool
) -> None:
    world = World(stored())
    world.changes, world.there = changes, there

    begun = await world.commit()

    assert (begun.stored, bool(world.nominated)) == (nominated, nominated)
    assert world.cleared == []


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


# ------------- nominations without an order: whose are looked at, how often, and how many in one round


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
        self.outcome_fails: BusError | None = None

    async def last_order(self, uid: str) -> Last[EvictionOrder] | None:
        if self.unreadable:
            raise Malformed("invalid", "an order")
        return None if self.order is None else Last(self.order, 1, NOW)

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        if self.outcome_fails is not None:
            raise self.outcome_fails
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


async def test_one_of_its_own_is_taken_back_though_another_had_nominated_the_pod_to_that_node() -> None:
    stored = Stored()
    nominations = watching(stored, pod="kube-scheduler")
    for number in range(2):
        await nominations.look_for_orphans(NOW + number * ORPHAN_AFTER)

    stored.add("pod", NOMINATOR)
    nominations.written("pod")
    await nominations.look_for_orphans(NOW + 2 * ORPHAN_AFTER)

    assert stored.cleared == ["pod"]


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
    own: dict[str, Any] = {
        "writer": "makeway/nominator/another",
        "preemptor": make_preemptor("ours", namespace="default", name="ours"),
        "node": "n1",
        "not_after": datetime.now(UTC) + timedelta(minutes=1),
    }
    return make_order(**own | changes)


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


@pytest.mark.parametrize("error", [BusUnavailable("away"), Malformed("invalid", "an outcome")])
async def test_an_order_whose_outcome_cannot_be_read_is_not_waited_for(error: BusError) -> None:
    stored, in_flight = Stored(), OrdersInFlight()
    stored.order, stored.outcome_fails = order(), error
    nominations = watching(stored, in_flight, ours=NOMINATOR)

    await nominations.look_for_orphans(NOW)
    with contextlib.suppress(BusUnavailable):
        await nominations.look_for_orphans(NOW + ORPHAN_AFTER)

    assert len(in_flight) == 0
