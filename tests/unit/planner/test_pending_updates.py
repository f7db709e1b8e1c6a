"""Changes that concern all pods, made in chunks, lead where they would lead at once."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.facts import PodFacts
from makeway.planner.service.pending_updates import apply_forever
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    PutNode,
    PutPod,
    PutPriorityClass,
    RemoveNamespace,
    RemovePod,
    RemovePriorityClass,
)
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.pending_updates import PendingUpdates
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import (
    HIGH,
    LOW,
    NEG,
    XL,
    S,
    ask,
    choices,
    make_class,
    make_node,
    make_pod,
    make_snapshot,
    planned,
    settle,
)

TREES = (
    tree(queue("team", guaranteed={"cpu": S}), queue("default")),
    tree(queue("team", queue("x"), queue("y")), queue("default", maximum={"y.io/net": 5})),
    None,
)
POLICIES = (Policy(), Policy(protection=Protection(namespaces=("team",), minimum_priority=LOW)))

CHANGES: st.SearchStrategy[Callable[[Snapshot], object]] = st.one_of(
    st.builds(
        lambda pod: lambda s: s.apply(PutPod(pod)),
        st.builds(
            make_pod,
            uid=st.sampled_from("abcdef"),
            node=st.sampled_from(["", "n1", "n2"]),
            priority=st.sampled_from([NEG, LOW]),
            namespace=st.sampled_from(["team", "other"]),
            requests=st.sampled_from([{"cpu": S}, {"cpu": S, "x.io/gpu": 1}, {"cpu": S, "y.io/net": 2}]),
            terminating=st.booleans(),
            facts=st.builds(
                PodFacts,
                priority_class=st.sampled_from(["", "batch", "batch"]),
                application=st.sampled_from(["", "app"]),
                created_micros=st.integers(0, 3),
                queue=st.sampled_from(["", "root.team.x"]),
            ),
        ),
    ),
    st.builds(lambda uid: lambda s: s.apply(RemovePod(uid)), st.sampled_from("abcdef")),
    st.builds(
        lambda gpus: lambda s: s.apply(PutNode(make_node("n1", **{"x.io/gpu": gpus}))), st.integers(0, 2)
    ),
    st.builds(lambda policy: lambda s: s.apply(Enforce(policy, "r")), st.sampled_from(POLICIES)),
    st.builds(lambda built: lambda s: s.apply(Adopt(built, "r")), st.sampled_from(TREES)),
    st.builds(
        lambda minimum: lambda s: s.apply(PutPriorityClass(make_class("batch", minimum, 60))),
        st.sampled_from([None, 5, 50]),
    ),
    st.just(lambda s: s.apply(RemovePriorityClass("batch"))),
    st.just(lambda s: s.pending_updates.apply_chunk()),
)


def state(snapshot: Snapshot) -> dict[str, Any]:
    """All that a plan may read of policy, classes, queues and resources."""
    columns, book = snapshot.columns, snapshot.queues
    resources = sorted(columns.resources)
    layers = [columns.resources[name] for name in resources]
    found: dict[str, Any] = {
        "revision": snapshot.revision,
        "resources": resources,
        "misplaced": dict(book.misplaced),
        "rows": {
            name: (
                [pod.uid for pod in snapshot.slots[row]],
                columns.requested[layers, row].tolist(),
                slots.requests(np.array(layers))[:, :, 0].tolist(),
                slots.exempt_below[:, 0].tolist(),
                slots.exempt_until[:, 0].tolist(),
                int(columns.exempt_count[row]),
            )
            for name, row in snapshot.rows.items()
            for slots in [NodeSlots.of(columns, np.array([row]))]
        },
    }
    if book.tree is not None and book.held is not None:
        staying, members = book.without(())
        found["queues"] = {
            one.path: (
                dict(book.held.of(one.number)),
                dict(staying.of(one.number)),
                sorted(members(one.number), key=lambda member: member.uid),
            )
            for one in book.tree
        }
    return found


@given(st.lists(CHANGES, max_size=40), st.integers(1, 3))
def test_in_chunks_or_at_once_all_is_the_same_once_it_is_applied(
    changes: list[Callable[[Snapshot], object]], chunk: int
) -> None:
    at_once, in_chunks = Snapshot(), Snapshot(chunk=chunk)
    for change in changes:
        change(at_once)
        change(in_chunks)
        assert not at_once.pending_updates.pending

    settle(in_chunks)

    assert state(in_chunks) == state(at_once)


@given(st.lists(CHANGES, max_size=20), st.sampled_from(POLICIES))
def test_nodes_whose_exemptions_differ_count_as_changed(
    changes: list[Callable[[Snapshot], object]], policy: Policy
) -> None:
    snapshot = Snapshot(chunk=1)
    for change in changes:
        change(snapshot)
    settle(snapshot)
    # A resource that was counted just now marks its nodes for the next revision.
    snapshot.apply(RemoveNamespace("unknown"))
    seen, before = snapshot.revision, state(snapshot)["rows"]

    snapshot.apply(Enforce(policy, "next"))
    settle(snapshot)

    after = state(snapshot)["rows"]
    changed = {name for name, row in snapshot.rows.items() if snapshot.changed[row] > seen}
    assert changed == {name for name in after if after[name] != before[name]}


def test_what_a_plan_saw_while_a_policy_was_applied_is_looked_at_again() -> None:
    pods = [make_pod(uid, node, LOW, XL) for uid, node in (("x", "a"), ("y", "b"))]
    keeping = Policy(protection=Protection(minimum_priority=LOW))
    snapshot = make_snapshot(["a", "b"], pods, policy=keeping, chunk=1)
    urgent = ask(make_pod("P", "", HIGH, XL))

    snapshot.apply(Enforce(Policy(), "next"))
    snapshot.pending_updates.apply_chunk()
    assert choices(planned(snapshot, urgent)) == [("a", {"x"})]
    settle(snapshot)

    assert sorted(choices(planned(snapshot, urgent))) == [("a", {"x"}), ("b", {"y"})]


def test_a_class_that_says_the_same_again_ends_no_visit_to_its_pods() -> None:
    snapshot = make_snapshot(["n1"], chunk=1)
    for uid in "ab":
        snapshot.apply(PutPod(make_pod(uid, "n1", facts=PodFacts(priority_class="batch"))))
    snapshot.apply(PutPriorityClass(make_class("batch", 50, 60)))

    snapshot.apply(PutPriorityClass(make_class("batch", 50, 60)))

    settle(snapshot)
    row = snapshot.rows["n1"]
    assert NodeSlots.of(snapshot.columns, np.array([row])).exempt_below[:, 0].tolist() == [50, 50]


def test_what_is_still_being_applied_is_named() -> None:
    snapshot = Snapshot(chunk=2)
    for uid in "abc":
        snapshot.apply(PutPod(make_pod(uid, "n1")))

    snapshot.apply(Adopt(TREES[0], "r"))

    assert snapshot.pending_updates.pending == "the queues are being filled"
    settle(snapshot)
    assert not snapshot.pending_updates.pending


async def test_others_have_their_turn_after_every_chunk() -> None:
    updates, visited, between = PendingUpdates(2), list[str](), list[int]()

    async def others() -> None:
        while len(visited) < 6:
            between.append(len(visited))
            await asyncio.sleep(0)

    working = asyncio.create_task(apply_forever(updates))
    await asyncio.sleep(0)
    updates.add("this", "abcdef", visited.append)
    assert not visited

    await others()

    assert visited == list("abcdef")
    assert between == [0, 2, 4]
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
