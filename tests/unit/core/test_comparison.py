"""How two choices for the same pod are judged."""

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.comparison import RULES, BudgetKey, RemovedPod, Share, compare, judge

WEB: BudgetKey = ("shop", "web")


def gone(uid: str, priority: int = 0, start: int = 0, *budgets: BudgetKey) -> RemovedPod:
    return RemovedPod(uid, priority, start, budgets)


def test_pods_beyond_what_their_budget_allowed_violate_it_the_least_important_first() -> None:
    judgement = judge([gone("a", 0, 2, WEB), gone("b", 0, 1, WEB), gone("c", 5, 9, WEB)], {WEB: 2})

    assert judgement.violating == {"a"}


def test_a_budget_that_is_not_known_allows_nothing() -> None:
    assert judge([gone("a", 0, 0, WEB)], {}).violating == {"a"}


PODS = st.lists(
    st.builds(
        gone, st.uuids().map(str), st.integers(-5, 5), st.integers(0, 9), st.sampled_from([WEB, ("x", "y")])
    ),
    max_size=6,
)


@given(PODS, PODS, st.dictionaries(st.just(WEB), st.integers(0, 3)))
def test_of_two_choices_one_is_better_exactly_where_the_other_is_worse(
    one: list[RemovedPod], other: list[RemovedPod], allowed: dict[BudgetKey, int]
) -> None:
    ours, theirs = judge(one, allowed), judge(other, allowed)

    standing, rule = compare(ours, theirs)

    assert compare(theirs, ours) == ({"better": "worse", "worse": "better", "equal": "equal"}[standing], rule)
    assert (standing == "equal") == (ours.keys() == theirs.keys())
    assert rule in ({""} if standing == "equal" else RULES)
    assert judge(reversed(one), allowed) == ours


def of_group(uid: str, group: str, size: int, spare: int = 0) -> RemovedPod:
    return RemovedPod(uid, 0, 0, share=Share(group, size, spare))


def test_a_group_is_broken_where_some_of_its_pods_go_and_others_stay() -> None:
    assert judge([of_group("a", "train", 3), gone("b")], {}).groups_broken == 1
    assert judge([of_group(uid, "train", 3) for uid in "abc"], {}).groups_broken == 0, "it goes whole"
    assert judge([of_group("a", "train", 3), of_group("b", "serve", 2)], {}).groups_broken == 2


def test_a_gang_is_broken_beyond_what_it_can_spare() -> None:
    pods = [of_group(uid, "gang", 4, 2) for uid in "abcd"]

    assert [judge(pods[:count], {}).groups_broken for count in range(5)] == [0, 0, 0, 1, 0]


def test_pods_that_were_chosen_one_after_another_find_less_left_of_their_group() -> None:
    pods = [of_group("a", "train", 3), of_group("b", "train", 2), of_group("c", "train", 1)]

    assert judge(pods, {}).groups_broken == 0
    assert judge(pods[:2], {}).groups_broken == 1


def test_broken_groups_are_told_and_decide_nothing() -> None:
    assert compare(judge([of_group("a", "train", 3)], {}), judge([gone("a")], {})) == ("equal", "")
