"""A commit is judged by the rules of plans: what was offered, what may be evicted now, and whole units."""

import re
from collections.abc import Iterable
from dataclasses import replace as changed
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from builders_bus import make_group, make_preemptor
from makeway.bus.commit import LATE, NOTHING, ORDER_LIFE, SUPERSEDED, TOO_LARGE, CommitRequest, Offer, offered
from makeway.bus.messages import (
    API_VERSION,
    Awaited,
    ClosedDomain,
    Fence,
    NominationToClear,
    Placement,
    VictimFacts,
    Void,
)
from makeway.bus.orders import NOT_ACKNOWLEDGED, TAKEN_BY_NO_STREAM
from makeway.core.k8s.budget import Budget
from makeway.core.k8s.importance import microseconds
from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.document import Policy, PolicyLimits, Protection
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.rules import RECLAIM
from makeway.planner.commit.judge import (
    Accepted,
    Circumstances,
    facts_for_evictors,
    judge,
    refused_by_itself,
    still_waiting,
)
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.limits import NAMESPACE_SHARE, ORDERS_IN_FLIGHT
from makeway.planner.orders.not_now import Asker
from makeway.planner.orders.pledges import Pledge
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.result import GangPlan
from makeway.planner.service.orders.commit_judge import CommitJudge
from makeway.planner.snapshot.changes import Adopt, PutNode, PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    XL,
    L,
    S,
    ask,
    live_order,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
)
from unit.planner.grouping import pod_group
from unit.planner.test_daemonset_plan import bound, mixed_pods, on_node, running, the
from unit.planner.test_daemonset_plan import of as daemonsets_of
from unit.planner.test_plan_groups import cluster, member

PLACE: Final = Placement(namespace="default", name="urgent", uid="urgent", node="n1", node_uid="n1-uid")
PREEMPTOR: Final = make_pod("urgent", priority=HIGH, size=300)
MEMBERS: Final = {"m1": "n1", "m2": "n2"}
AROUND: Final = Circumstances(now=NOW, mode="enforce", nominated={"urgent": "n1"})
LIVE: Final = {"a": "ord-other"}


def commit(*victims: str, **changes: Any) -> CommitRequest:
    request = CommitRequest(
        api_version=API_VERSION,
        order_id="ord-1",
        cluster_uid="cluster",
        bridge="makeway/nominator/n",
        fence=Fence(kind="lease", namespace="makeway-system", name="makeway-nominator", epoch=1),
        offer="{}",
        placements=(PLACE,),
        store_by=NOW + timedelta(seconds=5),
        victims=victims,
    )
    return replace(request, **changes)


def group_commit(*victims: str, must_place: int = 2, **changes: Any) -> CommitRequest:
    """Make a commit for members m1 and m2 of group train, on nodes n1 and n2."""
    about = make_group("g", namespace="default", must_place=must_place, min_count=0)
    places = tuple(replace(PLACE, name=uid, uid=uid, node=node) for uid, node in MEMBERS.items())
    return commit(*victims, **{"group": about, "placements": places, **changes})


def group_offer(pods: Iterable[str] = ("a", "b"), **changes: Any) -> Offer:
    return offer(pods, node="", **{"preemptor_uid": "g", **changes})


def gang(*pods: PodRecord, policy: Policy | None = None, budgets: Iterable[Budget] = ()) -> Snapshot:
    """Two nodes with a pod of low priority on each, and the members of train; `pods`: others in place."""
    there = {"a": make_pod("a", "n1"), "b": make_pod("b", "n2")}
    there |= {uid: member("train", uid, "", priority=HIGH) for uid in MEMBERS}
    there |= {one.uid: one for one in pods}
    groups = [pod_group("train", whole=False, priority=HIGH, min_count=2)]
    return cluster(groups, there.values(), policy=policy, budgets=budgets)


def group_judged(
    request: CommitRequest,
    seen: Snapshot | None = None,
    around: Circumstances | None = None,
    one: Offer | None = None,
    *,
    before: Accepted | None = None,
) -> Accepted | Void:
    around, there = around or changed(AROUND, nominated=MEMBERS), seen or gang()
    waiting = still_waiting(there, request, around, before)
    return waiting or judge(there, PlanCache(), request, one or group_offer(), around)


def offer(pods: Iterable[str] = ("a", "b"), *, node: str = "n1", **changes: Any) -> Offer:
    one = Offer(
        decision_id="dec-1",
        cluster_uid="cluster",
        preemptor_uid="urgent",
        at=NOW,
        pods=offered((node, uid) for uid in pods),
    )
    return replace(one, **changes)


def snapshot(policy: Policy | None = None, **pods: Any) -> Snapshot:
    """One node with pods a and b of low priority; `pods`: what differs of one, None where it is gone."""
    there = {name: make_pod(name, "n1", LOW, S) for name in ("a", "b")} | {"urgent": PREEMPTOR} | pods
    return make_snapshot(["n1", "n2"], [one for one in there.values() if one is not None], policy=policy)


def judged(
    request: CommitRequest,
    seen: Snapshot | None = None,
    around: Circumstances = AROUND,
    one: Offer | None = None,
) -> Accepted | Void:
    return judge(seen or snapshot(), PlanCache(), request, one or offer(), around)


def reason(found: Accepted | Void) -> str:
    assert isinstance(found, Void), found
    return found.reason


def test_an_order_has_the_words_of_the_snapshot_and_the_names_of_the_commit() -> None:
    around = changed(AROUND, nominated={"urgent": "n1", "lower": "n1", "elsewhere": "n2"})
    seen = snapshot(lower=make_pod("lower", priority=LOW), elsewhere=make_pod("elsewhere", priority=LOW))

    found = as_a(Accepted, judged(commit("b", "a"), seen, around))

    assert found.waits_for == ""
    order = found.order
    assert [(one.uid, one.node, one.priority, one.rule) for one in order.victims] == [
        ("b", "n1", LOW, "lower-priority"),
        ("a", "n1", LOW, "lower-priority"),
    ]
    assert order.preemptor is not None
    assert (order.preemptor.priority, order.preemptor.scheduler_name) == (HIGH, "default-scheduler")
    assert (order.order_id, order.writer, order.decision_id) == ("ord-1", "makeway/nominator/n", "dec-1")
    assert (order.not_after, order.store_by) == (NOW + ORDER_LIFE, NOW + timedelta(seconds=5))
    assert order.nominations_to_clear == (NominationToClear(namespace="default", name="lower", uid="lower"),)


def test_an_order_carries_the_version_and_the_facts_that_each_victim_was_judged_by() -> None:
    tolerating = make_pod(
        "a",
        "n1",
        LOW,
        S,
        facts=PodFacts(priority_class="batch", scheduled_micros=microseconds(NOW), never_evict=True),
    )
    around = changed(AROUND, versions={"a": "41", "b": "42"})

    found = as_a(Accepted, judged(commit("a", "b"), snapshot(a=tolerating), around))

    assert [one.facts for one in found.order.victims] == [
        VictimFacts(resource_version="41", priority_class="batch", scheduled_at=NOW, never_evict=True),
        VictimFacts(resource_version="42"),
    ]


@pytest.mark.parametrize(
    "facts", [PodFacts(daemon=True, daemonset_uid="ds", daemonset_name="logs"), PodFacts(mirror=True)]
)
def test_no_facts_are_written_of_a_pod_that_an_evictor_has_to_read_more_of(facts: PodFacts) -> None:
    assert facts_for_evictors(make_pod("a", "n1", facts=facts), "41") is None
    assert facts_for_evictors(make_pod("a", "n1"), "") is None
    assert facts_for_evictors(make_pod("a", "n1"), "41") is not None


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("preemptor-gone", judged(commit("a", placements=(replace(PLACE, namespace="x", name="y"),)))),
        ("preemptor-bound", judged(commit("a"), snapshot(urgent=replace(PREEMPTOR, node="n2")))),
        ("preemptor-terminating", judged(commit("a"), snapshot(urgent=replace(PREEMPTOR, terminating=True)))),
        ("node-gone", judged(commit("a", placements=(replace(PLACE, node="n9"),)))),
        ("braked", judged(commit("a"), around=changed(AROUND, brake=Brake(everywhere=True)))),
        ("mode-observe", judged(commit("a"), around=changed(AROUND, mode="observe"))),
        ("mode-off", judged(commit("a"), around=changed(AROUND, mode="off"))),
        ("victim-spared", judged(commit("a"), snapshot(a=make_pod("a", "n1", HIGH)))),
        ("victim-spared", judged(commit("a"), snapshot(a=make_pod("a", "n2")))),
        (
            "victim-spared",
            judged(commit("a"), snapshot(Policy(protection=Protection(namespaces=("default",))))),
        ),
        (
            "too-many-victims",
            judged(commit("a", "b"), snapshot(Policy(limits=PolicyLimits(victims_per_order=1)))),
        ),
        (NOTHING, judged(commit("a"), snapshot(a=None))),
        (NOTHING, judged(commit("a"), snapshot(a=make_pod("a", "n1", ends=20)))),
        (
            "OrdersInFlight",
            judged(commit("a"), around=changed(AROUND, limit=Void(reason="OrdersInFlight", message="many"))),
        ),
        ("awaited-order-failed", judged(commit(awaited=(Awaited(uid="a", order_id="ord-other"),)))),
    ],
)
def test_what_no_rule_allows_any_more_is_void(expected: str, found: Accepted | Void) -> None:
    assert reason(found) == expected


def test_a_pod_that_its_bridge_has_seen_first_is_waited_for() -> None:
    found = as_a(Accepted, judged(commit("a"), snapshot(urgent=None)))

    assert found.waits_for == "pod default/urgent to be seen"


def test_a_victim_that_another_order_removes_or_that_leaves_is_awaited() -> None:
    seen = snapshot(b=make_pod("b", "n1", ends=20))

    found = as_a(Accepted, judged(commit("a", "b"), seen, changed(AROUND, in_flight=LIVE)))

    assert found.order.victims == ()
    assert [(one.uid, one.order_id) for one in found.order.awaited] == [("a", "ord-other"), ("b", "")]


def test_an_awaited_pod_that_another_plan_takes_waits_for_that_commit_and_a_victim_does_not() -> None:
    around = changed(AROUND, pledged={"a": "dec-2"}, unstored=frozenset({"dec-2"}))

    waiting = judged(commit("b", awaited=(Awaited(uid="a", order_id="dec-2"),)), around=around)
    first = judged(commit("a", "b"), around=around)

    assert as_a(Accepted, waiting).waits_for == "order dec-2, which it counts on, in the stream"
    assert isinstance(first, Accepted)
    assert ([one.uid for one in first.order.victims], first.waits_for) == (["a", "b"], "")


@pytest.mark.parametrize(
    ("waits_for", "around"),
    [
        ("the nomination of pod default/urgent to node n1", changed(AROUND, nominated={})),
        ("the nomination of pod default/urgent to node n1", changed(AROUND, nominated={"urgent": "n2"})),
        ("the end of order ord-0 for the same pod or group", changed(AROUND, busy="ord-0")),
        (
            "order ord-other, which it counts on, in the stream",
            changed(AROUND, in_flight=LIVE, unstored=frozenset({"ord-other"})),
        ),
    ],
)
def test_an_order_waits_for_what_may_still_come_about(waits_for: str, around: Circumstances) -> None:
    found = as_a(Accepted, judged(commit("a", "b"), around=around))

    assert found.waits_for == waits_for


def test_a_unit_goes_whole_or_not_at_all() -> None:
    pods = [PREEMPTOR, member("train", "a", "n1"), member("train", "b", "n2")]
    leaving_there = [replace(member("train", "a", "n1"), terminating=True), member("train", "b", "n2")]
    seen = cluster([pod_group("train")], pods)

    whole = judged(commit("a", "b"), seen)

    assert reason(judged(commit("a"), seen)) == "unit-incomplete"
    assert reason(judged(commit("a", "b"), cluster([pod_group("train")], [PREEMPTOR, *leaving_there]))) == (
        "victim-spared"
    )
    assert isinstance(whole, Accepted)
    assert {one.unit for one in whole.order.victims} == {"PodGroup default/train"}
    assert {one.node for one in whole.order.victims} == {"n1", "n2"}


@pytest.mark.parametrize("noted", ["scheduled_micros", "created_micros"])
@pytest.mark.parametrize(("seconds", "stored"), [(29, True), (31, False)])
def test_a_pod_newly_in_a_unit_is_for_the_evictor_to_judge(noted: str, seconds: int, stored: bool) -> None:
    facts = replace(PodFacts(), **{noted: microseconds(NOW) - seconds * 10**6})
    late = member("train", "b", "n2", facts=facts)
    seen = cluster([pod_group("train")], [PREEMPTOR, member("train", "a", "n1"), late])

    found = judged(commit("a"), seen)

    assert isinstance(found, Accepted) == stored
    assert not isinstance(found, Accepted) or [one.uid for one in found.order.victims] == ["a"]


def test_limits_are_looked_at_before_rules() -> None:
    policy = Policy(limits=PolicyLimits(victims_per_order=1), protection=Protection(namespaces=("default",)))
    most = changed(AROUND, limit=Void(reason="OrdersInFlight", message="many"))

    assert reason(judged(commit("a", "b"), snapshot(policy))) == "too-many-victims"
    assert reason(judged(commit("a"), snapshot(policy), most)) == "OrdersInFlight"


def test_a_late_plan_violates_no_budget_that_it_left_whole() -> None:
    pods = [make_pod(uid, "n1", LOW, S, labels={"app": "web"}) for uid in ("a", "b")]
    full = make_snapshot(["n1"], [*pods, PREEMPTOR], [make_budget("web", {"app": "web"}, 0)])
    late = changed(AROUND, now=NOW + timedelta(seconds=20))
    request = commit("a", store_by=late.now + timedelta(seconds=5))

    assert reason(judged(request, full, late)) == "budget-spent"
    for around, one in ((AROUND, offer()), (late, offer(violating=offered([("n1", "a")])))):
        order = as_a(Accepted, judged(request, full, around, one)).order
        assert order.pdb_violations == 1


def test_a_late_plan_for_a_group_holds_while_its_budgets_leave_as_much() -> None:
    web = {"app": "web"}
    late = changed(AROUND, now=NOW + timedelta(seconds=20), nominated=MEMBERS)
    request = group_commit("a", "b", store_by=late.now + timedelta(seconds=5))

    def seen(allowed: int) -> Snapshot:
        pods = [
            make_pod("a", "n1", size=XL, start=2, labels=web),
            make_pod("b", "n2", size=XL, start=1, labels=web),
        ]
        members = (member("train", uid, "", L, priority=HIGH) for uid in MEMBERS)
        return gang(*pods, *members, budgets=[make_budget("web", web, allowed)])

    asked = GangQuestion("default/train", (GangClass(ask(seen(1).pods["m1"]), 2),), 2)
    plan = as_a(GangPlan, plan_gang(seen(1), asked, NOW))
    violating = [("", one.pod.uid) for one in plan.victims if one.pdb_violating]
    one = group_offer(violating=offered(violating))

    assert violating == [("", "b")], "node by node, though b runs for longer"
    assert as_a(Accepted, group_judged(request, seen(1), late, one)).order.pdb_violations == 1
    assert reason(group_judged(request, seen(0), late, one)) == "budget-spent"


def test_a_late_plan_holds_where_a_unit_violates_a_budget_as_planned() -> None:
    web = {"app": "web"}
    late = changed(AROUND, now=NOW + timedelta(seconds=20))
    request = commit("a", "b", store_by=late.now + timedelta(seconds=5))
    pods = [PREEMPTOR, *(member("train", uid, node, labels=web) for uid, node in (("a", "n1"), ("b", "n2")))]
    one = offer(violating=offered([("n1", "a")]))

    def seen(allowed: int) -> Snapshot:
        return cluster([pod_group("train")], pods, budgets=[make_budget("web", web, allowed)])

    assert as_a(Accepted, judged(request, seen(1), late, one)).order.pdb_violations == 1
    assert reason(judged(request, seen(0), late, one)) == "budget-spent"


def test_any_pod_of_a_hard_budget_may_be_chosen_but_no_more_than_it_allows() -> None:
    policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("default",))
    budget = make_budget("web", {"app": "web"}, 1)
    pods = [PREEMPTOR, *(make_pod(name, "n1", labels={"app": "web"}) for name in ("a", "b"))]
    seen = make_snapshot(["n1"], pods, [budget], policy=policy)

    assert isinstance(judged(commit("a"), seen), Accepted)
    assert isinstance(judged(commit("b"), seen), Accepted)
    assert reason(judged(commit("a", "b"), seen)) == "victim-spared"


def test_the_order_of_a_group_has_its_members_and_victims_on_several_nodes() -> None:
    lower = make_pod("lower", priority=LOW)
    around = changed(AROUND, nominated=MEMBERS | {"lower": "n2"}, versions={"a": "41"})
    closed = ClosedDomain(key="zone", value="z1", rule="podAntiAffinity")

    found = as_a(
        Accepted,
        group_judged(group_commit("a", "b"), gang(lower), around, group_offer(closing={"b": closed})),
    )

    order = found.order
    assert (found.waits_for, order.kind, order.preemptor, order.node) == ("", "group", None, "")
    assert order.group is not None
    assert (order.preemptor_uid, order.group.priority) == ("g", HIGH)
    assert [(one.uid, one.node) for one in order.members] == [*MEMBERS.items()]
    assert [(one.uid, one.node, one.closes) for one in order.victims] == [
        ("a", "n1", None),
        ("b", "n2", closed),
    ]
    assert {one.facts for one in order.victims} == {None}, "an evictor reads more than these of a group"
    assert order.nominations_to_clear == (
        NominationToClear(namespace="default", name="lower", uid="lower", node="n2"),
    )


@pytest.mark.parametrize(
    ("expected", "pods"),
    [
        ("member-gone", [replace(make_pod("m2", priority=HIGH), name="another")]),
        ("member-bound", [member("train", "m2", "n2", priority=HIGH)]),
        ("member-terminating", [member("train", "m2", "", priority=HIGH, ends=20)]),
        ("no-member", [make_pod("m2", priority=HIGH)]),
        ("no-member", [member("other", "m2", "", priority=HIGH)]),
        ("victim-spared", [make_pod("b", "n2", HIGH)]),
    ],
)
def test_a_group_gets_no_order_for_pods_that_are_no_members_or_not_removable(
    expected: str, pods: list[PodRecord]
) -> None:
    assert reason(group_judged(group_commit("a", "b"), gang(*pods))) == expected


def test_a_group_is_as_important_as_its_least_important_member() -> None:
    pods = [make_pod("a", "n1", MID), *(member("train", uid, "", priority=HIGH) for uid in MEMBERS)]
    alike = make_snapshot(["n1", "n2"], pods)
    unlike = make_snapshot(["n1", "n2"], [*pods[:-1], member("train", "m2", "", priority=MID)])

    assert isinstance(group_judged(group_commit("a"), alike), Accepted)
    assert reason(group_judged(group_commit("a"), unlike)) == "victim-spared"


@pytest.mark.parametrize(("allowed", "accepted"), [(1, False), (2, True)])
def test_victims_on_all_nodes_together_keep_a_hard_budget(allowed: int, accepted: bool) -> None:
    policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("default",))
    budget = make_budget("web", {"app": "web"}, allowed)
    pods = [make_pod(uid, node, labels={"app": "web"}) for uid, node in (("a", "n1"), ("b", "n2"))]

    found = group_judged(group_commit("a", "b"), gang(*pods, policy=policy, budgets=[budget]))

    assert isinstance(found, Accepted) == accepted


def test_a_groups_order_is_judged_anew_once_all_its_members_show_nominated() -> None:
    first = as_a(
        Accepted, group_judged(group_commit("a", "b"), around=changed(AROUND, nominated={"m1": "n1"}))
    )
    assert first.waits_for == "the nomination of pod default/m2 to node n2"
    one_stays = gang(make_pod("b", "n2", HIGH))

    half = changed(AROUND, nominated={"m2": "n2"})
    waiting = group_judged(group_commit("a", "b"), one_stays, half, before=first)
    shown = group_judged(group_commit("a", "b"), one_stays, before=first)

    assert isinstance(waiting, Accepted)
    assert (waiting.order, waiting.waits_for) == (first.order, "the nomination of pod default/m1 to node n1")
    assert reason(shown) == "victim-spared"


def test_what_is_in_flight_is_counted_again_only_once_the_nomination_shows() -> None:
    ledger, nominated = Ledger(), dict[str, str]()
    judging = CommitJudge(
        snapshot(), ledger, nominated, "enforce", policy=Policy, brake=lambda: RELEASED, versions={}
    )
    first = as_a(Accepted, judging.judge(commit("a"), offer(), NOW))
    ledger.ordered(live_order("ord-0", "other", "a"))

    waiting = judging.judge(commit("a"), offer(), NOW, first)
    nominated["urgent"] = "n1"
    shown = judging.judge(commit("a"), offer(), NOW, first)

    assert waiting == first
    assert isinstance(shown, Accepted)
    assert ([one.uid for one in shown.order.victims], shown.order.counts_on) == ([], ("ord-0",))


def test_of_two_commits_that_would_wait_for_each_other_the_later_plans_goes_on() -> None:
    """One counts on the other's pledge, which has planned anew since, beside the first one's order."""
    ledger = Ledger()
    pledge = Pledge("dec-1", Asker("urgent", "default", HIGH), (PLACE,), ("a",), NOW + timedelta(seconds=5))
    ledger.pledges.pledge("urgent", pledge)
    waiting = replace(live_order("ord-2", "other", "b"), awaited=(Awaited(uid="a", order_id="dec-1"),))
    ledger.reserve(waiting)
    judging = CommitJudge(
        snapshot(), ledger, {"urgent": "n1"}, "enforce", policy=Policy, brake=lambda: RELEASED, versions={}
    )

    assert ledger.in_flight(NOW, asking="urgent") == {}
    assert ledger.in_flight(NOW, asking="third") == {"b": "ord-2"}
    first = as_a(Accepted, judging.judge(commit("a", "b"), offer(), NOW))
    ledger.reserve(first.order)
    again = as_a(Accepted, judging.judge(commit("a", "b"), offer(), NOW, first))

    for one in (first, again):
        assert ([victim.uid for victim in one.order.victims], one.waits_for) == (["a", "b"], "")
    ledger.ordered(again.order)
    assert ledger.in_flight(NOW, asking="other") == {"a": "ord-1", "b": "ord-1"}


def test_what_a_more_important_pod_takes_of_the_limit_is_not_taken_from_an_order_that_was_accepted() -> None:
    ledger, nominated = Ledger(), dict[str, str]()
    policy = Policy(limits=PolicyLimits(orders_in_flight=10))
    there = snapshot(policy)
    judging = CommitJudge(
        there, ledger, nominated, "enforce", policy=lambda: policy, brake=lambda: RELEASED, versions={}
    )
    for number in range(8):
        ledger.ordered(live_order(f"ord-{number}", f"other-{number}"))
    first = as_a(Accepted, judging.judge(commit("a"), offer(), NOW))
    ledger.reserve(first.order)
    ledger.ordered(replace(live_order("ord-9", "critical"), preemptor=make_preemptor("p", priority=HIGH + 1)))
    nominated["urgent"] = "n1"

    again = judging.judge(commit("a"), offer(), NOW, first)
    late = judging.judge(commit("b", order_id="ord-2"), offer(), NOW)

    assert (isinstance(again, Accepted), reason(late)) == (True, "OrdersInFlight")


@pytest.mark.parametrize(
    ("expected", "request_"),
    [
        ("", group_commit("a", "b")),
        ("not-offered", group_commit("c")),
        ("too-few-members", group_commit("a", must_place=3)),
        ("too-few-members", group_commit("a", must_place=0)),
        ("named-twice", group_commit("a", placements=(PLACE, PLACE))),
    ],
)
def test_a_groups_commit_names_offers_and_enough_members(expected: str, request_: CommitRequest) -> None:
    found = refused_by_itself(request_, group_offer(), "cluster", NOW)

    assert ("" if found is None else found.reason) == expected


def test_a_preemptor_or_member_that_is_gone_is_waited_for_no_longer() -> None:
    alone, train = snapshot(), gang()
    alone.apply(RemovePod("urgent"))
    train.apply(RemovePod("m2"))

    assert reason(judged(commit("a"), alone)) == "preemptor-gone"
    assert reason(group_judged(group_commit("a", "b"), train)) == "member-gone"


def test_a_member_that_its_bridge_has_seen_first_is_waited_for() -> None:
    pods = [make_pod("a", "n1"), make_pod("b", "n2"), member("train", "m1", "", priority=HIGH)]
    seen = cluster([pod_group("train", whole=False, priority=HIGH, min_count=2)], pods)

    found = as_a(
        Accepted, group_judged(group_commit("a", "b"), seen, changed(AROUND, nominated={"m1": "n1"}))
    )

    assert (found.order.victims, found.waits_for) == ((), "pod default/m2 to be seen")


def test_a_commit_names_one_pod_or_a_group() -> None:
    with pytest.raises(ValueError, match="placements"):
        commit(placements=(PLACE, replace(PLACE, uid="other")))
    with pytest.raises(ValueError, match="placements"):
        group_commit(placements=())


def test_a_commit_that_no_planner_could_accept_is_refused_by_itself() -> None:
    def refused(request: CommitRequest, one: Offer | None = None, cluster_uid: str = "cluster") -> str:
        found = refused_by_itself(request, one or offer(), cluster_uid, NOW)
        return "" if found is None else found.reason

    assert refused(commit("a", "b")) == ""
    assert refused(commit("a"), cluster_uid="another") == "other-cluster"
    assert refused(commit("a", cluster_uid="another")) == "other-cluster"
    assert refused(commit("a"), offer(preemptor_uid="another")) == "not-offered"
    assert refused(commit("a", "c")) == "not-offered"
    assert refused(commit("a", placements=(replace(PLACE, node="n2"),))) == "not-offered"
    assert refused(commit("a", store_by=NOW + timedelta(minutes=3))) == "store-by-too-far"
    assert refused(commit("a", "a")) == "named-twice"
    assert refused(commit("a", awaited=(Awaited(uid="a"),))) == "named-twice"


@pytest.mark.parametrize("size", [5, 25])
def test_a_daemonsets_pod_takes_what_the_rules_for_daemonsets_chose(size: int) -> None:
    preemptor = bound(size)
    seen = on_node(76, mixed_pods())
    seen.apply(PutPod(preemptor))
    chosen = the(seen, preemptor)
    uids = tuple(one.pod.uid for one in chosen.victims)
    asked = commit(*uids, placements=(replace(PLACE, name="logs", uid="logs"),))
    one = offer(uids, preemptor_uid="logs", daemonset_node="n1", unfit_since=NOW - timedelta(hours=1))

    found = judged(asked, seen, changed(AROUND, nominated={"logs": "n1"}), one)
    plain = judged(asked, seen, AROUND, replace(one, daemonset_node=""))

    assert isinstance(found, Accepted)
    assert {(pod.uid, pod.rule) for pod in found.order.victims} == {
        (pod.pod.uid, pod.rule) for pod in chosen.victims
    }
    assert {pod.rule for pod in as_a(Accepted, plain).order.victims} == {"lower-priority"}


@pytest.mark.parametrize(
    ("leaving", "uids", "ends"), [(8, "h", ""), (5, "hi", ""), (5, "hij", "victim-spared")]
)
def test_what_a_daemonsets_pod_needs_that_no_commit_tells_is_left_to_who_has_verified_it(
    leaving: int, uids: str, ends: str
) -> None:
    """A host port besides cpu that a pod frees which leaves, or a resource that its scheduler ignores."""
    preemptor = bound({"cpu": 5, "example.com/ignored": 1})
    pods = [running(uid, 1) for uid in "hij"]
    nodes = on_node(leaving + 3, [*pods, running("l", leaving, ends=20)], daemonsets_of(most=2))
    nodes.apply(PutNode(make_node("elsewhere", 1000, **{"example.com/ignored": 9})))
    nodes.apply(PutPod(preemptor))
    asked = commit(*uids, awaited=(Awaited(uid="l"),), placements=(replace(PLACE, name="logs", uid="logs"),))
    one = offer(tuple(uids), preemptor_uid="logs", daemonset_node="n1", unfit_since=NOW - timedelta(hours=1))

    found = judged(asked, nodes, changed(AROUND, nominated={"logs": "n1"}), one)

    if ends:
        assert reason(found) == ends
    else:
        assert [pod.uid for pod in as_a(Accepted, found).order.victims] == [*uids]


def test_every_reason_of_a_void_is_in_the_documentation() -> None:
    root = Path(__file__).parents[3]
    judging = (root / "planner/src/makeway/planner/commit/judge.py").read_text()
    reasons = set(re.findall(r'reason="([a-z-]+)"', judging)) | {
        *(NOTHING, SUPERSEDED, LATE, NOT_ACKNOWLEDGED, TAKEN_BY_NO_STREAM, TOO_LARGE),
        *("mode-off", "mode-observe", ORDERS_IN_FLIGHT, NAMESPACE_SHARE),
    }

    documented = (root / "docs/external.md").read_text()

    assert len(reasons) > 15
    assert {reason for reason in reasons if f"`{reason}`" not in documented} == set()


def test_a_victim_that_its_scheduler_has_placed_in_memory_is_waited_for_until_it_is_bound() -> None:
    unbound, bound_by_now = snapshot(a=make_pod("a", priority=LOW, size=S)), snapshot()

    waiting, found = judged(commit("a", "b"), unbound), judged(commit("a", "b"), bound_by_now)

    assert isinstance(waiting, Accepted)
    assert isinstance(found, Accepted)
    assert "pod default/a to be bound" in waiting.waits_for
    assert (found.waits_for, [one.uid for one in found.order.victims]) == ("", ["a", "b"])


def test_pods_that_a_bridge_stops_in_memory_are_in_no_order() -> None:
    in_memory = snapshot(a=make_pod("a", priority=LOW, size=S))

    found = as_a(Accepted, judged(commit("b", in_memory=("a",)), in_memory))

    assert (found.waits_for, [one.uid for one in found.order.victims]) == ("", ["b"])
    assert reason(judged(commit(in_memory=("a",)), in_memory)) == NOTHING
    # The API shows it nominated where it is placed.
    nominated = changed(AROUND, nominated={"urgent": "n1", "a": "n1"})
    found = as_a(Accepted, judged(commit("b", in_memory=("a",)), in_memory, nominated))
    assert found.order.nominations_to_clear == ()
    # Another order's, whose bridge has it stopped.
    awaited = commit("b", awaited=(Awaited(uid="a", order_id="ord-2"),))
    other = as_a(Accepted, judged(awaited, in_memory))
    assert other.order.awaited == ()


def test_pods_that_a_bridge_would_stop_in_memory_have_to_be_offered() -> None:
    found = refused_by_itself(commit("a", in_memory=("c",)), offer(), "cluster", NOW)
    twice = refused_by_itself(commit("a", in_memory=("a",)), offer(), "cluster", NOW)

    assert found is not None
    assert (found.reason, "c" in found.message) == ("not-offered", True)
    assert twice is not None
    assert twice.reason == "named-twice"


def test_an_order_lasts_as_its_commit_says_and_ten_minutes_at_most() -> None:
    for seconds, lasts in ((0, ORDER_LIFE), (5, timedelta(seconds=5)), (2**63 - 1, timedelta(minutes=10))):
        found = as_a(Accepted, judged(commit("a", lasts_seconds=seconds)))
        assert found.order.not_after - found.order.created_at == lasts


def test_what_a_group_takes_back_counts_no_member_that_its_last_order_placed_and_this_one_does_not() -> None:
    def of(path: str) -> dict[str, Any]:
        return {"labels": {"queue": path}, "facts": PodFacts(queue=path), "priority": HIGH}

    waiting = [member("train", uid, "", **of("root.a")) for uid in (*MEMBERS, "m3")]
    seen = gang(make_pod("a", "n1", **of("root.b")), make_pod("b", "n2", **of("root.b")), *waiting)
    built = tree(queue("a", guaranteed={"cpu": 2 * S}), queue("b"), reclaim=True)
    seen.apply(Adopt(built, "queues"))
    around = changed(AROUND, nominated={**MEMBERS, "m3": "n1"})

    found = as_a(Accepted, group_judged(group_commit("a", "b"), seen, around))

    assert {one.rule for one in found.order.victims} == {RECLAIM}
