"""The snapshot after any sequence of events is the snapshot built from what is left."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from makeway.planner.snapshot.changes import (
    Adopt,
    Change,
    PutBudget,
    PutNode,
    PutPod,
    RemoveBudget,
    RemoveNode,
    RemovePod,
)
from makeway.planner.snapshot.columns import BASE_RESOURCES
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, LOW, S, make_budget, make_node, make_pod, make_snapshot, settle

NODES = ("a", "b", "c")
PODS = tuple(f"p{index}" for index in range(8))
MATCHES = ({"app": "x"}, {"app": "y"}, {"app": "x", "tier": "1"})

events = st.lists(
    st.one_of(
        st.tuples(st.just("put_node"), st.sampled_from(NODES), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("remove_node"), st.sampled_from(NODES)),
        st.tuples(
            st.just("put_pod"),
            st.sampled_from(PODS),
            st.sampled_from(("", *NODES)),
            st.sampled_from([LOW, HIGH]),
            st.integers(0, 3),
            st.sampled_from(({}, *MATCHES)),
            st.sampled_from(["", "x.io/gpu", "y.io/net"]),
        ),
        st.tuples(st.just("remove_pod"), st.sampled_from(PODS)),
        st.tuples(
            st.just("put_budget"),
            st.sampled_from(["u", "v"]),
            st.sampled_from(MATCHES),
            st.integers(0, 2),
            st.sets(st.sampled_from(PODS[:3]), max_size=2),
        ),
        st.tuples(st.just("remove_budget"), st.sampled_from(["u", "v"])),
        st.tuples(st.just("count"), st.sampled_from(["x.io/gpu", "y.io/net"])),
        st.tuples(st.just("work"), st.none()),
    ),
    max_size=60,
)


def apply(snapshot: Snapshot, event: tuple[Any, ...], left: dict[str, dict[str, Any]]) -> None:
    kind, key, *rest = event
    if kind == "put_node":
        node = make_node(key, rest[0], 110, **{"x.io/gpu": rest[1]})
        snapshot.apply(PutNode(node))
        left["nodes"][key] = node
    elif kind == "remove_node":
        snapshot.apply(RemoveNode(key))
        left["nodes"].pop(key, None)
    elif kind == "put_pod":
        node_name, priority, start, labels, extra = rest
        requests = {"cpu": S, **({extra: 1} if extra else {})}
        pod = make_pod(key, node_name, priority, start=start, labels=labels, requests=requests)
        snapshot.apply(PutPod(pod))
        left["pods"][key] = pod
    elif kind == "remove_pod":
        snapshot.apply(RemovePod(key))
        left["pods"].pop(key, None)
    elif kind == "put_budget":
        budget = make_budget(key, *rest)
        snapshot.apply(PutBudget(budget))
        left["budgets"][key] = budget
    elif kind == "work":
        snapshot.pending_updates.apply_chunk()
        snapshot.upkeep.apply_chunk()
    elif kind == "count":
        snapshot.count(key)
    else:
        snapshot.apply(RemoveBudget(("default", key)))
        left["budgets"].pop(key, None)


def slots_of(snapshot: Snapshot, *nodes: str) -> NodeSlots:
    return NodeSlots.of(snapshot.columns, np.array([snapshot.rows[node] for node in nodes]))


def seen(snapshot: Snapshot) -> dict[str, Any]:
    """Everything a plan can read, by name instead of by place."""
    columns = snapshot.columns
    # What no node offers any more has a layer still, which no plan looks at.
    layers = [(name, at) for name, at in columns.resources.items() if columns.allocatable[at].any()]
    found: dict[str, Any] = {}
    for name, row in snapshot.rows.items():
        used = int(columns.count[row])
        assert [pod.uid for pod in snapshot.slots[row]] == [
            pod.uid for pod in sorted(snapshot.slots[row], key=lambda pod: pod.importance)
        ]
        slots = NodeSlots.of(columns, np.array([row]))
        assert slots.depth == used
        found[name] = (
            bool(snapshot.present[row]),
            {key: int(columns.allocatable[at, row]) for key, at in layers if columns.allocatable[at, row]},
            {key: int(columns.requested[at, row]) for key, at in layers if columns.requested[at, row]},
            [
                (
                    pod.uid,
                    int(slots.priority[slot, 0]),
                    int(slots.start[slot, 0]),
                    {
                        key: int(slots.request(at)[slot, 0])
                        for key, at in layers
                        if slots.request(at)[slot, 0]
                    },
                    snapshot.budgets.members(int(slots.budgets[slot, 0])),
                    bool(snapshot.budgets.exhausted(slots.budgets[slot, 0], {})),
                    int(slots.signature[slot, 0]) == snapshot.signature(pod.uid),
                    (int(slots.exempt_below[slot, 0]), int(slots.exempt_until[slot, 0])),
                )
                for slot, pod in enumerate(snapshot.slots[row])
            ],
        )
    found["without node"] = {
        node: sorted(pod.uid for pod in snapshot.without_node.of(node))
        for node in NODES
        if node not in snapshot.rows
    }
    found["names"] = snapshot.node_names()
    found["pending"] = sorted(uid for uid, pod in snapshot.pods.items() if not pod.node)
    return found


@given(events, st.sampled_from([None, 1, 2]), st.booleans())
def test_events_in_any_order_lead_to_the_snapshot_built_from_scratch(
    sequence: list[tuple[Any, ...]], chunk: int | None, serving: bool
) -> None:
    snapshot = Snapshot(chunk=chunk)
    snapshot.updates.serving = serving
    left: dict[str, dict[str, Any]] = {"nodes": {}, "pods": {}, "budgets": {}}
    for event in sequence:
        apply(snapshot, event, left)

    fresh = make_snapshot(left["nodes"].values(), left["pods"].values(), left["budgets"].values())
    for name in ("x.io/gpu", "y.io/net"):
        assert fresh.count(name)
        snapshot.count(name)
    settle(snapshot)

    assert seen(snapshot) == seen(fresh)


def covered(allowed: int) -> Snapshot:
    """Three pods on a node, under one budget."""
    pods = [make_pod(name, "a", labels={"app": "x"}) for name in ("p1", "p2", "p3")]
    return make_snapshot(["a"], pods, [make_budget("u", {"app": "x"}, allowed)], chunk=1)


def test_a_pod_that_the_api_server_counts_as_disrupted_is_looked_at_alone() -> None:
    snapshot = covered(1)

    snapshot.apply(PutBudget(make_budget("u", {"app": "x"}, 0, ["p2", "elsewhere"])))

    assert not snapshot.pending_updates.pending
    assert [snapshot.budgets.members(snapshot.budget_set(uid)) for uid in ("p1", "p2", "p3")] == [
        (("default", "u"),),
        (),
        (("default", "u"),),
    ]


def test_an_unchanged_pod_does_not_move_the_revision() -> None:
    snapshot = make_snapshot(["a"], [make_pod("p", "a")])
    before = snapshot.revision

    snapshot.apply(PutPod(make_pod("p", "a")))
    snapshot.apply(PutNode(make_node("a")))

    assert snapshot.revision == before


def test_a_pod_recreated_under_its_name_replaces_the_one_whose_delete_was_missed() -> None:
    snapshot = make_snapshot(["a"], [make_pod("old", "a", name="web-0")])

    snapshot.apply(PutPod(make_pod("new", "a", name="web-0")))

    assert [pod.uid for pod in snapshot.slots[snapshot.rows["a"]]] == ["new"]


def test_what_no_preemptor_has_asked_for_takes_no_room() -> None:
    strange = [make_pod(f"p{number}", "a", requests={"cpu": S, f"x.io/{number}": 1}) for number in range(100)]

    snapshot = make_snapshot([make_node("a", **{f"x.io/{number}": 1 for number in range(1000)})], strange)

    assert set(snapshot.columns.resources) == set(BASE_RESOURCES)
    assert int(snapshot.columns.requested[0, snapshot.rows["a"]]) == 100 * S


def test_pods_are_counted_for_a_resource_that_a_preemptor_asks_for_or_a_queue_limits_later() -> None:
    snapshot = make_snapshot(["a"], [make_pod("p", "a", requests={"cpu": S, "x.io/gpu": 2, "y.io/net": 3})])

    snapshot.apply(PutNode(make_node("b", **{"x.io/gpu": 8})))
    assert snapshot.count("x.io/gpu")
    snapshot.apply(Adopt(tree(queue("q", guaranteed={"y.io/net": 1})), "queues-1"))

    columns, row = snapshot.columns, snapshot.rows["a"]
    for name, amount in (("x.io/gpu", 2), ("y.io/net", 3)):
        layer = columns.resources[name]
        requests = slots_of(snapshot, "a").request(layer)
        assert (int(columns.requested[layer, row]), int(requests[0, 0])) == (amount, amount)
    snapshot.apply(RemovePod("p"))
    assert not columns.requested[:, row].any()


def test_the_snapshot_grows_past_its_first_size() -> None:
    nodes = [f"n{index}" for index in range(40)]
    pods = [make_pod(f"p{index}", "n7", start=index) for index in range(40)]

    snapshot = make_snapshot(nodes, pods)

    assert snapshot.node_count == 40
    assert int(snapshot.columns.count[snapshot.rows["n7"]]) == 40


def test_resources_that_come_one_by_one_are_all_counted_and_few_of_them_move_what_is_there() -> None:
    names = [f"x.io/{number}" for number in range(9)]
    snapshot = make_snapshot(["a"])
    for slot in range(3):
        requests = {name: slot + number for number, name in enumerate(names)}
        snapshot.apply(PutPod(make_pod(f"p{slot}", "a", requests=requests)))
    columns, row, moved = snapshot.columns, snapshot.rows["a"], 0
    for number in range(len(names)):
        before = columns.cells
        snapshot.apply(PutNode(make_node("a", **dict.fromkeys(names[: number + 1], 100))))
        assert snapshot.count(names[number])
        moved += not np.shares_memory(before, columns.cells)

    snapshot.apply(RemovePod("p0"))

    layers = [columns.resources[name] for name in names]
    assert slots_of(snapshot, "a").requests(np.array(layers))[:, :, 0].T.tolist() == [
        [slot + number for number in range(len(names))] for slot in (1, 2)
    ]
    assert columns.requested[layers, row].tolist() == [3 + 2 * number for number in range(len(names))]
    assert moved == 1


def test_who_applies_the_changes_that_were_told_of_has_the_same_snapshot() -> None:
    told: list[Change] = []
    snapshot = Snapshot(applied=told.append)
    for change in (
        PutNode(make_node("n1")),
        PutPod(make_pod("a", "n1")),
        PutPod(make_pod("a", "n1")),
        RemovePod("b"),
        RemoveNode("n2"),
        PutPod(make_pod("c", "n1")),
    ):
        snapshot.apply(change)
    snapshot.retain_pods({"a"})

    again = Snapshot()
    for one in told:
        again.apply(one)

    assert [type(change) for change in told] == [PutNode, PutPod, PutPod, RemovePod]
    assert (again.revision, again.pods, again.nodes) == (snapshot.revision, snapshot.pods, snapshot.nodes)


def test_one_full_node_takes_cells_for_its_own_pods_alone_and_gives_them_back() -> None:
    nodes = [f"n{number}" for number in range(100)]
    pods = [make_pod(f"p{number}", f"n{number % 100}", start=number) for number in range(2_000)]
    even = make_snapshot(nodes, [*pods, *(make_pod(f"q{n}", f"n{n % 100}", start=n) for n in range(1_000))])
    snapshot = make_snapshot(nodes, pods)
    before = snapshot.columns.size
    for number in range(1_000):
        snapshot.apply(PutPod(make_pod(f"q{number}", "n7", start=number)))

    assert snapshot.columns.size <= 1.3 * even.columns.size

    for number in range(1_000):
        snapshot.apply(RemovePod(f"q{number}"))
    assert snapshot.columns.size <= 2 * before
    for number in range(1_900):
        snapshot.apply(RemovePod(f"p{number}"))

    assert snapshot.columns.size < before / 2
    assert [pod.uid for pod in snapshot.slots[snapshot.rows["n7"]]] == ["p1907"]
    starts = slots_of(snapshot, "n7").start[:, 0].tolist()
    assert starts == [pod.start_micros for pod in snapshot.slots[snapshot.rows["n7"]]]
