"""Whom the nominator serves, what it orders, and what a failure teaches it."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders_bus import NOW, make_order, make_outcome, make_preemptor
from makeway.bus.commit import CommitRequest
from makeway.bus.messages import Awaited, EvictionOrder, Fence, Outcome, OutcomeResult, VictimOutcome
from makeway.bus.plan import Candidate, Removable
from makeway.core.k8s.objects import Pod, PriorityClass
from makeway.core.k8s.unmodelled import unmodelled
from makeway.nominator import decide
from makeway.nominator.decide import Writer
from makeway.nominator.in_flight import OrdersInFlight
from makeway.nominator.pending import PendingPod, PendingPods, PriorityClasses, pending_pod
from projected_pods import FULL, read

EXTERNAL = frozenset({"urgent"})


def a_pod(name: str = "p", *, uid: str = "", node: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"{name}-uid",
            "creationTimestamp": "2026-01-31T11:00:00Z",
        },
        "spec": {
            "priority": 1000,
            "priorityClassName": "urgent",
            "preemptionPolicy": "Never",
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "lastTransitionTime": "2026-01-31T11:59:00Z",
                }
            ],
        },
    }


def view(pod: dict[str, Any]) -> Pod:
    return msgspec.convert(pod, Pod)


def pending(**changes: Any) -> PendingPod:
    return msgspec.structs.replace(pending_pod(view(a_pod())), **changes)


def a_class(name: str = "urgent", policy: str = "Never", value: str = "external") -> PriorityClass:
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "annotations": {"makeway.dev/preemption": value}},
            "preemptionPolicy": policy,
        },
        PriorityClass,
    )


def test_a_pod_of_a_class_that_is_opted_in_waits_for_room() -> None:
    assert decide.refusal_of(pending(), EXTERNAL) == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"class_name": "other"}, "not opted in"),
        ({"policy": "PreemptLowerPriority"}, "not opted in"),
        ({"leaving": True}, "being deleted"),
        ({"nominated": "n1"}, "nominated to node n1"),
        ({"unfit_since": None}, "unschedulable"),
        ({"group": "train"}, "pod group train"),
    ],
)
def test_every_other_pod_is_left_alone(changes: dict[str, Any], why: str) -> None:
    assert why in decide.refusal_of(pending(**changes), EXTERNAL)


def test_a_pod_that_is_held_by_scheduling_gates_is_not_unschedulable() -> None:
    pod = a_pod()
    pod["status"]["conditions"][0]["reason"] = "SchedulingGated"

    assert pending_pod(view(pod)).unfit_since is None


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "devices"),
        ({"volumes": [{"name": "d", "iscsi": {}}]}, "iscsi"),
        ({"volumes": [{"name": "d", "gcePersistentDisk": {}}]}, "gcePersistentDisk"),
        ({"volumes": [{"name": "d", "emptyDir": {}}, {"name": "c", "persistentVolumeClaim": {}}]}, ""),
        ({}, ""),
    ],
)
def test_what_no_column_knows_is_named(spec: dict[str, Any], what: str) -> None:
    found = unmodelled(msgspec.json.encode(a_pod(**spec)))

    assert (what in found) if what else (found == "")


@pytest.mark.parametrize("for_filters", [False, True])
def test_a_pod_is_asked_about_as_one_that_may_preempt_and_without_its_secrets(for_filters: bool) -> None:
    sent = decide.as_preemptor(FULL, for_filters=for_filters)

    container = msgspec.json.decode(sent)["spec"]["containers"][0]
    assert {"env", "args", "command", "envFrom"} <= msgspec.json.decode(FULL)["spec"]["containers"][0].keys()
    assert {"env", "args", "command", "envFrom"}.isdisjoint(container)
    assert b"managedFields" not in sent
    assert b"last-applied-configuration" not in decide.as_preemptor(_applied(), for_filters=for_filters)
    assert read(sent).spec == replace(read(FULL).spec, preemption_policy="PreemptLowerPriority")
    assert read(sent).status == read(FULL).status
    assert read(sent).metadata == read(FULL).metadata


def test_the_planner_alone_is_sent_no_volumes_but_claims_and_no_annotations_but_those_it_reads() -> None:
    pod = a_pod(
        volumes=[{"name": "s", "secret": {}}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]
    )
    pod["metadata"]["annotations"] = {"example.com/token": "x", "makeway.dev/never-evict": "true"}

    alone = msgspec.json.decode(decide.as_preemptor(msgspec.json.encode(pod), for_filters=False))
    filters = msgspec.json.decode(decide.as_preemptor(msgspec.json.encode(pod), for_filters=True))

    assert [one["name"] for one in alone["spec"]["volumes"]] == ["c"]
    assert alone["metadata"]["annotations"] == {"makeway.dev/never-evict": "true"}
    assert filters["spec"]["volumes"] == pod["spec"]["volumes"]
    assert filters["metadata"]["annotations"] == pod["metadata"]["annotations"]


def _applied() -> bytes:
    pod = a_pod()
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    return msgspec.json.encode(pod)


def candidate(*victims: str, node: str = "n1", **changes: Any) -> Candidate:
    removable = tuple(Removable(uid=f"{name}-uid", rule="lower-priority", victim=True) for name in victims)
    return Candidate(node=node, removable=removable, **changes)


def an_order(order_id: str = "ord-1", uid: str = "p-uid") -> EvictionOrder:
    preemptor = make_preemptor(uid, namespace="default", name="p")
    return make_order(order_id=order_id, writer="makeway/nominator/n", preemptor=preemptor, node="n1")


def an_outcome(result: OutcomeResult, *victims: VictimOutcome) -> Outcome:
    return make_outcome(an_order(), result=result, victims=victims, finished_at=NOW)


def deleted(uid: str, grace: int) -> VictimOutcome:
    return VictimOutcome(namespace="default", name=uid, uid=uid, result="deleted", grace_period_seconds=grace)


def a_commit(chosen: Candidate) -> CommitRequest:
    fence = Fence(kind="lease", namespace="makeway-system", name="makeway-nominator", epoch=4)
    return decide.commit_of(
        Writer(cluster_uid="c", source="makeway/nominator/n", fence=lambda: fence),
        order_id="ord-1",
        offer="{}",
        preemptor=view(a_pod()),
        candidate=chosen,
        node_uid="n1-uid",
        now=NOW,
    )


def test_a_commit_names_who_asks_the_fence_the_victims_and_a_bounded_time() -> None:
    spared = Removable(uid="w-uid", rule="lower-priority")
    ordered = Awaited(uid="c", order_id="ord-2")
    chosen = replace(candidate("v"), awaited=(leaving("a", 70), ordered))

    commit = a_commit(replace(chosen, removable=(*chosen.removable, spared)))

    assert (commit.bridge, commit.fence.epoch) == ("makeway/nominator/n", 4)
    assert (commit.preemptor.uid, commit.node, commit.placements[0].node_uid) == ("p-uid", "n1", "n1-uid")
    assert commit.victims == ("v-uid",)
    assert commit.awaited == (leaving("a", 70), ordered)
    assert commit.store_by - NOW == decide.STORED_WITHIN


def leaving(uid: str, seconds: float) -> Awaited:
    return Awaited(uid=uid, namespace="default", name=uid, until=NOW + timedelta(seconds=seconds))


def test_room_that_terminating_pods_alone_make_is_waited_for_until_the_last_is_overdue() -> None:
    both = (leaving("a", 70), leaving("b", 90))
    ordered = Awaited(uid="c", order_id="ord-2")

    assert decide.waits_until(Candidate(node="n1", awaited=both), NOW) == NOW + timedelta(seconds=90)
    assert decide.waits_until(Candidate(node="n1", awaited=(*both, ordered)), NOW) is None
    assert decide.waits_until(replace(candidate("v"), awaited=both), NOW) is None
    assert decide.waits_until(Candidate(node="n1"), NOW) is None


def test_a_pod_that_takes_a_year_to_leave_keeps_no_preemptor_from_another_plan() -> None:
    slow = Candidate(node="n1", awaited=(leaving("a", 365 * 24 * 3600),))

    assert decide.waits_until(slow, NOW) == NOW + decide.PATIENCE


def test_pods_of_lower_priority_on_the_node_lose_their_nomination() -> None:
    others = [
        pending(uid="low", name="low", priority=1, nominated="n1"),
        pending(uid="equal", name="equal", priority=1000, nominated="n1"),
        pending(uid="elsewhere", name="elsewhere", priority=1, nominated="n2"),
    ]

    assert [ref.uid for ref in decide.outnominated(others, "n1", pending())] == ["low"]


def test_a_question_names_as_many_nominations_as_it_carries_the_more_important_first() -> None:
    names = [f"{number:04}" + "n" * 249 for number in range(2000)]
    flood = [
        pending(uid=name[:36], name=name, namespace="s" * 63, nominated="n1", priority=1) for name in names
    ]
    top = pending(uid="top", nominated="n2", priority=2)

    places = decide.nominations([*flood, top])

    assert places[0].uid == "top"
    assert len(places) > 1000
    assert len(msgspec.json.encode(places)) <= decide.MOST_NOMINATED_BYTES
    assert decide.nominations([top]) == places[:1]


def test_a_grace_period_counts_and_one_of_a_year_does_not() -> None:
    short = an_outcome("succeeded", deleted("a", grace=20))
    long = an_outcome("succeeded", deleted("a", grace=2**40))

    assert decide.settles_until(short, NOW) == NOW + timedelta(seconds=20) + decide.SETTLES
    assert decide.settles_until(long, NOW) == NOW + timedelta(hours=1) + decide.SETTLES


@pytest.mark.parametrize(
    ("outcome", "seconds", "over"),
    [
        (None, 30, False),
        (None, 62, True),
        (an_outcome("failed"), 0, True),
        (an_outcome("succeeded", deleted("a", grace=20)), 79, False),
        (an_outcome("succeeded", deleted("a", grace=20)), 80, True),
    ],
)
def test_an_order_ends_by_its_outcome_or_time(outcome: Outcome | None, seconds: float, over: bool) -> None:
    assert decide.is_over(an_order(), outcome, NOW + timedelta(seconds=seconds)) is over


def test_orders_are_in_flight_until_they_end() -> None:
    orders = OrdersInFlight()
    one = orders.begin(an_order())
    orders.begin(an_order("ord-2", "q-uid"))

    one.made = True
    assert orders.without_outcome() == 1
    orders.end(one)
    orders.end(one)
    assert orders.of("p-uid") is None
    assert orders.get("ord-2") is orders.of("q-uid")


def test_pods_leave_when_they_are_bound() -> None:
    pods, changed = PendingPods(), list[str]()
    pods.tell = changed.append
    pods.put(view(a_pod()))
    pods.put(view(a_pod(node="n1")))
    pods.put(view(a_pod("q")))
    pods.retain(set())

    assert changed == ["p-uid", "p-uid", "q-uid", "q-uid"]
    assert pods.by_uid == {}


@pytest.mark.parametrize(("said", "seconds"), [("90s", 90), ("5 minutes", 0), ("2h", 0), (None, 0)])
def test_a_pod_waits_for_the_delay_of_its_class(said: str | None, seconds: int) -> None:
    classes, item = PriorityClasses(), a_class()
    if said is not None:
        annotations = {**(item.metadata.annotations or {}), "makeway.dev/preemption-delay": said}
        metadata = msgspec.structs.replace(item.metadata, annotations=annotations)
        item = msgspec.structs.replace(item, metadata=metadata)
    classes.put(item)
    since = NOW - timedelta(seconds=60)

    assert classes.may_preempt_at(pending(unfit_since=since), NOW) == since + timedelta(seconds=seconds)


def test_pods_are_found_by_class_and_by_nomination() -> None:
    pods = PendingPods()
    nominated = a_pod("q", priorityClassName="other")
    nominated["status"]["nominatedNodeName"] = "n1"
    for pod in (a_pod(), nominated, a_pod("p", priorityClassName="other")):
        pods.put(view(pod))

    assert [pod.name for pod in pods.of_classes(["urgent", "none"])] == []
    assert sorted(pod.name for pod in pods.of_classes(["other"])) == ["p", "q"]
    assert [pod.name for pod in pods.nominated()] == ["q"]
    pods.drop(view(nominated))
    pods.drop(view(nominated))
    assert list(pods.nominated()) == []


def test_a_class_without_never_is_refused_once_for_each_text() -> None:
    refused: list[str] = []
    classes = PriorityClasses(lambda item: refused.append(item.metadata.name))

    for item in (
        a_class(),
        a_class("wrong", "PreemptLowerPriority"),
        a_class("wrong", "PreemptLowerPriority"),
    ):
        classes.put(item)
    classes.put(a_class("other", value="by-hand"))

    assert classes.external == {"urgent"}
    assert refused == ["wrong"]
    assert [one.metadata.name for one in classes.refused()] == ["wrong"]
    classes.drop(a_class())
    assert classes.external == frozenset()
