"""A commit has one answer: what is stored, whoever is asked, and how often."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.commit import LATE, SUPERSEDED, CommitReply, CommitRequest, Offer
from makeway.bus.errors import BusUnavailable, Malformed
from makeway.bus.ids import order_id
from makeway.bus.messages import EvictionOrder, Void
from makeway.bus.nats.publishing import MessageTooLarge, PublishRefused
from makeway.bus.orders import NOT_ACKNOWLEDGED, OrderWriter, voided
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects
from makeway.core.k8s.objects import Metadata, Pod, PodCondition, PodSpec, PodStatus
from makeway.planner.commit.committer import Committer
from makeway.planner.commit.judge import Accepted, draft
from makeway.planner.commit.nominated import PodVersions
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.breakers import IN_A_ROW
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker
from narrowing import there
from unit.bus.test_order_writer import Fault, Stream
from unit.planner.building import NOW, make_pod
from unit.planner.building import make_order as make_live
from unit.planner.test_commit_judge import PLACE, commit, group_commit, offer

SPARED: Final = Void(reason="victim-spared", message="the policy says so")
SUBJECTS: Final = Subjects()


class World:
    """One committer over a stream. `verdict`: what the judge says, `waits_for`: what an order waits for."""

    def __init__(self, stream: Stream | None = None) -> None:
        self.stream = stream or Stream()
        self.ledger = Ledger()
        self.verdict: Void | None = None
        self.waits_for = ""
        self.missing = ""
        self.judged = 0
        self.time = NOW
        self.waited: float | None = None

        async def sleep(seconds: float) -> None:
            await asyncio.sleep(0)

        bus: Any = self.stream
        self.committer = Committer(
            cluster_uid="cluster",
            identity="planner",
            subjects=SUBJECTS,
            signatures=Signatures(),
            unsynced=lambda: self.missing,
            pod=make_pod,
            now=lambda: self.time,
            waited=lambda sender, order_id: self.waited,
            judge=self._judge,
            ledger=self.ledger,
            writer=OrderWriter(bus, sleep=sleep),
            metrics=PlannerMetrics(CollectorRegistry()),
        )

    def _judge(
        self, asked: CommitRequest, one: Offer, now: datetime, before: Accepted | None
    ) -> Accepted | Void:
        self.judged += 1
        if self.verdict is not None:
            return self.verdict
        return Accepted(draft(asked, one.decision_id, make_pod("urgent"), now), self.waits_for)

    async def ask(self, asked: CommitRequest | None = None) -> CommitReply:
        return codec.decode(CommitReply, await self.committer.handle(codec.encode(asked or request())))

    def stored(self) -> list[EvictionOrder]:
        return [codec.unwrap_order(one.data) for one in self.stream.messages]

    def live(self) -> list[str]:
        return sorted(self.ledger._live)


def request(**changes: Any) -> CommitRequest:
    text = codec.wrap(offer(), "makeway/planner/p").decode()
    return replace(commit("a"), **{"offer": text, **changes})


async def test_an_accepted_commit_is_stored_and_live() -> None:
    world = World()

    reply = await world.ask()

    assert (reply.status, reply.order) == ("stored", world.stored()[0])
    assert world.live() == ["ord-1"]
    assert world.ledger.reserved() == frozenset()
    assert world.judged == 2


async def test_a_refusal_is_stored_as_a_void_and_nothing_is_live() -> None:
    world = World()
    world.verdict = SPARED

    reply = await world.ask()

    assert (reply.status, reply.void) == ("void", SPARED)
    assert [one.void for one in world.stored()] == [SPARED]
    assert world.live() == []


async def test_a_commit_that_is_asked_twice_has_one_answer_also_when_it_would_be_judged_otherwise() -> None:
    world = World()
    first = await world.ask()
    world.verdict = SPARED

    assert await world.ask() == first
    assert len(world.stored()) == 1


async def test_another_planner_gives_the_answer_that_is_stored() -> None:
    stream = Stream()
    refusing, accepting = World(stream), World(stream)
    refusing.verdict = SPARED

    answers = await asyncio.gather(refusing.ask(), accepting.ask())

    assert answers[0] == answers[1]
    assert len(refusing.stored()) == 1


async def test_a_commit_that_is_asked_again_meanwhile_is_judged_once() -> None:
    world = World()
    world.waits_for = "the nomination"
    asking = [asyncio.create_task(world.ask()) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert (world.live(), world.ledger.reserved()) == (["ord-1"], frozenset({"ord-1"}))
    world.waits_for = ""
    world.committer.changed("urgent")

    answers = await asyncio.gather(*asking)

    assert answers[0] == answers[1]
    assert len(world.stored()) == 1


async def test_a_commit_is_judged_again_right_before_its_order_is_stored() -> None:
    world = World()
    world.waits_for = "the nomination"
    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.01)
    world.verdict = SPARED
    world.committer.changed("urgent")

    assert (await asking).void == SPARED
    assert world.live() == []


async def test_nominations_of_other_pods_have_no_commit_judged_again() -> None:
    world = World()
    world.waits_for = "the nomination"
    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.01)
    judged = world.judged
    for number in range(100):
        world.committer.changed(f"other-{number}")
        await asyncio.sleep(0)

    assert world.judged == judged
    world.waits_for = ""
    world.committer.changed("urgent")
    assert (await asking).status == "stored"


@pytest.mark.parametrize("missing", ["", "the streams have not been read"])
async def test_what_does_not_come_about_in_time_is_late(missing: str) -> None:
    world = World()
    world.missing, world.waits_for = missing, "the nomination"
    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.01)
    world.time += timedelta(seconds=6)
    world.committer.changed("urgent")

    reply = await asking

    assert reply.void == Void(reason=LATE, message=f"not seen in time: {missing or 'the nomination'}")
    assert world.stored()[0].void == reply.void


async def test_a_commit_whose_time_is_over_when_it_comes_is_told_of_the_clocks() -> None:
    world = World()
    world.waits_for = "the nomination"

    reply = await world.ask(request(store_by=world.time - timedelta(seconds=1)))

    assert reply.void is not None
    assert (reply.void.reason, "clocks differ" in reply.void.message) == (LATE, True)


@pytest.mark.parametrize("off", [-3600, -6, 6, 3600])
async def test_an_order_is_stored_in_its_time_whatever_the_clock_of_its_bridge_shows(off: int) -> None:
    world = World()
    world.waited = 1.0
    made = NOW + timedelta(seconds=off)

    reply = await world.ask(request(order_id=order_id(made), store_by=made + timedelta(seconds=5)))

    assert reply.order == world.stored()[0]
    # By the clock of NATS, which agrees with one of the two, it is not late.
    assert there(reply.order.store_by) >= max(made, NOW) + timedelta(seconds=4)


@pytest.mark.parametrize("off", [-3600, 3600])
async def test_an_order_is_late_once_its_bridge_has_waited_long_enough_by_whatever_clock(off: int) -> None:
    world = World()
    world.waited = 5.5
    made = NOW + timedelta(seconds=off)

    reply = await world.ask(request(order_id=order_id(made), store_by=made + timedelta(seconds=5)))

    assert there(reply.void).reason == LATE
    assert [one.void for one in world.stored()] == [reply.void]


async def test_a_bridge_of_which_nothing_is_known_is_believed_what_its_clock_shows() -> None:
    world = World()
    made = NOW - timedelta(seconds=6)

    reply = await world.ask(request(order_id=order_id(made), store_by=made + timedelta(seconds=5)))

    assert there(reply.void).reason == LATE


async def test_a_publish_that_is_not_acknowledged_is_answered_by_its_void() -> None:
    world = World(Stream(Fault(BusUnavailable("no answer"))))

    reply = await world.ask()

    assert reply.void is not None
    assert reply.void.reason == NOT_ACKNOWLEDGED
    assert [one.void for one in world.stored()] == [reply.void]
    assert world.live() == []


@pytest.mark.parametrize("lost", [1, 100_000])
async def test_an_order_counts_as_not_stored_once_also_before_its_void_is(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.planner.commit.committer.OVERDUE", timedelta(seconds=0.02))
    stream = Stream(*[Fault(BusUnavailable("no answer"))] * lost)
    world = World(stream)
    unstored: list[str] = []
    counted = asyncio.Event()

    def count(order_id: str, now: datetime) -> None:
        unstored.append(order_id)
        counted.set()

    monkeypatch.setattr(world.ledger, "unstored", count)

    asking = asyncio.create_task(world.ask(request(store_by=NOW)))
    await counted.wait()
    assert lost == 1 or not asking.done()
    stream.faults.clear()

    assert (await asking).status == "void"
    assert unstored == ["ord-1"]


@pytest.mark.parametrize(("error", "counted"), [(PublishRefused("sealed"), 1), (MessageTooLarge("2 MB"), 0)])
async def test_an_order_that_is_too_large_says_nothing_of_the_stream(error: Exception, counted: int) -> None:
    world = World(Stream(Fault(error)))
    for _ in range(IN_A_ROW - 1):
        world.ledger.unstored("another", NOW)

    reply = await world.ask()

    assert reply.void is not None
    assert reply.void.message.endswith(str(error))
    assert (world.ledger.breakers.held(Asker("urgent", "shop", 1), NOW) is not None) == bool(counted)


async def test_a_commit_behind_a_message_that_is_not_the_last_any_more_is_superseded() -> None:
    world = World()
    world.stream.put(make_live("ord-0"))

    reply = await world.ask()

    assert reply.void is not None
    assert reply.void.reason == SUPERSEDED
    assert len(world.stored()) == 1


async def test_no_void_is_stored_over_a_live_order_of_the_same_pod_nor_said_without_being_stored() -> None:
    world = World()
    live = make_live("ord-0", preemptor=None, node="n1")
    mine = draft(request(), "dec", make_pod("urgent"), NOW)
    world.ledger.ordered(replace(live, preemptor=mine.preemptor))
    world.verdict = SPARED

    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.01)
    assert not asking.done(), "its end is waited for"
    world.time += timedelta(seconds=6)

    with pytest.raises(BusUnavailable, match=f"{SPARED.reason}: .*; order ord-0 lives"):
        await asking
    assert world.stored() == []


async def test_what_another_planner_stores_while_a_void_waits_is_the_answer() -> None:
    world = World()
    mine = draft(request(), "dec", make_pod("urgent"), NOW)
    world.ledger.ordered(replace(make_live("ord-0", preemptor=None, node="n1"), preemptor=mine.preemptor))
    world.verdict = SPARED

    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.01)
    world.stream.put(mine)
    world.time += timedelta(seconds=6)

    assert (await asking).order == mine


async def test_what_a_commit_says_wrong_by_itself_is_answered_and_not_stored() -> None:
    world = World()

    unreadable = await world.ask(request(offer="no offer"))
    foreign = await world.ask(request(cluster_uid="another"))

    assert [one.void and one.void.reason for one in (unreadable, foreign)] == ["not-offered", "other-cluster"]
    assert (world.stored(), world.judged) == ([], 0)


async def test_what_another_planner_has_stored_is_the_answer_of_one_that_cannot_judge_the_commit() -> None:
    stream = Stream()
    stored = await World(stream).ask()
    behind = World(stream)
    behind.time = NOW - timedelta(minutes=5)

    assert (await behind.ask()).order == stored.order
    assert (await World(stream).ask(request(offer="of a key that it does not know"))).order == stored.order


async def test_a_request_that_is_not_understood_has_no_answer() -> None:
    with pytest.raises(Malformed):
        await World().committer.handle(b"no commit")


async def test_the_order_of_a_group_is_stored_once_its_members_show_nominated() -> None:
    world = World()
    world.waits_for = "nominations"
    text = codec.wrap(offer(preemptor_uid="g", pods=(), node=""), "makeway/planner/p").decode()
    asking = asyncio.create_task(world.ask(group_commit(offer=text)))
    await asyncio.sleep(0.01)
    world.committer.changed("m1")
    await asyncio.sleep(0.01)
    assert (world.judged, world.stored()) == (3, [])
    world.waits_for = ""
    world.committer.changed("m2")

    reply = await asking

    assert (reply.status, reply.order) == ("stored", world.stored()[0])
    assert [world.stored()[0].kind, world.stored()[0].preemptor_uid] == ["group", "g"]


async def test_a_large_group_is_judged_now_and_then_while_its_nominations_show_one_by_one() -> None:
    world = World()
    world.waits_for = "nominations"
    text = codec.wrap(offer(preemptor_uid="g", pods=(), node=""), "makeway/planner/p").decode()
    places = tuple(replace(PLACE, name=f"m{n}", uid=f"m{n}", node="n1") for n in range(2_000))
    asking = asyncio.create_task(world.ask(group_commit(offer=text, placements=places)))
    for place in places:
        await asyncio.sleep(0)
        world.committer.changed(place.uid)
    world.waits_for = ""

    assert (await asking).status == "stored"
    assert world.judged < 10


async def test_what_is_under_way_ends_with_the_lead() -> None:
    world = World()
    world.waits_for = "the nomination"
    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.01)

    await world.committer.stop()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (world.stored(), world.live()) == ([], [])


async def test_a_leader_stores_orders_again_that_a_stream_made_anew_has_lost() -> None:
    world = World()
    mine = draft(request(), "dec", make_pod("urgent"), NOW)
    others = replace(make_live("ord-2"), preemptor=mine.preemptor)

    world.committer.restore([mine])
    assert world.stored() == []
    world.committer.leading = True
    world.committer.restore([mine, others, voided(mine, SPARED)])
    for _ in range(5):
        await asyncio.sleep(0)

    [again] = world.stored()
    assert (again.order_id, again.not_after) == (mine.order_id, mine.not_after)


def test_versions_are_known_of_pods_that_have_a_node_until_these_are_gone() -> None:
    def there(name: str, node: str | None) -> Pod:
        metadata = Metadata(name=name, uid=name, resource_version=f"4{name}")
        return Pod(metadata=metadata, spec=PodSpec(node_name=node), status=PodStatus())

    versions = PodVersions()
    for pod in (there("a", "n1"), there("b", "n1"), there("c", "n1"), there("waiting", None)):
        versions.put(pod)

    versions.drop(there("b", "n1"))
    versions.retain({"a"})

    assert versions.by_uid == {"a": "4a"}


def test_no_version_is_known_of_a_pod_that_is_marked_already() -> None:
    metadata = Metadata(name="a", uid="a", resource_version="41")
    mark = PodCondition(type="DisruptionTarget", status="True", reason="DeletionByTaintManager")
    versions = PodVersions()
    versions.put(Pod(metadata=metadata, spec=PodSpec(node_name="n1"), status=PodStatus()))
    versions.put(Pod(metadata=metadata, spec=PodSpec(node_name="n1"), status=PodStatus(conditions=(mark,))))

    assert versions.by_uid == {}
