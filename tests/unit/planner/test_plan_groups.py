"""Groups as victims: a unit of mode all is evicted whole or not at all, wherever its pods are.

The cases of kube-scheduler 1.37's TestSelectVictimsOnNode with groups, and what is wrong with groups.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.document import Groups, Policy, PolicyLimits, Protection
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.parsing import parse_queues
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import (
    Adopt,
    KnowPodGroups,
    PutPod,
    PutPodGroup,
    RemovePod,
    RemovePodGroup,
)
from makeway.planner.snapshot.records import NodeRecord, PodRecord, pod_record
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.planner import manifests
from unit.planner.building import (
    HIGH,
    MID,
    NOW,
    XL,
    L,
    M,
    S,
    ask,
    make_budget,
    make_class,
    make_node,
    make_pod,
    make_snapshot,
    scheduled,
)
from unit.planner.caching import plan
from unit.planner.grouping import pod_group


def member(of: str, uid: str, node: str, size: int = S, **more: Any) -> PodRecord:
    return make_pod(uid, node, size=size, group=of, **more)


def cluster(
    groups: Iterable[GroupRecord],
    pods: Iterable[PodRecord],
    *,
    nodes: Iterable[NodeRecord | str] = ("n1", "n2"),
    policy: Policy | None = None,
    budgets: Iterable[Budget] = (),
    classes: Iterable[PriorityClass] = (),
) -> Snapshot:
    """Groups are followed, also where there are none."""
    snapshot = make_snapshot(nodes, (), budgets, policy=policy, classes=classes, groups=groups)
    snapshot.apply(KnowPodGroups(True, True, True))
    for pod in pods:
        snapshot.apply(PutPod(pod))
    return snapshot


def test_pods_that_are_gone_leave_nothing_in_their_group_that_only_they_requested() -> None:
    snapshot = cluster([pod_group("all")], [member("all", "stays", "n1")])

    for number in range(100):
        snapshot.apply(PutPod(member("all", f"p{number}", "n1", requests={f"example.com/{number}": 1})))
        snapshot.apply(RemovePod(f"p{number}"))

    left = snapshot.groups.of(snapshot.pods["stays"])
    assert left is not None
    assert left.requests == snapshot.pods["stays"].requests


def victims(snapshot: Snapshot, asked: Question) -> dict[str, list[str]]:
    found = as_a(Plan, plan(snapshot, asked, NOW))
    return {one.node: sorted(pod.pod.uid for pod in one.victims) for one in found.candidates}


def refusal(snapshot: Snapshot, asked: Question) -> PlanRefusal:
    return as_a(PlanRefusal, plan(snapshot, asked, NOW))


def details(refused: PlanRefusal) -> Mapping[str, str]:
    return {
        one.pod.uid: one.verdict.detail
        for near in refused.nearest
        for one in near.exempt.pods
        if one.verdict.rule == "pod-group"
    }


def preemptor(size: int = XL, priority: int = HIGH) -> Question:
    return ask(make_pod("p", priority=priority, size=size))


def test_without_the_api_nothing_changes() -> None:
    snapshot = make_snapshot(["n1"], [member("g", "a", "n1", L), member("g", "b", "n1", S)])

    assert victims(snapshot, preemptor(L)) == {"n1": ["a"]}


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (
            Policy(protection=Protection(never_evict_namespaces=("*",))),
            "pod default/b is kept by never-evict",
        ),
        (Policy(limits=PolicyLimits(victims_per_order=1)), ""),
    ],
)
def test_one_pod_elsewhere_that_may_not_go_keeps_the_whole_unit(kept: Policy, words: str) -> None:
    b = msgspec.structs.replace(member("g", "b", "n2"), facts=PodFacts(namespace="default", never_evict=True))
    snapshot = cluster(
        [pod_group("g")], [member("g", "a", "n1", XL), b, make_pod("h", "n2", HIGH, L)], policy=kept
    )

    refused = refusal(snapshot, preemptor())

    if words:
        assert refused.exempt == {"never-evict": 1, "pod-group": 1}
        assert words in details(refused)["a"]
    else:
        assert refused.node_reasons["More victims than an order may have"] == 1


def test_a_toleration_of_one_pod_elsewhere_keeps_the_whole_unit_until_it_ends() -> None:
    b = msgspec.structs.replace(
        member("g", "b", "n2"), facts=msgspec.structs.replace(scheduled(10, "calm"), namespace="default")
    )
    pods = [member("g", "a", "n1", XL), b, make_pod("h", "n2", HIGH, L)]
    snapshot = cluster([pod_group("g")], pods, classes=[make_class("calm", 1_000_000, 300)])

    refused = refusal(snapshot, preemptor())

    assert refused.exempt == {"preemption-toleration": 2}
    [told] = {
        one.verdict.detail for near in refused.nearest for one in near.exempt.pods if one.pod.uid == "a"
    }
    assert "pod default/b is kept by preemption-toleration" in told
    assert refused.retry_at == NOW + timedelta(seconds=290, milliseconds=1)
    as_a(Plan, plan(snapshot, preemptor(), NOW + timedelta(seconds=291)))


def test_a_hard_budget_of_one_pod_elsewhere_keeps_the_whole_unit() -> None:
    policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))
    pods = [
        member("g", "a", "n1", XL),
        member("g", "b", "n2", labels={"app": "x"}),
        make_pod("h", "n2", HIGH, L),
    ]
    snapshot = cluster([pod_group("g")], pods, policy=policy, budgets=[make_budget("pdb", {"app": "x"}, 0)])

    assert "a hard disruption budget" in details(refusal(snapshot, preemptor()))["a"]
    snapshot = cluster([pod_group("g")], pods, policy=policy, budgets=[make_budget("pdb", {"app": "x"}, 1)])
    assert victims(snapshot, preemptor()) == {"n1": ["a", "b"]}


def test_a_pod_elsewhere_whose_deletion_was_refused_keeps_the_whole_unit() -> None:
    snapshot = cluster(
        [pod_group("g")], [member("g", "a", "n1", XL), member("g", "b", "n2"), make_pod("h", "n2", HIGH, L)]
    )
    asked = preemptor()
    assert victims(snapshot, asked) == {"n1": ["a", "b"]}

    refused = refusal(snapshot, replace(asked, refused=frozenset({"b"})))

    assert "pod default/b is kept by delete-refused" in details(refused)["a"]
    assert victims(snapshot, asked) == {"n1": ["a", "b"]}


def test_a_unit_of_which_a_part_is_leaving_stays() -> None:
    snapshot = cluster(
        [pod_group("g")], [member("g", "a", "n1", XL), member("g", "b", "n2"), make_pod("h", "n2", HIGH, L)]
    )

    refused = refusal(snapshot, replace(preemptor(), in_flight={"b": "order-1"}))

    assert "a part of it is leaving" in details(refused)["a"]


def test_a_unit_that_an_order_removes_whole_is_awaited() -> None:
    snapshot = cluster(
        [pod_group("g")], [member("g", "a", "n1", XL), member("g", "b", "n1", 0)], nodes=["n1"]
    )

    found = as_a(Plan, plan(snapshot, replace(preemptor(), in_flight={"a": "o", "b": "o"}), NOW))

    assert found.candidates[0].victims == ()
    assert [one.pod.uid for one in found.candidates[0].awaited] == ["a"]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([], "PodGroup default/g does not exist"),
        ([pod_group("g", parent="c")], "CompositePodGroup default/c"),
        ([pod_group("g", parent="c"), pod_group("c", parent="c", composite=True)], "form a cycle"),
        ([GroupRecord(key=GroupKey("other", "g"), uid="u", whole=False)], "does not exist"),
    ],
)
def test_a_pod_of_which_it_is_unknown_what_goes_with_it_stays(groups: list[GroupRecord], words: str) -> None:
    snapshot = cluster(groups, [member("g", "a", "n1", XL)], nodes=["n1"])

    refused = refusal(snapshot, preemptor())

    assert refused.exempt == {"pod-group": 1}
    assert words in details(refused)["a"]


def test_a_refusal_for_a_group_is_made_again_soon_as_no_scheduler_follows_groups() -> None:
    kept = cluster([], [member("g", "a", "n1", XL)], nodes=["n1"])
    other = cluster([], [make_pod("h", "n1", HIGH, XL)], nodes=["n1"])

    assert refusal(kept, preemptor()).retry_at == NOW + timedelta(seconds=15)
    assert refusal(other, preemptor()).retry_at is None


def test_pods_stay_until_groups_have_been_listed() -> None:
    snapshot = make_snapshot(["n1"], [])
    snapshot.apply(KnowPodGroups(True, False, False))
    snapshot.apply(PutPod(member("g", "a", "n1", XL)))
    assert "have not been read yet" in details(refusal(snapshot, preemptor()))["a"]

    snapshot.apply(PutPodGroup(pod_group("g")))
    snapshot.apply(KnowPodGroups(True, True, False))

    assert victims(snapshot, preemptor()) == {"n1": ["a"]}


def test_a_group_that_is_deleted_or_changed_is_seen_by_the_next_plan() -> None:
    snapshot = cluster([pod_group("g")], [member("g", "a", "n1", XL), member("g", "b", "n2", 0)])
    assert victims(snapshot, preemptor())["n1"] == ["a", "b"]

    snapshot.apply(RemovePodGroup(GroupKey("default", "g")))
    refused = refusal(snapshot, ask(preemptor().preemptor, nodes=["n1"]))
    assert "does not exist" in details(refused)["a"]
    snapshot.apply(PutPodGroup(pod_group("g", whole=False)))
    assert victims(snapshot, preemptor())["n1"] == ["a"]
    snapshot.apply(PutPodGroup(pod_group("g", priority=2000)))
    assert refusal(snapshot, preemptor()).reason == "NoLowerPriorityPods"


def test_a_group_of_5000_pods_is_refused_and_holds_no_event() -> None:
    nodes = [make_node(f"n{n}", 500) for n in range(50)]
    policy = Policy(limits=PolicyLimits(victims_per_order=1_000_000))
    pods = [member("g", f"m{n:04}", f"n{n % 50}", 5, start=n) for n in range(5000)]
    snapshot = cluster([pod_group("g")], pods, nodes=nodes, policy=policy)

    refused = refusal(snapshot, preemptor())

    assert refused.exempt == {"pod-group": 5000}
    assert any(
        "5000 pods are more than an order may name (1000)" in text for text in details(refused).values()
    )


def test_surplus_members_of_a_gang_go_before_those_whose_end_would_break_it() -> None:
    gang, other = pod_group("g", whole=False, min_count=2), pod_group("k", whole=False, min_count=1)
    pods = [
        *(member("g", f"a{n}", "n1", S, start=5) for n in range(2)),
        *(member("k", f"b{n}", "n1", S, start=1) for n in range(2)),
    ]
    full = [*pods, make_pod("h", "n1", HIGH, S)]
    surplus = cluster([gang, other], full, nodes=["n1"])
    upstream = cluster([gang, other], full, nodes=["n1"], policy=Policy(groups=Groups(surplus_first=False)))

    assert victims(surplus, preemptor(S)) == {"n1": ["b1"]}
    assert victims(upstream, preemptor(S)) == {"n1": ["a1"]}


def test_members_that_a_live_order_removes_are_no_surplus_of_their_gang_any_more() -> None:
    gang, other = pod_group("g", whole=False, min_count=2), pod_group("k", whole=False, min_count=1)
    pods = [
        *(member("g", f"a{n}", "n1", S, start=5) for n in range(2)),
        member("k", "b1", "n1", S, start=1),
        member("k", "b2", "n2", S, start=1),
        make_pod("h1", "n1", HIGH, M),
        make_pod("h2", "n2", HIGH, S + L),
    ]
    snapshot = cluster([gang, other], pods)

    assert victims(snapshot, preemptor(S)) == {"n1": ["b1"], "n2": ["b2"]}
    assert victims(snapshot, replace(preemptor(S), in_flight={"b2": "o"}))["n1"] == ["a1"]


# ------------------------------------ constraints wider than a node: upstream's cases "Cross-node PodGroup"


def wide(*pods: PodRecord) -> Snapshot:
    """Nodes node-a and node-b in zone z1, node-c in z2, with a group of mode all."""
    nodes = [
        replace_labels(make_node(f"node-{name}"), {"zone": zone})
        for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2"))
    ]
    return cluster([pod_group("g")], pods, nodes=nodes)


def replace_labels(node: NodeRecord, labels: dict[str, str]) -> NodeRecord:
    return msgspec.structs.replace(node, labels=labels)


def asking(**constraints: Any) -> Question:
    manifest = manifests.pod("p", priority=HIGH, cpu="0", **constraints)
    return manifests.question(manifest)


FOO = {"foo": "x"}


def test_a_zone_wide_anti_affinity_is_cured_by_a_pod_of_the_unit_on_another_node() -> None:
    snapshot = wide(member("g", "x", "node-a"), member("g", "y", "node-b", labels=FOO))
    asked = asking(affinity=manifests.anti_affinity(manifests.term("zone", FOO)))

    assert victims(snapshot, asked) == {"node-a": ["x", "y"], "node-b": ["x", "y"]}


def test_a_spread_over_zones_is_cured_by_all_pods_of_the_unit_and_never_without_one_on_the_node() -> None:
    snapshot = wide(
        member("g", "a", "node-a", labels=FOO),
        member("g", "b", "node-b", labels=FOO),
        make_pod("c", "node-c", 2000, labels=FOO),
    )
    asked = asking(labels=FOO, topologySpreadConstraints=[manifests.spread("zone", FOO)])

    found = victims(snapshot, asked)

    assert found["node-a"] == ["a", "b"]
    assert "node-c" not in found


def test_a_unit_cures_no_anti_affinity_of_a_zone_where_none_of_its_pods_matches() -> None:
    snapshot = wide(
        member("g", "x", "node-c", labels=FOO),
        member("g", "y", "node-a"),
        make_pod("alone", "node-b", labels=FOO),
    )
    asked = asking(affinity=manifests.anti_affinity(manifests.term("zone", FOO)))

    assert victims(snapshot, asked) == {"node-b": ["alone"], "node-c": ["x", "y"]}


def test_a_host_port_that_a_unit_uses_on_another_node_frees_none_here() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]

    def using(pod: PodRecord) -> PodRecord:
        used = pod_record(manifests.pod(pod.uid, pod.node, ports=port))
        return msgspec.structs.replace(pod, signature=used.signature)

    snapshot = wide(
        using(member("g", "x", "node-c")), member("g", "y", "node-a"), using(make_pod("w", "node-a", MID))
    )

    found = victims(snapshot, manifests.question(manifests.pod("p", priority=HIGH, cpu="0", ports=port)))

    assert found["node-a"] == ["w"]


def test_pods_of_a_unit_elsewhere_count_against_a_guarantee_that_no_single_node_could_break() -> None:
    def cluster_with(guaranteed: int) -> Snapshot:
        own = f"{{name: default, resources: {{guaranteed: {{memory: {guaranteed}}}}}}}"
        pods = [member("g", name, node, M) for name, node in (("a", "n1"), ("b", "n2"), ("c", "n3"))]
        found = cluster([pod_group("g")], [*pods, make_pod("d", "n2", HIGH, L)], nodes=["n1", "n2", "n3"])
        text = f"partitions: [{{queues: [{own}, {{name: a}}]}}]"
        found.apply(Adopt(parse_queues(text, "queues.yaml").tree, "r", None))
        return found

    facts = PodFacts(queue="root.a")
    asked = ask(make_pod("p", priority=HIGH, size=XL, labels={"queue": "root.a"}, facts=facts))

    assert victims(cluster_with(300), asked) == {"n1": ["a", "b", "c"], "n3": ["a", "b", "c"]}
    kept = refusal(cluster_with(301), asked)
    assert "queue root.default would be below its guarantee" in details(kept)["a"]


def test_a_quota_sees_a_unit_as_one_also_where_its_group_comes_after_its_pods() -> None:
    text = "partitions: [{queues: [{name: default}]}]"
    snapshot = cluster([], [member("g", "a", "n1"), make_pod("b", "n1")], nodes=["n1"])
    snapshot.apply(Adopt(parse_queues(text, "queues.yaml").tree, "r", None))

    def found() -> dict[str, str]:
        by_leaf = snapshot.queues.members_of(["a", "b"])
        return {",".join(one.uids): one.exempt for units in by_leaf.values() for one in units}

    assert found() == {"a": "pod-group", "b": ""}
    snapshot.apply(PutPodGroup(pod_group("g", whole=False)))
    assert found() == {"a": "", "b": ""}
    snapshot.apply(PutPodGroup(pod_group("g")))
    assert found() == {"a": "", "b": ""}
    snapshot.apply(PutPod(member("g", "c", "n1")))
    assert found() == {"b": ""}
    assert {one.uids for one in snapshot.queues.members_of("abc")[snapshot.queues.leaf_of("a")]} == {
        ("a", "c"),
        ("b",),
    }


def test_a_unit_of_which_the_first_pod_is_being_bound_stays_and_others_are_planned_for() -> None:
    snapshot = cluster(
        [pod_group("g")], [member("g", "a", "", M), make_pod("b", "n1", size=L), make_pod("c", "n2", MID, XL)]
    )
    asked = ask(make_pod("p", priority=HIGH, size=L), assumed=[("a", "n1")])

    assert victims(snapshot, asked) == {"n1": ["b"], "n2": ["c"]}
