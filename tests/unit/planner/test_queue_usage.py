"""Which pods are in which queue, whatever comes in which order."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.objects import Metadata, PriorityClass
from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.placement import place
from makeway.core.queues.tree import QueueTree
from makeway.planner.service.configuration.warnings import AT_ONCE, Warnings
from makeway.planner.snapshot.changes import Adopt, Enforce, PutPod, PutPriorityClass, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from recorded_events import RecordedEvents
from unit.core.queue_building import queue, tree
from unit.planner.building import make_pod, make_snapshot, settle

FLAT = tree(queue("a"), queue("b"))
DEEP = tree(queue("a", queue("x"), queue("y")), queue("team", namespaces=("team",)))


def pod_in(asked: str, uid: str, *, node: str = "n1", **facts: object) -> PodRecord:
    return make_pod(uid, node, facts=PodFacts(queue=asked, **facts))  # type: ignore[arg-type]


def snapshot_with(built: QueueTree, *pods: PodRecord) -> Snapshot:
    snapshot = make_snapshot(["n1", "n2"], pods)
    snapshot.apply(Adopt(built, "rev"))
    return snapshot


def member_uids(snapshot: Snapshot, path: str, leaving: tuple[str, ...] = ()) -> set[str]:
    assert snapshot.queues.tree is not None
    _, members = snapshot.queues.without(leaving)
    return {member.uid for member in members(snapshot.queues.tree.at(path).number)}


PODS = st.builds(
    make_pod,
    uid=st.sampled_from("abcdefgh"),
    node=st.sampled_from(["", "n1", "n2"]),
    size=st.integers(1, 9),
    terminating=st.booleans(),
    namespace=st.sampled_from(["team", "other"]),
    facts=st.builds(
        PodFacts,
        queue=st.sampled_from(["", "root.a", "root.a.x", "root.team"]),
        application=st.sampled_from(["", "app"]),
        created_micros=st.integers(0, 3),
    ),
)
STEPS = st.lists(
    st.one_of(PODS, st.sampled_from("abcdefgh"), st.sampled_from([FLAT, DEEP, None])), max_size=25
)


@given(STEPS)
def test_the_book_is_what_counting_anew_would_give(steps: list[PodRecord | str | QueueTree | None]) -> None:
    snapshot = make_snapshot(["n1", "n2"])
    for step in steps:
        if isinstance(step, PodRecord):
            snapshot.apply(PutPod(step))
        elif isinstance(step, str):
            snapshot.apply(RemovePod(step))
        else:
            snapshot.apply(Adopt(step, "rev"))

    book = snapshot.queues
    if book.tree is None:
        assert book.held is None
        return
    pods = snapshot.pods.values()
    usage, members = book.without(("a", "b"))
    assert book.held is not None
    for one in book.tree:
        below = [
            pod
            for pod in pods
            if pod.node and one.number in place(book.tree, pod.facts.queue, pod.namespace).queue.line
        ]
        staying = [pod for pod in below if not pod.terminating and pod.uid not in ("a", "b")]
        assert book.held.of(one.number).get("pods", 0) == len(below)
        assert usage.of(one.number).get("cpu", 0) == sum(pod.requests["cpu"] for pod in staying)
        if one.is_leaf:
            assert {member.uid for member in members(one.number)} == {pod.uid for pod in staying}
            for member in members(one.number):
                pod = snapshot.pods[member.uid]
                peers = [
                    (peer.facts.created_micros, peer.uid)
                    for peer in pods
                    if peer.facts.application and peer.namespace == pod.namespace
                ]
                first = bool(pod.facts.application) and min(peers)[1] == pod.uid
                assert member.originator is first


def test_pods_that_name_a_queue_that_is_not_there_are_told_apart() -> None:
    snapshot = snapshot_with(FLAT, pod_in("root.a", "fine"), pod_in("root.lost", "lost", node=""))

    assert snapshot.queues.misplaced.keys() == {"lost"}
    snapshot.apply(RemovePod("lost"))
    assert not snapshot.queues.misplaced


def test_who_is_protected_follows_the_policy() -> None:
    snapshot = snapshot_with(FLAT, pod_in("root.a", "p"))
    snapshot.apply(Enforce(Policy(protection=Protection(namespaces=("default",))), "rev-2"))

    _, members = snapshot.queues.without(())
    (member,) = members(FLAT.at("root.a").number)
    assert member.exempt == "protected-namespace"


def test_a_class_may_opt_its_pods_out_and_in_again() -> None:
    snapshot = snapshot_with(FLAT, pod_in("root.a", "p", priority_class="gold"))

    for value in ("false", "true"):
        annotations = {"yunikorn.apache.org/allow-preemption": value}
        snapshot.apply(
            PutPriorityClass(PriorityClass(metadata=Metadata(name="gold", annotations=annotations)))
        )
        _, members = snapshot.queues.without(())
        (member,) = members(FLAT.at("root.a").number)
        assert member.opted_out is (value == "false")


def test_what_leaves_is_neither_counted_nor_chosen() -> None:
    leaving = msgspec.structs.replace(pod_in("root.a", "leaving"), terminating=True)
    snapshot = snapshot_with(FLAT, pod_in("root.a", "stays"), pod_in("root.a", "ordered"), leaving)

    usage, _ = snapshot.queues.without({"ordered", "leaving", "unknown"})

    assert usage.of(FLAT.at("root.a").number)["pods"] == 1
    assert member_uids(snapshot, "root.a", ("ordered",)) == {"stays"}


def test_each_misplaced_pod_is_told_of_once_and_again_where_the_reason_is_another() -> None:
    snapshot, recorded = snapshot_with(FLAT, pod_in("root.lost", "p")), RecordedEvents()
    warnings = Warnings(snapshot, recorded)

    warnings.tell()
    warnings.tell()
    assert [event.about.uid for event in recorded] == ["p"]

    snapshot.apply(Adopt(tree(queue("lost", namespaces=("team",))), "rev-2"))
    warnings.tell()
    assert "may not use root.lost" in recorded[-1].note
    assert {event[1:3] for event in recorded} == {("Warning", "QueueNotUsed")}


def test_nothing_is_told_while_queues_are_being_filled() -> None:
    snapshot, recorded = Snapshot(chunk=1), RecordedEvents()
    for uid in "ab":
        snapshot.apply(PutPod(pod_in("root.lost", uid)))
    warnings = Warnings(snapshot, recorded)
    snapshot.apply(Adopt(FLAT, "rev"))
    settle(snapshot)
    warnings.tell()

    snapshot.apply(Adopt(FLAT, "rev-2"))
    warnings.tell()
    settle(snapshot)
    warnings.tell()

    assert [event.about.uid for event in recorded] == ["a", "b"]


def test_a_flood_of_misplaced_pods_is_told_of_little_by_little() -> None:
    snapshot, recorded = snapshot_with(FLAT), RecordedEvents()
    for number in range(AT_ONCE + 5):
        snapshot.apply(PutPod(pod_in("root.lost", f"p{number}", node="")))
    warnings = Warnings(snapshot, recorded)

    warnings.tell()
    assert len(recorded) == AT_ONCE
    warnings.tell()
    assert len(recorded) == AT_ONCE + 5


def test_a_label_that_is_changed_on_a_running_pod_frees_no_quota() -> None:
    snapshot = snapshot_with(FLAT, pod_in("root.a", "p"))

    snapshot.apply(PutPod(pod_in("root.b", "p")))
    snapshot.apply(PutPod(pod_in("", "p")))

    assert (member_uids(snapshot, "root.a"), member_uids(snapshot, "root.b")) == ({"p"}, set())


def test_a_label_counts_as_it_is_while_a_pod_is_pending_and_anew_for_another_pod_of_that_name() -> None:
    snapshot = snapshot_with(FLAT, pod_in("root.a", "p", node=""))

    snapshot.apply(PutPod(pod_in("root.b", "p")))
    snapshot.apply(RemovePod("p"))
    snapshot.apply(PutPod(pod_in("root.a", "p")))

    assert member_uids(snapshot, "root.a") == {"p"}
