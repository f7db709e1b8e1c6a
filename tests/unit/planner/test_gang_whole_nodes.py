"""Plans for a gang whose members take whole nodes."""

from unit.planner.building import LOW, MID, make_budget, make_node, make_pod, make_snapshot
from unit.planner.test_gang_plan import gang, nodes, planned, victims


def test_the_nodes_on_which_least_goes_are_taken() -> None:
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(30)),
        (
            make_pod(f"p{number}-{slot}", f"n{number}", LOW, 1_000 // parts)
            for number in range(30)
            for parts in (1 if number % 3 == 0 else 10,)
            for slot in range(parts)
        ),
    )

    plan = planned(snapshot, gang(snapshot, 950, 10))

    assert victims(plan) == {f"p{number}-0" for number in range(0, 30, 3)}


def test_of_nodes_alike_those_whose_pods_started_last_are_taken() -> None:
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(20)),
        (make_pod(f"p{number}", f"n{number}", LOW, 1_000, start=number * 7 % 20) for number in range(20)),
    )

    plan = planned(snapshot, gang(snapshot, 950, 3))

    assert {int(node[1:]) * 7 % 20 for node in nodes(plan)} == {17, 18, 19}


def test_many_pods_of_low_priority_go_before_one_of_a_higher_one() -> None:
    """Many pods of low priority here, one of higher priority there."""
    snapshot = make_snapshot(
        (make_node("a", 1_000), make_node("b", 1_000)),
        (make_pod("a0", "a", MID, 1_000), *(make_pod(f"b{slot}", "b", LOW, 100) for slot in range(10))),
    )

    plan = planned(snapshot, gang(snapshot, 950, 1))

    assert set(nodes(plan)) == {"b"}


def test_nodes_are_taken_on_which_no_budget_is_violated() -> None:
    labels = {"app": "kept"}
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(3)),
        (
            make_pod(f"p{number}", f"n{number}", LOW, 1_000, labels=labels if number == 0 else {})
            for number in range(3)
        ),
        (make_budget("kept", labels, allowed=0),),
    )

    plan = planned(snapshot, gang(snapshot, 950, 2))

    assert set(nodes(plan)) == {"n1", "n2"}
