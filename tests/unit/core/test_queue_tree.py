"""Queues: amounts, the tree, who is in which queue, what they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.queue_labels import asked_for
from makeway.core.queues.amounts import AmountError, parse_amount, resource_name, text_of
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.core.queues.usage import Usage
from unit.core.queue_building import World, queue, tree


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "2", 2000),
        ("cpu", "500m", 500),
        ("cpu", "1k", 1_000_000),
        ("memory", "10G", 10**10),
        ("memory", "10 Gi", 10 * 2**30),
        ("memory", "+7", 7),
        ("pods", "0", 0),
        ("nvidia.com/gpu", "8", 8),
        ("memory", str(2**63 - 1), 2**63 - 1),
    ],
)
def test_amounts_are_read_as_yunikorn_reads_them(resource: str, text: str, amount: int) -> None:
    assert parse_amount(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("memory", ""),
        ("memory", "1.5Gi"),
        ("memory", "10K"),
        ("memory", "10m"),
        ("memory", "-1"),
        ("memory", "1_000"),
        ("memory", "inf"),
        ("memory", "1e3"),
        ("memory", str(2**63)),
        ("cpu", "1.5"),
        ("cpu", str(2**62)),
    ],
)
def test_malformed_amounts_are_refused_with_what_to_write(resource: str, text: str) -> None:
    with pytest.raises(AmountError) as refused:
        parse_amount(resource, text)

    assert refused.value.remedy.startswith("write ")


@given(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 2**63 - 1))
def test_an_amount_is_written_so_that_it_can_be_read_again(resource: str, amount: int) -> None:
    assert parse_amount(resource, text_of(resource, amount)) == amount


@pytest.mark.parametrize("name", ["cpus", "mem", "gpu", "example.com/", "Memory"])
def test_a_resource_that_no_pod_can_ask_for_is_refused(name: str) -> None:
    with pytest.raises(AmountError, match="no pod"):
        resource_name(name)


def test_vcore_is_cpu() -> None:
    assert resource_name("vcore") == resource_name("cpu") == "cpu"


@pytest.mark.parametrize(
    "root",
    [queue("other"), queue("root", queue("a"), queue("a")), queue("root", queue("default", queue("below")))],
)
def test_what_is_no_tree_is_refused(root: QueueSpec) -> None:
    with pytest.raises(ValueError, match="queue"):
        QueueTree.of(root)


BUILT = tree(
    queue("team-a", queue("batch"), queue("web"), namespaces=("team-a",)),
    queue("team-b"),
    queue("closed", queue("open", namespaces=()), queue("shut"), namespaces=("ops",)),
    queue("team-c", namespaces=("ops",)),
)


def test_yunikorns_own_label_comes_first_and_an_empty_one_names_nothing() -> None:
    assert asked_for({"queue": "root.b", "yunikorn.apache.org/queue": "root.a"}) == "root.a"
    assert asked_for({"queue": "root.b", "yunikorn.apache.org/queue": ""}) == "root.b"
    assert asked_for({}) == ""


@given(
    st.lists(
        st.tuples(st.sampled_from([q.path for q in BUILT if q.is_leaf]), st.integers(0, 99)), max_size=30
    )
)
def test_a_queue_holds_what_the_pods_below_it_hold(pods: list[tuple[str, int]]) -> None:
    world = World(BUILT)
    for path, size in pods:
        world.run(path, size)

    for one in BUILT:
        below = sum(size for path, size in pods if path == one.path or path.startswith(one.path + "."))
        assert world.usage.of(one.number).get("memory", 0) == below

    for path, size in pods:
        world.usage.remove(BUILT.at(path).number, {"memory": size})
    assert not any(world.usage.of(one.number).get("memory", 0) for one in BUILT)


def test_a_copy_of_the_usage_changes_alone() -> None:
    usage = Usage(BUILT)
    copy = usage.copy()
    copy.add(1, {"memory": 5})

    assert not usage.of(1)
    assert copy.of(0) == {"memory": 5}


def test_a_copy_of_the_usage_has_the_usual_resources_and_what_queues_limit() -> None:
    built = tree(queue("a"), queue("b", guaranteed={"example.com/gpu": 1}))
    usage = Usage(built)
    usage.add(1, {"cpu": 5, "example.com/gpu": 2, "example.com/any": 1})

    copy = usage.copy()
    assert copy.of(1) == {"cpu": 5, "example.com/gpu": 2}
    copy.remove(1, {"cpu": 5, "example.com/gpu": 1, "example.com/any": 1})

    assert copy.of(1) == {"example.com/gpu": 1}
    assert usage.of(1) == {"cpu": 5, "example.com/gpu": 2, "example.com/any": 1}
