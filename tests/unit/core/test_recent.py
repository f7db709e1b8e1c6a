"""What is remembered of the latest so many, or in so many bytes."""

import copy

from makeway.core.recent import BoundedBytes, Recent


def two() -> Recent[str, int]:
    """Of a and b, which is as much as is kept."""
    recent = Recent[str, int](2)
    recent["a"], recent["b"] = 1, 2
    return recent


def test_the_eldest_is_forgotten_and_what_is_set_again_is_the_youngest() -> None:
    recent = two()

    recent["a"] = 3
    recent["c"] = 4

    assert list(recent.items()) == [("a", 3), ("c", 4)]


def test_what_was_taken_away_leaves_room() -> None:
    recent = two()

    del recent["a"]
    recent["c"] = 3

    assert list(recent) == ["b", "c"]


def test_a_copy_forgets_by_itself() -> None:
    recent = Recent[str, list[int]](2)
    recent["a"], recent["b"] = [1], [2]

    copied = copy.deepcopy(recent)
    copied["c"] = [3]

    assert list(copied) == ["b", "c"]
    assert copied["b"] is not recent["b"]
    assert list(recent) == ["a", "b"]


def test_entries_that_take_too_many_bytes_together_are_forgotten_for_the_latest() -> None:
    bounded = BoundedBytes[str, int](10)

    assert bounded.remember("a", 1, 6) == 1
    bounded.remember("b", 2, 4)
    assert bounded == {"a": 1, "b": 2}

    bounded.remember("c", 3, 1)
    assert bounded == {"c": 3}


def test_a_key_that_is_set_again_takes_its_bytes_once() -> None:
    bounded = BoundedBytes[str, int](10)

    for value in range(5):
        bounded.remember("a", value, 6)
    bounded.remember("b", 5, 4)

    assert bounded == {"a": 4, "b": 5}
