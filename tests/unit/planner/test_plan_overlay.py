"""What a request adds to the snapshot: nominations, assumed pods, victims already on their way out."""

from makeway.planner.plan.result import PlanCandidate
from makeway.planner.snapshot.changes import PutBudget, PutPod, RemovePod
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    XL,
    L,
    M,
    S,
    ask,
    choices,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
    planned,
    refused,
    victims,
)

FOO = {"app": "foo"}


def awaited(candidate: PlanCandidate) -> dict[str, str]:
    return {one.pod.uid: one.order_id for one in candidate.awaited}


def test_the_preemptors_own_nomination_does_not_stand_in_its_way() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL), make_pod("P", priority=HIGH, size=XL)])
    question = ask(make_pod("P", priority=HIGH, size=XL), nominations=[("P", "n1")])

    assert choices(planned(snapshot, question)) == [("n1", {"a"})]


def test_a_nominated_pod_that_is_bound_meanwhile_counts_once() -> None:
    pods = [make_pod("a", "n1", LOW, L), make_pod("Q", "n1", HIGH, S)]
    question = ask(make_pod("P", priority=HIGH, size=M), nominations=[("Q", "n1")])

    assert choices(planned(make_snapshot(["n1"], pods), question)) == [("n1", {"a"})]


def test_pods_of_the_request_may_ask_for_what_no_pod_or_node_has_asked_for_before() -> None:
    asked = {"cpu": S, "memory": S, "example.com/fpga": 1}
    pods = [make_pod("a", "n1", LOW, L), make_pod("R", priority=LOW, requests=asked)]
    pods += [make_pod("Q", priority=HIGH, requests={**asked, "example.com/nic": 1})]
    question = ask(make_pod("P", priority=HIGH, size=L), assumed=[("R", "n1")], nominations=[("Q", "n1")])

    assert choices(planned(make_snapshot(["n1"], pods), question)) == [("n1", {"a"})]


def test_assumed_pods_may_make_a_node_deeper_than_any_that_the_snapshot_has() -> None:
    pods = [make_pod(f"a{n}", "n1", LOW, S) for n in range(8)] + [make_pod("b", "n2", LOW, 8 * S)]
    snapshot = make_snapshot([make_node(name, 8 * S) for name in ("n1", "n2")], pods)
    snapshot.apply(PutPod(make_pod("R", priority=LOW, size=S)))
    question = ask(make_pod("P", priority=HIGH, size=8 * S), assumed=[("R", "n1")])
    assert int(snapshot.columns.count.max()) == 8

    assert choices(planned(snapshot, question))[0] == ("n2", {"b"})


def test_an_assumed_pod_the_snapshot_has_as_bound_counts_once() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, M), make_pod("R", "n1", HIGH, S)])
    question = ask(make_pod("P", priority=HIGH, size=L), assumed=[("R", "n1")])

    assert choices(planned(snapshot, question)) == [("n1", {"a"})]


def test_pods_of_the_request_that_the_snapshot_does_not_know_are_left_to_the_scheduler() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])
    question = ask(
        make_pod("P", priority=HIGH, size=XL),
        nominations=[("ghost", "n1"), ("ghost", "nowhere")],
        assumed=[("ghost2", "n1")],
        in_flight={"ghost3": "ord-1"},
    )

    assert choices(planned(snapshot, question)) == [("n1", {"a"})]


def test_of_two_equal_nodes_the_one_that_evicts_no_new_pod_wins() -> None:
    pods = [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)]
    question = ask(make_pod("P", priority=HIGH, size=XL), in_flight={"b": "ord-1"})

    result = planned(make_snapshot(["n1", "n2"], pods), question)

    assert choices(result) == [("n2", set()), ("n1", {"a"})]
    assert result.candidates[0].decided_by == "fewest-new-victims"


def test_a_pod_that_left_uses_up_its_budget_until_the_budgets_object_changes() -> None:
    pods = [make_pod("a", "n1", LOW, XL, labels=FOO), make_pod("b", "n2", LOW, XL, labels=FOO)]
    snapshot = make_snapshot(["n1", "n2"], pods, [make_budget("foo", FOO, 1)])
    question = ask(make_pod("P", priority=HIGH, size=XL), nodes=["n2"], leaving=["a"])

    snapshot.apply(RemovePod("a"))
    assert planned(snapshot, question).candidates[0].pdb_violations == 1

    snapshot.apply(PutBudget(make_budget("foo", FOO, 1)))
    assert planned(snapshot, question).candidates[0].pdb_violations == 0


def test_removable_pods_come_in_the_order_of_reprieve() -> None:
    pods = [
        make_pod("plain-mid", "n1", MID, S),
        make_pod("covered-low", "n1", LOW, S, labels=FOO),
        make_pod("plain-low", "n1", LOW, S, start=1),
        make_pod("covered-mid", "n1", MID, S, labels=FOO),
    ]
    snapshot = make_snapshot([make_node("n1", 400)], pods, [make_budget("foo", FOO, 0)])

    (candidate,) = planned(snapshot, ask(make_pod("P", priority=HIGH, size=S))).candidates

    assert [one.pod.uid for one in candidate.removable] == [
        "covered-mid",
        "covered-low",
        "plain-mid",
        "plain-low",
    ]
    assert victims(candidate) == {"plain-low"}
    assert {one.rule for one in candidate.removable} == {"lower-priority"}


def test_a_refusal_says_what_is_missing_where_in_numbers() -> None:
    pods = [
        make_pod("a", "n1", LOW, requests={"cpu": 400}),
        make_pod("b", "n1", HIGH, requests={"cpu": 450}),
        make_pod("c", "n3", HIGH, S),
    ]
    snapshot = make_snapshot([make_node("n1", 900), make_node("n2", 300), make_node("n3")], pods)
    snapshot.apply(PutPod(make_pod("d", "n2", LOW, S)))

    refusal = refused(snapshot, ask(make_pod("P", priority=HIGH, requests={"cpu": 500, "memory": 10})))

    assert refusal.reason == "NotEnoughRoom"
    assert refusal.node_reasons == {
        "Insufficient cpu": 1,
        "No pods of lower priority": 1,
        "Node too small: cpu": 1,
    }
    assert "n1 lacks cpu 50m without its 1 lower" in refusal.message
    assert refusal.scope.nodes_potential == 3


def test_a_native_resource_that_no_node_offers_is_refused_by_name() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])
    preemptor = make_pod("P", priority=HIGH, requests={"cpu": 1, "hugepages-2Mi": 2**21})

    refusal = refused(snapshot, ask(preemptor))

    assert refusal.reason == "ResourceNotOffered"
    assert "hugepages-2Mi 2Mi" in refusal.message


def test_an_extended_resource_that_no_node_offers_is_left_to_the_scheduler() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])
    preemptor = make_pod("P", priority=HIGH, requests={"cpu": 100, "x.io/claimed": 1})

    assert choices(planned(snapshot, ask(preemptor))) == [("n1", {"a"})]


def test_named_nodes_that_are_not_known_are_counted() -> None:
    refusal = refused(make_snapshot(["n1"]), ask(make_pod("P", priority=HIGH), nodes=["n8", "n9"]))

    assert refusal.reason == "NoPotentialNodes"
    assert refusal.node_reasons == {"Not known to the planner": 2}


def test_a_reply_names_no_more_pods_than_a_message_can_carry() -> None:
    nodes = [make_node(f"n{index:03}") for index in range(60)]
    pods = [
        make_pod(f"p{index:03}-{slot:03}", f"n{index:03}", LOW, 1)
        for index in range(60)
        for slot in range(100)
    ]

    result = planned(make_snapshot(nodes, pods), ask(make_pod("P", priority=HIGH, size=S)))

    assert result.unmodelled_total == 60
    assert len(result.unmodelled) == 40


def test_unmodelled_nodes_are_counted_in_full_and_listed_up_to_the_schedulers_own_limit() -> None:
    nodes = [make_node(f"n{index:03}") for index in range(150)]
    pods = [make_pod(f"p{index:03}", f"n{index:03}", LOW, S) for index in range(150)]

    result = planned(make_snapshot(nodes, pods), ask(make_pod("P", priority=HIGH, size=S)))

    assert result.unmodelled_total == 150
    assert [candidate.node for candidate in result.unmodelled] == [f"n{index:03}" for index in range(100)]
