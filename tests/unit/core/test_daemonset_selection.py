"""Whom the simple preemptor chooses among the pods of one node."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.daemonset.occupant import Occupant, PodClass
from makeway.core.daemonset.selection import NoSelection
from makeway.core.daemonset.strategies import Multiple, NoneCovers, Single, TooLarge, TooLittle, TooMany
from makeway.core.policy.document import Strategy
from unit.core.daemonset_building import OPTED_OUT, OWNER, a_pod, chosen, mixed_node, victims


def test_the_single_pod_of_the_right_size_and_lowest_priority_goes() -> None:
    assert chosen(mixed_node(), need=5) == Single(a_pod(5, 5, priority=5), Fraction(0))


def test_no_pod_goes_for_a_resource_that_no_pod_holds() -> None:
    found = chosen(mixed_node(), need={"cpu": 5, "example.com/disk": 1})

    assert found == NoSelection((("single", NoneCovers()), ("multiple", TooLittle({"example.com/disk": 1}))))


def test_single_prefers_one_that_opted_out_to_one_that_is_far_too_large() -> None:
    node = [a_pod("large", 30), a_pod("opted-out", 10, pod_class=OPTED_OUT)]

    for strategy in ("single", "single,multiple"):
        assert victims(chosen(node, need=10, strategy=strategy)) == ["opted-out"]


def test_single_tells_how_far_the_nearest_pod_was_too_large() -> None:
    found = chosen([a_pod("large", 30), a_pod("larger", 40)], need=10, strategy="single")

    assert found == NoSelection((("single", TooLarge(Fraction(2))),))


def test_a_deviation_is_that_of_the_resource_where_it_is_largest() -> None:
    node = [a_pod("wide", {"cpu": 10, "memory": 19}), a_pod("narrow", {"cpu": 12, "memory": 10})]

    found = chosen(node, need={"cpu": 10, "memory": 10}, deviation=90)

    assert found == Single(node[1], Fraction(1, 5))


def test_a_deviation_of_exactly_the_limit_is_allowed() -> None:
    assert victims(chosen([a_pod("a", 11)], need=10, strategy="single")) == ["a"]
    assert victims(chosen([a_pod("a", 12)], need=10, strategy="single")) == []


def test_of_equally_near_pods_lower_priority_then_younger_then_smaller_then_uid_decides() -> None:
    def first(*pods: Occupant) -> list[str]:
        need = {"cpu": 10, "memory": 10}
        return victims(chosen(pods, need=need, deviation=100, strategy="single"))

    even = {"cpu": 15, "memory": 15}
    assert first(a_pod("a", even, priority=5), a_pod("b", even, priority=4, created=-9)) == ["b"]
    assert first(a_pod("a", even), a_pod("b", even, created=1)) == ["b"]
    assert first(a_pod("a", even), a_pod("b", {"cpu": 15, "memory": 12})) == ["b"]
    assert first(a_pod("b", even), a_pod("a", even)) == ["a"]


def test_owners_go_after_all_regular_pods_and_before_those_that_opted_out() -> None:
    node = [
        a_pod("opted-out", 10, pod_class=OPTED_OUT, priority=0),
        a_pod("owner", 10, pod_class=OWNER, priority=1),
        a_pod("regular", 10, priority=9),
    ]

    assert victims(chosen(node, need=20, strategy="multiple")) == ["regular", "owner"]
    assert victims(chosen(node, need=10, strategy="single")) == ["regular"]


def test_multiple_takes_lower_priority_then_larger_then_younger_then_uid() -> None:
    node = [
        a_pod("e", 5),
        a_pod("d", 5),
        a_pod("young", 5, created=1),
        a_pod("large", 6),
        a_pod("low", 1, priority=1),
    ]

    assert victims(chosen(node, need=22, strategy="multiple")) == ["low", "large", "young", "d", "e"]


def test_the_limit_counts_the_pods_that_go_and_not_those_reprieved() -> None:
    node = [a_pod("low", 3, priority=1), a_pod("mid", 4, priority=2), a_pod("high", 9, priority=3)]

    assert victims(chosen(node, need=12, most=2, strategy="multiple")) == ["low", "high"]
    assert chosen(node, need=16, most=2, strategy="multiple") == NoSelection((("multiple", TooMany(3)),))


def test_pods_that_hold_nothing_of_what_is_missing_are_passed_over() -> None:
    node = [a_pod("other", {"memory": 50}, priority=0), a_pod("right", {"cpu": 5})]

    assert chosen(node, need=5, most=1, strategy="multiple") == Multiple((node[1],))


def test_the_strategies_are_tried_in_their_order() -> None:
    node = [a_pod("low", 4, priority=1), a_pod("also low", 4, priority=1), a_pod("fit", 8, priority=2)]

    assert victims(chosen(node, need=8, strategy="multiple,single")) == ["also low", "low"]
    assert victims(chosen(node, need=8, strategy="single,multiple")) == ["fit"]
    assert victims(chosen(node, need=8, strategy="multiple,single", most=1)) == ["fit"]
    assert victims(chosen(node, need=8, strategy="multiple", most=1)) == []


def test_a_hard_budget_keeps_its_pods() -> None:
    budget = ("shop", "quorum")
    node = [
        a_pod("a", 5, priority=1, budgets=[budget]),
        a_pod("b", 5, priority=1, budgets=[budget]),
        a_pod("c", 5, priority=2),
    ]

    assert victims(chosen(node, need=5, allowance={budget: 0})) == ["c"]
    assert victims(chosen(node, need=10, allowance={budget: 1})) == ["a", "c"]
    assert victims(chosen(node, need=10)) == ["a", "b"]
    assert victims(chosen(node, need=15, allowance={budget: 1})) == []


# ---------------------------------------------------------------------------------------- what always holds

RESOURCES = ("cpu", "memory")
amounts = st.fixed_dictionaries({name: st.integers(0, 20) for name in RESOURCES})
pods = st.lists(
    st.builds(
        Occupant,
        uid=st.uuids(version=4).map(str),
        pod_class=st.sampled_from(PodClass),
        priority=st.integers(0, 3),
        created_micros=st.integers(0, 3),
        amounts=amounts,
        budgets=st.sampled_from([(), (("shop", "one"),), (("shop", "one"), ("shop", "two"))]),
    ),
    max_size=12,
    unique_by=lambda pod: pod.uid,
)
needs = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 40), min_size=1)
settings = st.tuples(
    st.sampled_from(["single,multiple", "multiple,single", "single", "multiple"]), st.integers(1, 12)
)
allowances = st.sampled_from([{}, {("shop", "one"): 1}, {("shop", "one"): 2, ("shop", "two"): 0}])


@given(pods=pods, need=needs, settings=settings, allowance=allowances, data=st.data())
def test_a_choice_covers_the_need_and_not_one_victim_could_be_given_back(
    pods: list[Occupant],
    need: dict[str, int],
    settings: tuple[Strategy, int],
    allowance: dict[tuple[str, str], int],
    data: st.DataObject,
) -> None:
    strategy, most = settings

    def choose(pods: list[Occupant]) -> Single | Multiple | NoSelection:
        return chosen(pods, need, strategy=strategy, most=most, allowance=allowance, deviation=100)

    found = choose(pods)

    assert choose(data.draw(st.permutations(pods))) == found
    going = [pod for pod in pods if pod.uid in victims(found)]
    assert len(going) == len(victims(found)) <= most
    for budget, allowed in allowance.items():
        assert sum(budget in pod.budgets for pod in going) <= allowed
    for left_out in [None, *going] if going else []:
        held = {name: sum(pod.amounts[name] for pod in going if pod is not left_out) for name in need}
        assert all(held[name] >= need[name] for name in need) == (left_out is None)


@given(pods=pods, need=needs)
def test_some_pod_goes_wherever_it_is_enough_that_all_go(pods: list[Occupant], need: dict[str, int]) -> None:
    enough = all(sum(pod.amounts[name] for pod in pods) >= amount for name, amount in need.items())

    assert bool(victims(chosen(pods, need=need, most=len(pods) + 1))) == enough
