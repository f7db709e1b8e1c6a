"""Which pods go together: both forms of the PodGroup, trees of groups, and what is wrong with them."""

import msgspec
import pytest

from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, PodGroup, group_record, membership

decode = msgspec.json.Decoder(PodGroup).decode


def key(name: str, *, composite: bool = False) -> GroupKey:
    return GroupKey("a", name, composite)


def group(name: str, *, parent: str = "", whole: bool = False, priority: int = 0) -> GroupRecord:
    return GroupRecord(
        key=key(name, composite=name.startswith("c")), uid=name, parent=parent, whole=whole, priority=priority
    )


@pytest.mark.parametrize(
    ("mode", "whole"),
    [
        ("", False),
        (',"disruptionMode":null', False),
        (',"disruptionMode":"Pod"', False),
        (',"disruptionMode":"PodGroup"', True),
        (',"disruptionMode":{"single":{}}', False),
        (',"disruptionMode":{"all":{}}', True),
        (',"disruptionMode":{"all":null,"single":{}}', False),
        (',"disruptionMode":"SomethingNewer"', True),
        (',"disruptionMode":{"somethingNewer":{}}', True),
    ],
)
def test_both_forms_of_the_disruption_mode_are_read(mode: str, whole: bool) -> None:
    read = decode(
        '{"metadata":{"namespace":"a","name":"g","uid":"u"},'
        f'"spec":{{"schedulingPolicy":{{"gang":{{"minCount":3}}}},"priority":7{mode}}}}}'
    )

    assert group_record(read) == GroupRecord(
        key=GroupKey("a", "g"), uid="u", whole=whole, priority=7, min_count=3
    )


def test_the_unit_is_the_highest_ancestor_that_is_disrupted_whole() -> None:
    groups = [
        group("g", parent="c1", whole=True, priority=1),
        group("c1", parent="c2", whole=True, priority=2),
        group("c2", parent="c3", priority=3),
        group("c3", priority=4),
    ]

    found = membership(key("g"), {one.key: one for one in groups}.get)

    assert (found.unit, found.priority, found.unknown) == (key("c1", composite=True), 4, "")


def test_a_member_of_mode_single_goes_alone_at_the_priority_of_its_root() -> None:
    found = membership(key("g"), {key("g"): group("g", priority=9)}.get)

    assert (found.unit, found.priority, found.unknown) == (None, 9, "")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([], "PodGroup a/g does not exist"),
        ([group("g", parent="c1")], "CompositePodGroup a/c1, a parent of PodGroup a/g, does not exist"),
        ([group("g", parent="c1"), group("c1", parent="c1")], "the parents of PodGroup a/g form a cycle"),
        (
            [group("g", parent="c1"), *(group(f"c{n}", parent=f"c{n + 1}") for n in range(1, 9))],
            "PodGroup a/g has more than 3 levels of parents",
        ),
    ],
)
def test_what_goes_with_a_pod_is_unknown_in_a_broken_tree(groups: list[GroupRecord], words: str) -> None:
    assert membership(key("g"), {one.key: one for one in groups}.get).unknown == words


def test_a_group_of_another_namespace_is_not_a_pods_group() -> None:
    other = GroupRecord(key=GroupKey("b", "g"), uid="u", whole=True)

    assert "does not exist" in membership(key("g"), {other.key: other}.get).unknown
