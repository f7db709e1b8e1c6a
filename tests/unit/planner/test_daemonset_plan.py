"""Plans for pods that their DaemonSet has bound to one node."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Metadata, OwnerReference, PriorityClass
from makeway.core.k8s.selector import Requirement, Selector
from makeway.core.policy.document import DaemonSets, Policy, PolicyLimits, Protection, Strategy
from makeway.core.policy.facts import ALLOW_PREEMPTION, PodFacts
from makeway.core.queues.tree import QueueTree
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    KnowDaemonSets,
    PutDaemonSet,
    PutNode,
    PutPod,
    RemoveDaemonSet,
    RemovePod,
)
from makeway.planner.snapshot.records import NodeRecord, PodRecord, pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner import manifests
from unit.planner.building import (
    NOW,
    ask,
    make_budget,
    make_class,
    make_node,
    make_pod,
    make_snapshot,
    planned,
    victims,
)
from unit.planner.building import refused as refusal_of
from unit.planner.caching import plan
from unit.planner.grouping import pod_group, put_group

EVERYWHERE = ("*",)
ON = Policy(daemon_sets=DaemonSets(enabled=True, namespaces=EVERYWHERE, beyond_own_namespace=EVERYWHERE))
NODE = "n1"
OPTED_OUT = PodFacts(opted_out=True)
DAEMON = PodFacts(daemon=True, daemonset_uid="logs-uid", daemonset_name="logs")
OWNER = DaemonSetOwner(namespace="default", name="logs", uid="logs-uid", selector=Selector(()))


def of(strategy: Strategy = "single,multiple", *, most: int = 10, hard: bool = False) -> Policy:
    settings = DaemonSets(
        enabled=True,
        namespaces=EVERYWHERE,
        beyond_own_namespace=EVERYWHERE,
        preemption_victim_pods_selection_strategy=strategy,
        multiple_max_victims=most,
    )
    return Policy(
        daemon_sets=settings, disruption_budgets="hard" if hard else "soft", hard_budget_namespaces=("*",)
    )


def running(
    uid: str | int, size: int, priority: int = 10, facts: PodFacts | None = None, **more: float
) -> PodRecord:
    ends = more.get("ends")
    return make_pod(str(uid), NODE, priority, requests={"cpu": size}, facts=facts, ends=ends)


def mixed_pods() -> list[PodRecord]:
    """Ten pods of all classes that take 76; `job` and `old job` are named as owners by two small pods."""
    owned = PodFacts(owners=("9", "10"))
    return [
        running(1, 10),
        running(2, 8),
        running(3, 10, 15),
        running(4, 5),
        running(5, 5, 5),
        running(6, 10, facts=OPTED_OUT),
        running(7, 8, facts=OPTED_OUT),
        running(8, 10, 15, OPTED_OUT),
        running(9, 5),
        running(10, 5, 5),
        make_pod("helper", "elsewhere", facts=owned),
    ]


def bound(size: int | Mapping[str, int], priority: int = 20) -> PodRecord:
    requests = {"cpu": size} if isinstance(size, int) else size
    return make_pod("logs", priority=priority, requests=requests, facts=DAEMON)


def on_node(size: int, pods: Iterable[PodRecord], policy: Policy = ON, **more: Iterable[object]) -> Snapshot:
    nodes = [make_node(NODE, size), make_node("elsewhere", 1000)]
    snapshot = make_snapshot(nodes, pods, policy=policy, **more)  # type: ignore[arg-type]
    snapshot.apply(PutDaemonSet(OWNER))
    snapshot.apply(KnowDaemonSets(True))
    return snapshot


def the(snapshot: Snapshot, preemptor: PodRecord) -> PlanCandidate:
    [candidate] = planned(snapshot, ask(preemptor, nodes=[NODE], daemonset_node=NODE)).candidates
    return candidate


def why(snapshot: Snapshot, preemptor: PodRecord) -> PlanRefusal:
    return refusal_of(snapshot, ask(preemptor, nodes=[NODE], daemonset_node=NODE))


def test_free_room_counts_so_that_one_small_pod_goes() -> None:
    candidate = the(on_node(100, mixed_pods()), bound(25))

    assert victims(candidate) == {"5"}
    assert [(pod.rule, pod.detail) for pod in candidate.victims] == [
        ("daemonset-multiple", "regular, gives cpu 5m of 1m needed; one of 1, at most 10")
    ]


def test_the_single_nearest_pod_goes_and_the_record_says_how_near() -> None:
    candidate = the(on_node(76, mixed_pods()), bound(5))

    assert [(pod.pod.uid, pod.rule, pod.detail) for pod in candidate.victims] == [
        (
            "5",
            "daemonset-single",
            "regular, alone makes the room; larger than needed by 0% of the request, at most 10%",
        )
    ]


def test_too_many_victims_are_refused_with_the_numbers() -> None:
    refusal = why(on_node(76, mixed_pods(), of(most=3)), bound(25))

    assert refusal.reason == "DaemonSetNoVictims"
    assert "does not fit on it (cpu 25m missing)" in refusal.message
    assert "multiple: it would take 4 victims, at most 3" in refusal.message


def test_an_order_never_has_more_victims_than_any_may_have() -> None:
    policy = msgspec.structs.replace(ON, limits=PolicyLimits(victims_per_order=3))

    assert "it would take 4 victims, at most 3" in why(on_node(76, mixed_pods(), policy), bound(25)).message
    assert the(on_node(76, mixed_pods(), policy), bound(5)).max_victims == 3


def test_a_resource_that_the_node_does_not_have_is_refused() -> None:
    snapshot = on_node(76, mixed_pods())
    snapshot.apply(PutNode(NodeRecord(name="elsewhere", allocatable={"example.com/disk": 3})))

    refusal = why(snapshot, bound({"cpu": 5, "example.com/disk": 1}))

    assert "too little even without all removable pods (example.com/disk 1 missing)" in refusal.message
    assert refusal.node_reasons == {"Insufficient cpu": 1, "Insufficient example.com/disk": 1}
    assert [(near.node, near.missing) for near in refusal.nearest] == [(NODE, {"example.com/disk": 1})]


def test_room_that_is_long_on_its_way_is_waited_for_only_where_no_pod_may_go() -> None:
    pods = [running(5, 5, 5, ends=600), running(4, 5, 5)]

    assert victims(the(on_node(10, pods), bound(5))) == {"4"}
    assert victims(the(on_node(10, [*pods[:1], running(4, 5, 30)]), bound(5))) == set()


@pytest.mark.parametrize("priority", [10, 30])
def test_who_is_leaving_anyway_is_awaited_beside_the_victims_it_spares_others_for(priority: int) -> None:
    snapshot = on_node(20, [running("leaving", 10, priority, ends=20), running("stays", 10)])

    candidate = the(snapshot, bound(15))

    assert {pod.pod.uid: pod.detail for pod in candidate.victims} == {
        "stays": "regular, gives cpu 10m of 5m needed; one of 1, at most 10"
    }
    assert [(one.pod.uid, one.order_id) for one in candidate.awaited] == [("leaving", "")]
    assert candidate.max_victims == 10


def test_a_refusal_names_the_overdue_pod_on_the_node() -> None:
    refusal = why(on_node(10, [running("stuck", 10, ends=-3600)]), bound(10))

    assert "kept: 1 by terminating" in refusal.message
    assert "default/stuck on n1 (its grace period ended at 2026-01-01T11:00:00Z)" in refusal.message


def test_a_pod_of_equal_priority_goes_and_one_of_another_daemonset_does_not() -> None:
    assert victims(the(on_node(20, [running("a", 15, 0)]), bound(15, 0))) == {"a"}

    refusal = why(on_node(20, [running("a", 15, 0, DAEMON)]), bound(15, 0))
    assert "kept: 1 by daemonset-pod" in refusal.message


def test_single_prefers_one_that_opted_out_to_one_far_too_large() -> None:
    pods = [running("large", 30), running("opted-out", 10, facts=OPTED_OUT)]

    for strategy in ("single", "single,multiple"):
        assert victims(the(on_node(40, pods, of(strategy)), bound(10))) == {"opted-out"}


def test_a_class_opts_its_pods_out_as_a_pod_does() -> None:
    opted_out = PriorityClass(
        metadata=Metadata(name="batch", uid="batch", annotations={ALLOW_PREEMPTION: "false"})
    )
    pods = [running("a", 10, 1, PodFacts(priority_class="batch")), running("b", 10, 2)]
    snapshot = on_node(20, pods, classes=[opted_out])

    assert victims(the(snapshot, bound(10))) == {"b"}


def test_the_first_pod_of_an_application_goes_after_the_others() -> None:
    def of_application(uid: str, created: int) -> PodRecord:
        facts = PodFacts(application="spark-1", created_micros=created)
        return running(uid, 10, facts=facts)

    snapshot = on_node(20, [of_application("driver", 1), of_application("worker", 2)])
    assert victims(the(snapshot, bound(10))) == {"worker"}

    snapshot.apply(RemovePod("driver"))
    snapshot.apply(PutPod(of_application("late worker", 3)))
    assert victims(the(snapshot, bound(10))) == {"late worker"}


def test_no_pod_goes_before_the_start_delay_is_over() -> None:
    snapshot = on_node(76, mixed_pods())
    early = ask(bound(5), nodes=[NODE], daemonset_node=NODE, unfit_seconds=9.5)

    refusal = refusal_of(snapshot, early)

    assert refusal.reason == "DaemonSetStartDelay"
    assert refusal.retry_at == NOW + timedelta(seconds=0.5)
    assert isinstance(plan(snapshot, early, NOW + timedelta(seconds=0.5)), Plan)


def test_a_policy_that_is_off_leaves_the_pod_to_the_ordinary_plan() -> None:
    snapshot = on_node(76, mixed_pods(), Policy())

    [candidate] = planned(
        snapshot, ask(bound(25), nodes=[NODE], daemonset_node=NODE, unfit_seconds=0)
    ).candidates

    assert candidate == planned(snapshot, ask(bound(25), nodes=[NODE])).candidates[0]
    assert {pod.rule for pod in candidate.removable} == {"lower-priority"}


def test_pods_that_other_orders_remove_are_awaited_and_no_other_pod_goes() -> None:
    snapshot = on_node(20, [running("going", 10), running("stays", 10)])
    question = ask(bound(10), nodes=[NODE], daemonset_node=NODE, in_flight={"going": "ord-1"})

    [candidate] = planned(snapshot, question).candidates

    assert not candidate.victims
    assert [(one.pod.uid, one.order_id) for one in candidate.awaited] == [("going", "ord-1")]


def test_room_that_another_pod_is_nominated_to_is_not_free() -> None:
    snapshot = on_node(40, [running("a", 10), running("b", 10), make_pod("next", priority=30, size=20)])
    question = ask(bound(10), nodes=[NODE], daemonset_node=NODE, nominations=[("next", NODE)])

    assert victims(planned(snapshot, question).candidates[0]) == {"a"}


def test_the_pod_that_holds_its_host_port_goes_whatever_else_is_cheaper() -> None:
    port = [{"hostPort": 24224}]
    snapshot = manifests.cluster(
        manifests.node("n1"),
        manifests.pod("holder", NODE, priority=3, ports=port),
        manifests.pod("cheap", NODE, priority=1),
    )
    snapshot.apply(Enforce(ON, "rev-1"))
    snapshot.apply(PutDaemonSet(OWNER))
    owner = OwnerReference(
        api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs-uid", controller=True
    )
    logs = manifests.pod("logs", priority=3, ports=port)
    logs = msgspec.structs.replace(
        logs, metadata=msgspec.structs.replace(logs.metadata, owner_references=(owner,))
    )
    asked = manifests.question(logs, daemonset_node=NODE, unfit_since=NOW - timedelta(minutes=1))

    [candidate] = planned(snapshot, asked).candidates
    assert victims(candidate) == {"holder"}
    snapshot.apply(RemovePod("holder"))
    snapshot.apply(PutPod(pod_record(manifests.pod("holder", NODE, priority=4, ports=port))))
    refusal = refusal_of(snapshot, asked)
    assert "does not fit on it (host port taken)" in refusal.message
    assert refusal.node_reasons == {"Host port taken": 1}


def test_what_no_resource_explains_is_left_to_the_schedulers_filters() -> None:
    daemon = make_pod("other-agent", NODE, 0, requests={"cpu": 1}, facts=DAEMON)
    pods = [running("opted-out", 1, 1, OPTED_OUT), running("high", 1, 9), running("low", 1, 1), daemon]

    result = planned(on_node(76, pods), ask(bound(5), nodes=[NODE], daemonset_node=NODE))

    assert not result.candidates
    [candidate] = result.unmodelled
    assert [pod.pod.uid for pod in candidate.removable] == ["opted-out", "high", "low"]
    assert candidate.max_victims == 10


def test_with_single_alone_the_filters_may_choose_among_near_pods_only() -> None:
    pods = [running("near", 10), running("far", 20), running("small", 5)]

    candidate = the(on_node(35, pods, of("single")), bound(10))

    assert {pod.pod.uid for pod in candidate.removable} == {"near"}
    assert candidate.max_victims == 1


def test_a_soft_budget_is_counted_and_a_hard_one_keeps_its_pods() -> None:
    pods = [make_pod("a", NODE, 1, requests={"cpu": 10}, labels={"app": "db"}), running("b", 10, 2)]
    budget = make_budget("db", {"app": "db"}, allowed=0)

    soft = the(on_node(20, pods, budgets=[budget]), bound(10))
    hard = the(on_node(20, pods, of(hard=True), budgets=[budget]), bound(10))

    assert (victims(soft), soft.pdb_violations) == ({"a"}, 1)
    assert (victims(hard), hard.pdb_violations) == ({"b"}, 0)
    assert [pod.pod.uid for pod in hard.removable] == ["b"]
    assert [(one.pod.uid, one.verdict.rule) for one in hard.exempt.pods] == [("a", "hard-budget")]


def test_a_hard_budget_that_lets_too_few_of_its_pods_go_is_waited_for() -> None:
    labels = {"app": "web"}
    pods = [make_pod(str(n), NODE, 10, requests={"cpu": 5}, labels=labels) for n in range(2)]
    snapshot = on_node(10, pods, of(hard=True), budgets=[make_budget("web", labels, 1)])

    refusal = refusal_of(snapshot, ask(bound(10), nodes=[NODE], daemonset_node=NODE))

    assert refusal.reason == "DaemonSetNoVictims"
    assert ("PodDisruptionBudget", "default", "web") in refusal.depends_on
    assert "kept: 1 by hard-budget" in refusal.message


def test_where_a_hard_budget_lets_few_pods_go_the_larger_ones_do() -> None:
    sizes = {"low": (5, 5), "large": (8, 10), "other": (2, 10)}
    pods = [
        make_pod(name, NODE, priority, requests={"cpu": size}, labels={"app": name.replace("low", "large")})
        for name, (size, priority) in sizes.items()
    ]
    snapshot = on_node(15, pods, of(hard=True), budgets=[make_budget("web", {"app": "large"}, 1)])

    assert victims(the(snapshot, bound(10))) == {"large", "other"}


def test_a_budget_that_allows_the_victims_is_not_violated_by_them() -> None:
    pods = [make_pod(uid, NODE, 1, requests={"cpu": 10}, labels={"app": "db"}) for uid in ("a", "b")]

    candidate = the(on_node(20, pods, budgets=[make_budget("db", {"app": "db"}, allowed=1)]), bound(10))

    assert candidate.pdb_violations == 0
    assert [(pod.pod.uid, pod.pdb_violating) for pod in candidate.removable] == [("b", True), ("a", False)]


def test_protection_and_toleration_hold_here_too_and_say_until_when() -> None:
    started = PodFacts(priority_class="calm", scheduled_micros=microseconds(NOW - timedelta(seconds=10)))
    policy = msgspec.structs.replace(ON, protection=Protection(namespaces=("vip",)))
    pods = [running("calm", 10, 1, started), make_pod("vip", NODE, 1, requests={"cpu": 10}, namespace="vip")]

    refusal = why(on_node(20, pods, policy, classes=[make_class("calm", 100, 60)]), bound(10))

    assert "kept: 1 by preemption-toleration, 1 by protected-namespace" in refusal.message
    assert refusal.retry_at == NOW + timedelta(seconds=50, milliseconds=1)
    assert refusal.depends_on == (("PriorityClass", "", "calm"),)
    assert refusal.exempt == {"preemption-toleration": 1, "protected-namespace": 1}


def test_a_system_critical_pod_of_equal_priority_stays() -> None:
    critical = 2_000_000_000

    refusal = why(on_node(20, [running("a", 20, critical)]), bound(10, critical))

    assert "kept: 1 by system-critical" in refusal.message


def in_queue(uid: str, path: str, priority: int = 1, *, ends: float | None = None) -> PodRecord:
    labels, facts = {"queue": path}, PodFacts(queue=path)
    return make_pod(uid, NODE, priority, requests={"cpu": 10}, labels=labels, facts=facts, ends=ends)


def with_guarantee(cpu: int, *pods: PodRecord) -> Snapshot:
    snapshot = on_node(10 * len(pods), pods)
    queues = tree(queue("a", guaranteed={"cpu": cpu}), queue("b"))
    snapshot.apply(Adopt(queues, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))
    return snapshot


def test_victims_together_leave_their_queue_its_guarantee() -> None:
    pods = [in_queue(f"a{number}", "root.a") for number in range(3)]

    assert len(victims(the(with_guarantee(15, *pods), bound(10)))) == 1
    refusal = why(with_guarantee(15, *pods), bound(20))

    assert "1 of 3 pods are removable (kept: 2 by queue-guaranteed)" in refusal.message
    assert refusal.exempt == {"queue-guaranteed": 2}
    assert refusal.depends_on == (("ConfigMap", "makeway-system", "makeway-queues"),)
    [near] = refusal.nearest
    assert {one.verdict.detail for one in near.exempt.pods} == {
        "the pods of its queue on this node would together go below a guarantee"
    }


def test_what_is_leaving_anyway_counts_no_longer_towards_the_guarantee() -> None:
    pods = [in_queue("leaving", "root.a", ends=20), in_queue("a0", "root.a"), in_queue("b0", "root.b", 5)]

    assert victims(the(with_guarantee(10, *pods), bound(20))) == {"b0"}


def of_queue(path: str, cpu: int, priority: int = 20) -> PodRecord:
    """The DaemonSet's pod, in a queue."""
    facts = msgspec.structs.replace(DAEMON, queue=path)
    return make_pod("logs", priority=priority, requests={"cpu": cpu}, labels={"queue": path}, facts=facts)


def with_maximum(cpu: int, *pods: PodRecord, free: int = 0) -> Snapshot:
    snapshot = on_node(10 * len(pods) + free, pods)
    queues = tree(queue("a", queue("deep"), maximum={"cpu": cpu}), queue("b"))
    snapshot.apply(Adopt(queues, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))
    return snapshot


def test_a_pod_whose_queue_is_at_its_maximum_takes_pods_of_that_queue_alone() -> None:
    pods = [in_queue("a0", "root.a.deep", 5), in_queue("b0", "root.b")]

    candidate = the(with_maximum(10, *pods), of_queue("root.a.deep", 10))

    assert victims(candidate) == {"a0"}
    assert victims(the(with_maximum(20, *pods), of_queue("root.a.deep", 10))) == {"b0"}


def test_a_full_queue_without_pods_on_the_node_is_named_in_the_refusal() -> None:
    snapshot = with_maximum(10, in_queue("b0", "root.b"), free=100)
    snapshot.apply(
        PutPod(msgspec.structs.replace(in_queue("a0", "root.a.deep"), node="elsewhere", name="a0"))
    )

    refusal = why(snapshot, of_queue("root.a.deep", 5))

    assert refusal.reason == "DaemonSetNoVictims"
    assert "(queue root.a at max: cpu 10m of 10m)" in refusal.message
    assert refusal.node_reasons == {"Queue root.a at max: cpu 10m of 10m": 1}
    assert refusal.depends_on == (("ConfigMap", "makeway-system", "makeway-queues"), ("Queue", "", "root.a"))


def leaving_elsewhere(ends: float, *pods: PodRecord, maximum: int = 20) -> Snapshot:
    """Queue root.a is full: one of its pods leaves another node, the others run on the DaemonSet's."""
    snapshot = with_maximum(maximum, *pods, free=100)
    leaving = in_queue("leaving", "root.a.deep", ends=ends)
    snapshot.apply(PutPod(msgspec.structs.replace(leaving, node="elsewhere")))
    return snapshot


def test_no_pod_of_the_full_queue_goes_where_one_that_leaves_another_node_makes_the_room() -> None:
    snapshot = leaving_elsewhere(20, in_queue("a0", "root.a.deep"))

    refusal = why(snapshot, of_queue("root.a.deep", 10))

    assert (refusal.reason, refusal.retry_at) == ("QueueRoomOnItsWay", NOW + timedelta(seconds=80))
    assert "default/leaving on elsewhere" in refusal.message


def test_where_what_leaves_another_node_makes_too_little_in_the_full_queue_running_pods_go() -> None:
    snapshot = leaving_elsewhere(20, in_queue("a0", "root.a.deep"), in_queue("a1", "root.a.deep"), maximum=30)

    assert victims(the(snapshot, of_queue("root.a.deep", 15))) == {"a0", "a1"}


def test_a_pod_that_is_overdue_elsewhere_makes_no_room_in_the_full_queue() -> None:
    snapshot = leaving_elsewhere(-60, in_queue("a0", "root.a.deep"))

    assert victims(the(snapshot, of_queue("root.a.deep", 10))) == {"a0"}


def test_one_with_a_long_grace_period_elsewhere_is_awaited_only_where_nothing_else_helps() -> None:
    asked = of_queue("root.a.deep", 10)

    assert victims(the(leaving_elsewhere(3600, in_queue("a0", "root.a.deep")), asked)) == {"a0"}
    refusal = why(leaving_elsewhere(3600, in_queue("a0", "root.a.deep", 30)), asked)
    assert (refusal.reason, refusal.retry_at) == ("QueueRoomOnItsWay", NOW + timedelta(seconds=3660))


def test_beside_pods_that_leave_the_node_and_the_full_queue_only_what_the_node_lacks_goes() -> None:
    pods = [
        in_queue("leaving", "root.a.deep", ends=20),
        in_queue("a0", "root.a.deep"),
        in_queue("b0", "root.b"),
    ]
    snapshot = with_maximum(30, *pods)

    candidate = the(snapshot, of_queue("root.a.deep", 20))

    assert [one.pod.uid for one in candidate.awaited] == ["leaving"]
    assert len(victims(candidate)) == 1


in_queues = st.lists(
    st.tuples(
        st.sampled_from(["root.a.deep", "root.b", "root.default"]),
        st.integers(0, 9),
        st.integers(0, 3),
        st.sampled_from([PodFacts(), OPTED_OUT, DAEMON]),
        st.booleans(),
    ),
    max_size=9,
)


@given(
    given_pods=in_queues,
    free=st.integers(0, 12),
    size=st.integers(1, 15),
    maxima=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    own=st.sampled_from(["root.a.deep", "root.b"]),
    strategy=st.sampled_from(["single", "multiple", "single,multiple", "multiple,single"]),
)
def test_no_plan_for_a_daemonset_exceeds_a_maximum(
    *,
    given_pods: list[tuple[str, int, int, PodFacts, bool]],
    free: int,
    size: int,
    maxima: tuple[int, int],
    own: str,
    strategy: Strategy,
) -> None:
    pods = [
        make_pod(
            f"p{number}",
            NODE if here else "elsewhere",
            priority,
            requests={"cpu": cpu},
            labels={"queue": path},
            facts=msgspec.structs.replace(facts, queue=path),
        )
        for number, (path, cpu, priority, facts, here) in enumerate(given_pods)
    ]
    taken = sum(pod.requests.get("cpu", 0) for pod in pods if pod.node == NODE)
    snapshot = on_node(taken + free, pods, of(strategy))
    branches = queue("a", queue("deep"), maximum={"cpu": maxima[0]}), queue("b")
    built = QueueTree.of(queue("root", *branches, maximum={"cpu": maxima[1]}), quota_preemption=True)
    snapshot.apply(Adopt(built, "queues-1"))
    preemptor = of_queue(own, size, 2)

    found = plan(snapshot, ask(preemptor, nodes=[NODE], daemonset_node=NODE), NOW)

    for candidate in found.candidates if isinstance(found, Plan) else ():
        gone = victims(candidate)
        there = [*(pod for pod in pods if pod.uid not in gone), preemptor]
        for limited in (built.at("root.a"), built.at("root")):
            inside = range(limited.number, limited.below)
            if built.at(own).number in inside:
                used = sum(
                    pod.requests.get("cpu", 0) for pod in there if built.at(pod.facts.queue).number in inside
                )
                assert used <= limited.maximum["cpu"]


# ---------------------------------------------------------------------------------------- what always holds

pods_of_a_node = st.lists(
    st.builds(
        lambda size, priority, facts: (size, priority, facts),
        st.integers(0, 10),
        st.integers(0, 3),
        st.sampled_from(
            [PodFacts(), OPTED_OUT, DAEMON, PodFacts(mirror=True), PodFacts(owners=("p0",), application="a")]
        ),
    ),
    max_size=10,
)


@given(given_pods=pods_of_a_node, size=st.integers(1, 20), data=st.data())
def test_no_daemonset_protected_or_more_important_pod_ever_goes_and_the_order_of_events_is_of_no_matter(
    given_pods: list[tuple[int, int, PodFacts]], size: int, data: st.DataObject
) -> None:
    pods = [running(f"p{i}", size, priority, facts) for i, (size, priority, facts) in enumerate(given_pods)]
    room = sum(pod.requests.get("cpu", 0) for pod in pods)
    question = ask(bound(size, 2), nodes=[NODE], daemonset_node=NODE)

    result = plan(on_node(room, pods), question, NOW)

    again = plan(on_node(room, data.draw(st.permutations(pods))), question, NOW)
    assert isinstance(result, PlanRefusal) == isinstance(again, PlanRefusal)
    if isinstance(result, Plan) and isinstance(again, Plan):
        assert result.candidates == again.candidates
        [candidate] = result.candidates
        for one in candidate.removable:
            assert not one.pod.facts.daemon
            assert not one.pod.facts.mirror
            assert one.pod.priority <= 2


def elsewhere(uid: str, priority: int) -> PodRecord:
    """A pod of another tenant on the node."""
    return make_pod(uid, NODE, priority, requests={"cpu": 10}, namespace="tenant-b")


def in_namespaces(*, beyond: bool, names: tuple[str, ...] = ("default",)) -> Policy:
    settings = DaemonSets(enabled=True, namespaces=names, beyond_own_namespace=names if beyond else ())
    return Policy(daemon_sets=settings)


@pytest.mark.parametrize(
    "owner",
    [
        msgspec.structs.replace(OWNER, uid="another-uid"),
        msgspec.structs.replace(OWNER, name="another"),
        msgspec.structs.replace(OWNER, namespace="tenant-b"),
        msgspec.structs.replace(OWNER, selector=Selector((Requirement("app", "In", frozenset({"x"})),))),
        msgspec.structs.replace(OWNER, selector=None),
        None,
    ],
    ids=["another UID", "another name", "another namespace", "other labels", "no selector", "none"],
)
def test_a_pod_that_no_daemonset_proves_displaces_no_equal(owner: DaemonSetOwner | None) -> None:
    snapshot = on_node(20, [running("a", 15, 0)])
    snapshot.apply(RemoveDaemonSet(OWNER.uid))
    if owner is not None:
        snapshot.apply(PutDaemonSet(owner))

    assert why(snapshot, bound(15, 0)).reason == "NoLowerPriorityPods"
    assert victims(the(snapshot, bound(15, 10))) == {"a"}


def test_a_daemonset_of_a_namespace_that_the_policy_does_not_list_displaces_no_equal() -> None:
    snapshot = on_node(20, [running("a", 15, 0)], in_namespaces(beyond=True, names=("kube-system",)))

    assert why(snapshot, bound(15, 0)).reason == "NoLowerPriorityPods"


def test_daemonsets_of_kube_system_and_of_makeways_own_namespace_preempt_unless_told_otherwise() -> None:
    settings = DaemonSets(enabled=True)

    assert settings.reaches_beyond("kube-system", "makeway-system")
    assert settings.reaches_beyond("makeway-system", "makeway-system")
    assert not settings.may_preempt("default", "makeway-system")
    assert not settings.may_preempt("", "")


def test_a_daemonset_displaces_equals_of_its_own_namespace_alone_unless_the_policy_lets_it() -> None:
    pods = [elsewhere("other", 0), running("own", 10, 0)]

    assert victims(the(on_node(20, pods, in_namespaces(beyond=False)), bound(10, 0))) == {"own"}
    confined = why(on_node(20, [elsewhere("other", 0)], in_namespaces(beyond=False)), bound(20, 0))
    assert confined.reason == "DaemonSetNoVictims"
    assert "daemonset-other-namespace" in confined.message
    assert victims(the(on_node(20, [elsewhere("other", -1)], in_namespaces(beyond=False)), bound(20, 0)))
    assert victims(the(on_node(20, [elsewhere("other", 0)], in_namespaces(beyond=True)), bound(20, 0)))


def test_a_claim_that_no_daemonset_proves_keeps_no_pod() -> None:
    forged = PodFacts(daemon=True, daemonset_uid="forged", daemonset_name="logs")
    snapshot = on_node(20, [running("a", 15, 0, forged)])

    assert victims(the(snapshot, bound(15, 0))) == {"a"}

    snapshot.apply(KnowDaemonSets(False))

    assert why(snapshot, bound(15, 0)).reason == "DaemonSetNoVictims"


def test_a_pod_that_can_only_go_with_its_group_stays_where_others_make_the_room() -> None:
    snapshot = on_node(100, mixed_pods())
    put_group(snapshot, pod_group("g"), snapshot.pods["5"])

    assert victims(the(snapshot, bound(25))) == {"1"}


def test_the_priority_of_a_group_counts_for_its_pods_in_place_of_their_own() -> None:
    above = on_node(20, ())
    put_group(above, pod_group("g", whole=False, priority=5000), running("a", 20, 10))
    refusal = why(above, bound(10, 1000))
    assert "0 of 1 pod are removable (kept: 1 by higher-priority)" in refusal.message

    below = on_node(20, ())
    put_group(below, pod_group("g", whole=False, priority=-5000), running("a", 20, 2000))
    assert victims(the(below, bound(20, 1000))) == {"a"}


def test_a_protected_priority_is_that_of_the_group() -> None:
    policy = msgspec.structs.replace(ON, protection=Protection(minimum_priority=500))
    snapshot = on_node(20, (), policy)
    put_group(snapshot, pod_group("g", whole=False, priority=600), running("a", 20, 10))

    assert "kept: 1 by protected-priority" in why(snapshot, bound(10, 1000)).message
    ordinary = refusal_of(snapshot, ask(make_pod("any", priority=1000, requests={"cpu": 10}), nodes=[NODE]))
    assert ordinary.exempt == {"protected-priority": 1}


def test_a_node_full_of_a_unit_of_lower_priority_is_helped_as_for_any_other_pod() -> None:
    members = [running("u0", 10, 50), running("u1", 10, 50), make_pod("u2", "elsewhere", 50)]
    snapshot = on_node(20, ())
    put_group(snapshot, pod_group("g"), *members)

    candidate = the(snapshot, bound(5, 1000))

    assert victims(candidate) == {"u0", "u1", "u2"}
    assert {pod.unit for pod in candidate.removable} == {"PodGroup default/g"}
    assert {pod.rule for pod in candidate.removable} == {"lower-priority"}
    assert why(snapshot, bound(5, 0)).reason == "DaemonSetNoVictims"


def test_a_unit_goes_without_the_pods_that_a_daemonset_never_displaces() -> None:
    snapshot = on_node(30, [running("agent", 10, 1, DAEMON)])
    put_group(snapshot, pod_group("g"), running("u0", 10, 5), running("u1", 10, 5))

    assert victims(the(snapshot, bound(15, 1000))) == {"u0", "u1"}
    assert why(snapshot, bound(25, 1000)).reason == "DaemonSetNoVictims"


def test_the_limits_of_the_simple_preemptor_hold_beside_a_unit() -> None:
    snapshot = on_node(30, [running("a", 10, 1), running("b", 10, 1)], of("multiple", most=1))
    put_group(snapshot, pod_group("g", priority=500), running("u0", 10, 500))

    assert why(snapshot, bound(20, 100)).reason == "DaemonSetNoVictims"
