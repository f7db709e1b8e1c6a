"""What an answered plan takes counts for the plans after it, until its commit comes or for five seconds."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from makeway.bus.messages import OrderedGroup, Placement, Preemptor
from makeway.bus.plan import NodeSelection, PlanReply
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.limits import ORDERS_IN_FLIGHT
from makeway.planner.orders.not_now import Asker
from makeway.planner.orders.pledges import LASTS, MOST_IN_NAMESPACE, MOST_UNUSED, Pledge, Pledges, pledge_of
from makeway.planner.plan.decision import decision_of
from makeway.planner.service.handler import names_any
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.planner.building import HIGH, LOW, NOW, XL, L, S, ask, make_order, make_pod, make_snapshot, planned
from unit.planner.test_service import POD, Bench, request


def pledge(uid: str, *victims: str, at: float = 0, namespace: str = "shop") -> Pledge:
    places = (Placement(namespace=namespace, name=uid, uid=uid, node="n1"),)
    until = NOW + timedelta(seconds=at) + LASTS
    return Pledge(f"dec-{uid}", Asker(uid, namespace, HIGH), places, victims, until, nodes=frozenset({"n1"}))


def pledged(*ones: Pledge) -> Pledges:
    pledges = Pledges()
    for one in ones:
        pledges.pledge(one.preemptor.uid, one)
    return pledges


def pledged_by(preemptor: PodRecord, snapshot: Snapshot) -> Pledge | None:
    """Return what a plan for a pod takes."""
    asker = Asker(preemptor.uid, preemptor.namespace, preemptor.priority)
    question = ask(preemptor)
    plan = planned(snapshot, question)
    decision = decision_of(
        snapshot, request(), question, plan, decision_id="dec-1", planner="planner-1", at=NOW
    )
    return pledge_of(asker, decision, snapshot, NOW)


def test_it_takes_the_victims_and_the_place_of_the_best_candidate() -> None:
    preemptor = make_pod("p", priority=HIGH, size=L)
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])

    found = there(pledged_by(preemptor, snapshot))

    assert (found.pledge_id, found.victims, found.until) == ("dec-1", ("a",), NOW + LASTS)
    assert found.preemptor == Asker("p", "default", HIGH)
    assert [(one.uid, one.node) for one in found.places] == [("p", "n1")]


def test_room_that_terminating_pods_alone_make_is_taken_and_in_no_limit() -> None:
    preemptor = make_pod("p", priority=HIGH, size=L)
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL, ends=20)])

    found = there(pledged_by(preemptor, snapshot))

    assert (found.victims, found.places[0].node, found.needs_order) == ((), "n1", False)


def test_it_ends_after_five_seconds_or_with_a_newer_plan_or_its_commit() -> None:
    pledges = pledged(pledge("p", "a"), pledge("q", "b"))

    assert pledges.victims(NOW) == {"a": "dec-p", "b": "dec-q"}
    assert pledges.victims(NOW, asking="p") == {"b": "dec-q"}
    assert pledges.victims(NOW + LASTS) == {}

    pledges = pledged(pledge("p", "a"), pledge("q", "b"), pledge("p", "c", at=1))
    assert pledges.victims(NOW) == {"b": "dec-q", "c": "dec-p"}
    pledges.withdraw("q")
    assert pledges.victims(NOW) == {"c": "dec-p"}
    pledges.pledge("p", None)
    assert pledges.victims(NOW) == {}


def test_a_namespace_forgets_its_own_eldest() -> None:
    many = [pledge(f"p{number}", f"v{number}") for number in range(MOST_IN_NAMESPACE + 1)]

    pledges = pledged(pledge("other", "x", namespace="bank"), *many)

    found = pledges.victims(NOW)
    assert len(pledges) == MOST_IN_NAMESPACE + 1
    assert "x" in found
    assert "v0" not in found


def test_orders_and_pledges_place_their_pods_before_a_nomination_shows() -> None:
    ledger = Ledger()
    ledger.pledges.pledge("p", pledge("p", "a"))
    about = Preemptor(namespace="shop", name="q", uid="q", priority=1, scheduler_name="s")
    ledger.reserve(make_order("o1", preemptor=about, node="n2"))
    members = (Placement(namespace="shop", name="m", uid="m", node="n3"),)
    train = OrderedGroup(
        namespace="shop", name="train", uid="g", priority=1, scheduler_name="s", must_place=1
    )
    ledger.reserve(make_order("o2", kind="group", preemptor=None, node="", group=train, members=members))

    assert {uid: one.node for uid, one in ledger.places(NOW).items()} == {"p": "n1", "q": "n2", "m": "n3"}
    assert set(ledger.places(NOW, asking="q")) == {"p", "m"}
    assert set(ledger.places(NOW, asking="g")) == {"p", "q"}


def pod(name: str) -> msgspec.Raw:
    metadata = {**POD["metadata"], "name": name, "uid": name}
    return msgspec.Raw(msgspec.json.encode({**POD, "metadata": metadata}))


def small(name: str) -> msgspec.Raw:
    """One of which two fit where a pod that may be evicted is."""
    asked = msgspec.json.decode(pod(name))
    asked["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{S}m"
    return msgspec.Raw(msgspec.json.encode(asked))


def two_nodes(most: int | None = None) -> Bench:
    """A planner over two full nodes with a pod each that may be evicted."""
    pods = [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)]
    pods += [make_pod(name, priority=HIGH, size=L) for name in ("p", "q", "r")]
    policy = Policy(limits=PolicyLimits(orders_in_flight=most))
    return Bench(make_snapshot(["n1", "n2"], pods, policy=policy))


def taken(reply: PlanReply) -> tuple[list[str], list[str]]:
    """The victims and the awaited pods of the best candidate."""
    if not reply.candidates:
        return [], []
    best = reply.candidates[0]
    return [one.uid for one in best.removable if one.victim], [one.uid for one in best.awaited]


async def test_a_plan_that_was_asked_for_ahead_pledges_until_its_pod_is_bound() -> None:
    bench = two_nodes()

    ahead = await bench.ask(pod=pod("p"), ahead=True)
    meanwhile = await bench.ask(pod=pod("q"))
    bench.bound.add("p")
    after = await bench.ask(pod=pod("q"))

    assert [taken(one) for one in (ahead, meanwhile, after)] == [(["a"], []), (["b"], []), (["a"], [])]


async def test_the_next_preemptor_gets_other_victims_and_no_more_orders_than_there_may_be() -> None:
    bench, limited = two_nodes(), two_nodes(most=1)

    plans = [await bench.ask(pod=pod(name)) for name in ("p", "q", "r", "p")]

    assert [taken(plan) for plan in plans[:2]] == [(["a"], []), (["b"], [])]
    assert plans[2].refusal is not None, "both rooms are pledged, and equals keep them"
    assert taken(plans[3]) == (["a"], []), "a preemptor's own pledge is no obstacle"
    assert taken(await limited.ask(pod=pod("p"))) == (["a"], [])
    refused = there((await limited.ask(pod=pod("q"))).refusal)
    assert refused.reason == ORDERS_IN_FLIGHT


def test_a_groups_plan_is_used_once_any_member_is_nominated_to_one_of_its_nodes() -> None:
    places = tuple(Placement(namespace="shop", name=uid, uid=uid, node=f"n-{uid}") for uid in ("m1", "m2"))
    nodes = frozenset({"n-m1", "n-m2", "n3"})
    group = Pledge("dec-g", Asker("g", "shop", HIGH), places, ("a",), NOW + LASTS, nodes=nodes)
    pledges = pledged(group, *(pledge("q", "b") for _ in range(MOST_UNUSED)))

    def unused(nominated: dict[str, str]) -> frozenset[str]:
        return pledges.unused(NOW, asking="q", priority=HIGH, nominated=nominated)

    assert unused({}) == unused({"m1": "elsewhere", "other": "n-m1"}) == nodes
    assert unused({"m1": "n-m2"}) == frozenset(), "a plan counts members, and says not which comes where"


async def test_who_asks_again_and_again_counts_on_room_of_plans_whose_pods_are_nominated_alone() -> None:
    pods = [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)]
    pods += [make_pod(name, priority=HIGH, size=S) for name in ("p", "q")]
    bench = Bench(make_snapshot(["n1", "n2"], pods))
    await bench.ask(pod=small("p"))
    nominated = (Placement(namespace="default", name="p", uid="p", node="n1"),)
    there_alone = NodeSelection(names=("n1",))

    first = [await bench.ask(pod=small("q")) for _ in range(MOST_UNUSED)]
    again = await bench.ask(pod=small("q"))
    refused = there((await bench.ask(pod=small("q"), nodes=there_alone)).refusal)
    for _ in range(MOST_UNUSED):
        await bench.ask(pod=small("q"))
    used = await bench.ask(pod=small("q"), nominations=nominated)

    assert [taken(one) for one in (*first, again)] == [([], ["a"])] * MOST_UNUSED + [(["b"], [])]
    assert taken(used) == ([], ["a"])
    assert "plans just made for other pods take room on 1 node" in refused.message
    assert there(refused.retry_at) - datetime.now(UTC) < LASTS


async def test_who_is_refused_for_what_is_only_pledged_is_to_ask_again() -> None:
    pods = [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", HIGH, XL)]
    pods += [make_pod(name, priority=HIGH, size=L) for name in ("p", "q")]
    bench = Bench(make_snapshot(["n1", "n2"], pods))
    before = await bench.ask(pod=pod("q"), nodes=NodeSelection(names=("n2",)))
    await bench.ask(pod=pod("p"))

    refused = await bench.ask(pod=pod("q"))
    elsewhere = await bench.ask(pod=pod("q"), nodes=NodeSelection(names=("n2",)))

    times = [None if one.refusal is None else one.refusal.retry_at for one in (before, refused, elsewhere)]
    assert (times[0], times[2]) == (None, None)
    assert there(times[1]) - datetime.now(UTC) < LASTS


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (NodeSelection(), True),
        (NodeSelection(names=("n1", "n3")), True),
        (NodeSelection(names=("n3",)), False),
        (NodeSelection(all_but=True), True),
        (NodeSelection(names=("n1",), all_but=True), True),
        (NodeSelection(names=("n1", "n2"), all_but=True), False),
    ],
)
def test_a_selection_has_some_of_the_nodes(selection: NodeSelection, expected: bool) -> None:
    assert names_any(selection, {"n1", "n2"}) == expected


def test_what_a_less_important_pod_may_come_to_order_keeps_no_pod_from_it() -> None:
    ledger = Ledger()
    ledger.pledges.pledge("p", pledge("p", "a"))

    assert ledger.in_flight(NOW, asking="q", pledged=HIGH) == {"a": "dec-p"}
    assert ledger.in_flight(NOW, asking="q", pledged=HIGH + 1) == {}
    assert ledger.in_flight(NOW, asking="q") == {}


async def test_a_plan_that_no_commit_follows_pledges_nothing_and_counts_on_no_pledge() -> None:
    bench = two_nodes()

    plans = [await bench.ask(pod=pod(name), mode="observe") for name in ("p", "q")]
    await bench.ask(pod=pod("p"))
    plans.append(await bench.ask(pod=pod("q"), mode="observe"))

    assert [taken(plan) for plan in plans] == [(["a"], [])] * 3


async def test_a_refusal_ends_the_pledge_before() -> None:
    bench = two_nodes()
    await bench.ask(pod=pod("p"))
    await bench.ask(pod=pod("p"), nodes=NodeSelection(names=("gone",)))

    assert len(bench.ledger.pledges) == 0
