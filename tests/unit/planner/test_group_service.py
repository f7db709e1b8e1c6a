"""What the planner answers to a plan request for a pod group."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from makeway.bus import codec
from makeway.bus.ids import request_id
from makeway.bus.messages import API_VERSION, OrderedGroup, VictimOutcome
from makeway.bus.plan import GroupPreemptor, MemberClass, NodeSelection, PlanReply, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import OBJECTIVE, Groups, GroupTerm, Policy, Protection
from makeway.planner.offline.replaying import Replay, differences
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.recording.entries import encode_entry, pack
from makeway.planner.recording.journal import Journal, contents
from makeway.planner.service import handler
from makeway.planner.service.searches import group_search, pod_search
from makeway.planner.snapshot.changes import PutPod
from makeway.planner.snapshot.records import NodeRecord, pod_record
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.planner.answering import Answering
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    live_order,
    make_order,
    make_outcome,
    make_pod,
    make_snapshot,
)
from unit.planner.grouping import put_group
from unit.planner.test_pauses import room_made

NODES = ["n1", "n2", "n3"]
ZONED = ["za1", "zb1", "zb2"]
DEFAULT = Policy()
IN_TRAIN: Any = {"schedulingGroup": {"podGroupName": "train"}}


def full(policy: Policy = DEFAULT) -> Snapshot:
    """Make three full nodes, one of them with pods that are dear, and a member that waits."""
    pods = [make_pod(f"a{n}", node, LOW, 500) for n, node in enumerate(NODES[:2])]
    pods += [make_pod(f"many{n}", "n3", LOW, 50) for n in range(10)]
    return make_snapshot(NODES, [*pods, make_pod("M", "", HIGH, 500)], policy=policy)


class Bench(Answering):
    """One that is asked for a group."""

    def __init__(self, snapshot: Snapshot | None = None, **more: Any) -> None:
        super().__init__(snapshot or full(), **more)
        self.handle = partial(self.planner.handle, group_search(self.snapshot, self.metrics))

    async def ask(self, **changes: Any) -> PlanReply:
        return codec.decode(PlanReply, await self.handle(codec.encode(request(**changes))))


def member(count: int = 2, *, cpu: str = "500m", uid: str = "M", **spec: Any) -> MemberClass:
    pod = {
        "metadata": {"namespace": "shop", "name": "worker-0", "uid": uid},
        "spec": {
            "priority": HIGH,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
    }
    return MemberClass(
        pod=msgspec.Raw(msgspec.json.encode(pod)), count=count, nodes=NodeSelection(all_but=True)
    )


def request(**changes: Any) -> PlanRequest:
    fields: dict[str, Any] = {
        "api_version": API_VERSION,
        "request_id": request_id(datetime.now(UTC)),
        "cluster_uid": "cluster-1",
        "mode": "enforce",
        "timeout_milliseconds": 2000,
        "profile": Profile(name="default-scheduler"),
        "group": GroupPreemptor(namespace="shop", name="train", uid="G", priority=HIGH),
        "classes": (member(),),
        "must_place": 2,
        **changes,
    }
    return PlanRequest(**fields)


async def test_a_group_that_was_not_bound_though_room_was_made_three_times_is_refused_for_a_while() -> None:
    bench = Bench()
    for number in range(3):
        room_made(bench.ledger, number, datetime.now(UTC), uid="G")

    reply = await bench.ask()

    assert (reply.status, reply.plan) == ("refused", None)
    assert reply.refusal is not None
    assert reply.refusal.reason == "PreemptionPaused"
    assert reply.refusal.retry_at is not None
    assert "room was made for this group 3 times" in reply.refusal.message


async def test_a_pod_that_could_not_be_evicted_for_a_group_is_left_out_and_the_refusal_says_why() -> None:
    bench, now = Bench(), datetime.now(UTC)
    about = OrderedGroup(
        namespace="shop", name="train", uid="G", priority=HIGH, scheduler_name="s", must_place=2
    )
    bench.ledger.ordered(make_order("o1", now, kind="group", group=about))
    kept = VictimOutcome(
        namespace="other",
        name="a0",
        uid="a0",
        result="failed",
        reason="forbidden",
        message="403 Forbidden: x",
    )
    bench.ledger.ended(make_outcome("o1", now, result="failed", victims=(kept,)))

    other = await bench.ask()
    none_left = await bench.ask(must_place=3, classes=(member(3),))

    assert other.plan is not None
    assert "a0" not in {one.uid for one in other.plan.victims}
    assert {one.node for one in other.plan.placements} == {"n2", "n3"}
    assert none_left.refusal is not None
    assert none_left.refusal.message.endswith(
        "1 pod is left out for now, as impossible to evict: 403 Forbidden"
    )
    assert there(none_left.refusal.retry_at) <= now + timedelta(seconds=10)


async def test_a_plan_names_nodes_victims_and_its_price() -> None:
    bench = Bench()

    reply = await bench.ask()

    assert (reply.status, reply.planner) == ("candidates", "planner-1")
    assert reply.plan is not None
    assert {(one.node, one.count) for one in reply.plan.placements} == {("n1", 1), ("n2", 1)}
    assert [(one.uid, one.node, one.rule) for one in reply.plan.victims] == [
        ("a0", "n1", "lower-priority"),
        ("a1", "n2", "lower-priority"),
    ]
    assert reply.plan.price is not None
    assert (reply.plan.price.victims, reply.plan.price.highest_priority) == (2, LOW)
    assert bench.count("makeway_planner_group_plan_requests_total", result="plan") == 1
    assert bench.count("makeway_planner_group_plan_duration_seconds_count", result="plan") == 1
    assert bench.count("makeway_planner_group_members_sum") == 2
    assert bench.count("makeway_planner_group_victims_sum") == 2


async def test_a_plan_offers_its_victims_and_pledges_them_to_the_group() -> None:
    bench = Bench()

    reply = await bench.ask()

    victims = [one.uid for one in there(reply.plan).victims]
    [offer] = bench.offers
    assert (reply.offer, offer.decision_id, offer.preemptor_uid) == ("sealed", reply.decision_id, "G")
    assert offer.lacks("", victims) == ""
    assert offer.lacks("", ["many0"]) == "many0"
    now = datetime.now(UTC)
    assert bench.ledger.pledges.victims(now, asking="G") == {}
    assert bench.ledger.pledges.victims(now) == dict.fromkeys(victims, reply.decision_id)


async def test_a_plans_members_hold_their_places_until_its_commit_comes() -> None:
    bench = Bench()
    put_group(bench.snapshot, GroupRecord(key=GroupKey("shop", "train"), uid="G", priority=HIGH))
    for uid, cpu in {"M0": "500m", "M1": "500m", "M2": "500m", "other": "1"}.items():
        pod = msgspec.json.decode(member(uid=uid, cpu=cpu, **IN_TRAIN).pod, type=Pod)
        bench.snapshot.apply(PutPod(msgspec.structs.replace(pod_record(pod), name=uid)))

    await bench.ask(classes=(member(uid="M0", **IN_TRAIN),))

    placed = bench.ledger.places(datetime.now(UTC))
    assert placed.keys() < {"M0", "M1", "M2"}
    assert sorted(one.node for one in placed.values()) == ["n1", "n2"]
    assert bench.ledger.places(datetime.now(UTC), asking="G") == {}


async def test_another_group_gets_no_victims_that_are_pledged() -> None:
    bench = Bench()
    first, other = await bench.ask(), GroupPreemptor(namespace="shop", name="other", uid="H", priority=HIGH)

    second = await bench.ask(group=other)

    pledged = {one.uid for one in there(first.plan).victims}
    assert not pledged & {one.uid for one in there(second.plan).victims}


async def test_a_plan_in_mode_observe_is_to_be_compared_and_one_in_enforce_is_not() -> None:
    bench = Bench()

    await bench.ask()
    reply = await bench.ask(mode="observe")

    assert [one.decision_id for one in bench.observed] == [reply.decision_id]


async def test_a_plan_that_needs_no_victim_has_no_victims_and_no_price() -> None:
    reply = await Bench(make_snapshot(NODES, [make_pod("M", "", HIGH, 500)])).ask()

    assert reply.plan is not None
    assert (reply.plan.victims, reply.plan.price) == ((), None)


async def test_a_refusal_says_how_many_members_would_have_room() -> None:
    bench = Bench(full(Policy(protection=Protection(namespaces=("default",)))))

    reply = await bench.ask()

    assert (reply.status, reply.plan) == ("refused", None)
    assert reply.refusal is not None
    assert reply.refusal.reason == "NotEnoughRoom"
    assert "room for at most 0 of the 2 pods" in reply.refusal.message
    assert reply.refusal.retry_at is not None  # a rule keeps pods of lower priority
    assert bench.count("makeway_planner_refusals_total", reason="NotEnoughRoom") == 1


async def test_victims_of_live_orders_are_awaited_and_not_ordered_again() -> None:
    bench = Bench()
    bench.ledger.ordered(live_order("ord-1", "other", "a0"))

    reply = await bench.ask()

    assert reply.plan is not None
    assert [(one.uid, one.order_id) for one in reply.plan.awaited] == [("a0", "ord-1")]
    assert [one.uid for one in reply.plan.victims] == ["a1"]


async def test_a_request_that_the_watch_is_behind_waits_for_its_pods() -> None:
    snapshot = make_snapshot(NODES, [make_pod(f"a{n}", node, LOW, 500) for n, node in enumerate(NODES)])
    bench = Bench(snapshot)

    asking = asyncio.create_task(bench.ask())
    await asyncio.sleep(0.05)
    snapshot.apply(PutPod(make_pod("M", "", HIGH, 500)))

    assert (await asking).status == "candidates"


async def test_an_unseen_group_waits_its_time_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "LONGEST_WAIT_SECONDS", 0.2)
    bench = Bench()
    unseen = asyncio.create_task(bench.ask(classes=(member(uid="unseen"),), timeout_milliseconds=2**62))
    await asyncio.sleep(0.01)

    other = await bench.ask()

    assert other.status == "candidates"
    assert not unseen.done()
    async with asyncio.timeout(20):
        assert (await unseen).status == "refused"


async def test_a_group_whose_pods_are_never_seen_is_to_be_tried_again() -> None:
    reply = await Bench(make_snapshot(NODES)).ask(timeout_milliseconds=100)

    assert reply.refusal is not None
    assert (reply.refusal.reason, reply.status) == ("MemberNotSeen", "refused")
    assert reply.refusal.retry_at is not None


@pytest.mark.parametrize(
    ("changes", "bench", "reason", "label"),
    [
        ({"cluster_uid": "other"}, {}, "OtherCluster", "otherCluster"),
        ({}, {"unsynced": lambda: "nodes are missing"}, "NotSynced", "notSynced"),
        ({}, {"brake": Brake(everywhere=True)}, "Braked", "braked"),
        ({"timeout_milliseconds": -1}, {}, "TooLate", "tooLate"),
        ({"classes": (member(cpu="lots"),)}, {}, "MalformedPod", "malformed"),
        ({"classes": (member(schedulerName=""),)}, {}, "MalformedPod", "malformed"),
    ],
)
async def test_a_request_that_cannot_be_planned_is_no_refusal(
    changes: dict[str, Any], bench: dict[str, Any], reason: str, label: str
) -> None:
    asked = Bench(**bench)

    reply = await asked.ask(**changes)

    assert reply.status == "notSynced"
    assert there(reply.refusal).reason == reason
    assert asked.count("makeway_planner_group_plan_requests_total", result=label) == 1


async def test_a_plan_that_is_held_back_is_a_refusal_with_its_moment() -> None:
    bench, until = Bench(), datetime(2026, 3, 1, tzinfo=UTC)

    def hold_back(asked: Sequence[Question], plan: GangPlan, now: datetime) -> PlanRefusal:
        return plan.refused("Held", f"{asked[0].preemptor.name} waits", until)

    search = group_search(bench.snapshot, bench.metrics, hold_back)
    bench.handle = partial(bench.planner.handle, search)
    reply, observed = await bench.ask(), await bench.ask(mode="observe")

    assert (reply.status, observed.status) == ("refused", "candidates")
    assert (there(reply.refusal).reason, there(reply.refusal).retry_at) == ("Held", until)


@pytest.mark.parametrize("of_a_pod", [True, False])
async def test_that_a_plan_takes_too_long_is_answered_before_the_scheduler_waits_no_longer(
    of_a_pod: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it takes the planner for one that is away, and asks about no pod, or no group, for a while."""
    bench, seconds = Bench(), count(step=0.01)
    asked: dict[str, Any] = {"group": None, "classes": (member(1),)} if of_a_pod else {}
    of_pods = pod_search(bench.snapshot, bench.ledger, bench.metrics)
    search: Any = of_pods if of_a_pod else group_search(bench.snapshot, bench.metrics)
    endless = replace(search, plan=lambda question, now: repeat(None))
    monkeypatch.setattr(handler, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))

    data = await bench.planner.handle(endless, codec.encode(request(timeout_milliseconds=2000, **asked)))

    assert there(codec.decode(PlanReply, data).refusal).reason == "TooLate"
    assert 1.7 < next(seconds) < 1.9


async def test_a_message_that_is_none_is_answered() -> None:
    reply = codec.decode(PlanReply, await Bench().handle(b'{"requestId": "r-1"}'))

    assert (reply.status, reply.request_id) == ("notSynced", "r-1")


async def test_a_plan_is_written_down_with_its_price_and_by_which_terms() -> None:
    bench = Bench()

    reply = await bench.ask()

    (record,) = await bench.written()
    assert (record.kind, record.decision_id, record.status) == ("group", reply.decision_id, "candidates")
    assert record.group is not None
    assert (record.group.name, record.group.uid, record.group.must_place) == ("train", "G", 2)
    assert [(one.uid, one.node, one.rule) for one in record.victims] == [
        ("a0", "n1", "lower-priority"),
        ("a1", "n2", "lower-priority"),
    ]
    assert record.group_plan is not None
    assert reply.plan is not None
    assert record.group_plan.price == reply.plan.price
    assert record.group_plan.placements == reply.plan.placements
    assert record.group_plan.objective == OBJECTIVE


async def test_the_order_of_the_policys_terms_decides() -> None:
    pods = [make_pod("big", "n1", MID, 500), *(make_pod(f"s{n}", "n2", LOW, 100) for n in range(5))]
    orders: tuple[tuple[GroupTerm, ...], ...] = (OBJECTIVE, ("victims", "highestPriority"))
    named: dict[tuple[str, ...], set[str]] = {}
    for objective in orders:
        policy = Policy(groups=Groups(objective=objective))
        snapshot = make_snapshot(["n1", "n2"], [*pods, make_pod("M", "", HIGH, 500)], policy=policy)
        reply = await Bench(snapshot).ask(classes=(member(1),), must_place=1)
        named[objective] = {one.uid for one in there(reply.plan).victims}

    assert named[OBJECTIVE] == {f"s{n}" for n in range(5)}
    assert named["victims", "highestPriority"] == {"big"}


async def test_a_refusal_is_written_down_with_the_nearest_domain_and_what_it_lacks() -> None:
    zones = [NodeRecord(name=n, allocatable={"cpu": 500, "pods": 9}, labels={"zone": n[:2]}) for n in ZONED]
    snapshot = make_snapshot(zones, [make_pod("M", "", HIGH, 500)])
    bench = Bench(snapshot)

    reply = await bench.ask(classes=(member(4),), must_place=4, topology=("zone",))

    (record,) = await bench.written()
    assert record.diagnosis == reply.refusal
    assert record.group_plan is not None
    assert (record.group_plan.placeable, record.group_plan.missing) == (2, {"cpu": 1000})
    assert [(one.domains[0].value, one.placeable) for one in record.group_plan.priced] == [
        ("zb", 2),
        ("za", 1),
    ]
    assert "missing even then: cpu 1" in there(reply.refusal).message


async def test_a_recorded_plan_is_made_again() -> None:
    journal = Journal()
    pods = [make_pod("big", "n1", MID, 500), *(make_pod(f"s{n}", "n2", LOW, 100) for n in range(5))]
    snapshot = make_snapshot(["n1", "n2"], [*pods, make_pod("M", "", HIGH, 500)])
    bench = Bench(snapshot, journal=journal)
    begun = [encode_entry(one) for one in contents(snapshot, "cluster-1", "planner-1", datetime.now(UTC))]
    journal.begin("rec-1")
    bench.ledger.ordered(live_order("ord-1", "other", "elsewhere"))

    await bench.ask(classes=(member(1),), must_place=1)

    (record,) = await bench.written()
    assert record.recording == "rec-1"
    replay = Replay()
    entries = [*begun, *(encode_entry(one) for one in journal.take(10))]
    (decided,) = replay.read(pack(0, entries))
    assert differences(record, replay.again(decided)) == []
