"""Pods on a dump: which fit, which would preempt which, which are refused, one after the other."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from makeway.core.policy.document import DaemonSets, Policy, PolicyLimits
from makeway.planner.offline.applying import applied
from makeway.planner.offline.manifests import Manifest, ManifestError, documents
from makeway.planner.offline.world import World
from narrowing import there
from unit.planner.offline_building import Object, budget, names, node, pod, priority_class, simulated, world


def pods_of(found: list[Manifest], cluster: World | None = None) -> list[Manifest]:
    """Return the pods that a file asks for."""
    return [new.manifest for new in applied(cluster or World(), [(found, "x")], "default").pods]


def test_a_pod_that_fits_is_said_to_fit_and_takes_no_pods_place() -> None:
    (answer,) = simulated(world(node("a"), node("b"), pod("p", "a")), pod("new", priority=1000))

    assert (answer.result, answer.node, answer.nominated_node) == ("fits", "b", None)
    assert (answer.victims, answer.candidates, answer.diagnosis) == ((), (), None)
    assert answer.nodes_fitting == 2


def test_each_pod_finds_the_cluster_as_the_one_before_left_it() -> None:
    cluster = world(node("a"), pod("x", "a", cpu="2", priority=0), pod("y", "a", cpu="2", priority=10))

    first, second, third = simulated(
        cluster,
        pod("one", cpu="2", priority=100),
        pod("two", cpu="2", priority=100),
        pod("three", cpu="2", priority=100),
    )

    assert (first.nominated_node, names(first)) == ("a", ["x"])
    assert (second.nominated_node, names(second)) == ("a", ["y"])
    assert third.result == "refused"
    assert there(third.diagnosis).reason == "NoLowerPriorityPods"


def test_a_budget_that_one_pod_has_used_up_is_used_up_for_the_next() -> None:
    web = {"app": "web"}
    cluster = world(
        node("a", "1"),
        node("b", "1"),
        pod("w1", "a", labels=web, priority=0),
        pod("w2", "b", labels=web, priority=0),
        budget("web", web, 1),
    )

    first, second = simulated(cluster, pod("one", priority=9), pod("two", priority=8))

    assert (first.pdb_violations, second.pdb_violations) == (0, 1)


def test_all_candidates_names_every_node_that_would_do_with_its_victims() -> None:
    objects = [
        thing for n in range(30) for thing in (node(f"n{n}"), pod(f"p{n}", f"n{n}", cpu="4", priority=n))
    ]
    (few,) = simulated(world(*objects), pod("new", priority=25))
    (every,) = simulated(world(*objects), pod("new", priority=25), all_candidates=True)

    assert (len(few.candidates), few.candidates_total) == (16, 25)
    assert [one.victims[0].name for one in every.candidates] == [f"p{n}" for n in range(25)]
    assert every.candidates[0].victims == every.victims


@pytest.mark.parametrize(
    ("spec", "taints", "reason"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, [], "Node selector or affinity does not match"),
        ({}, [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], "Untolerated taint"),
        ({"cpu": "5"}, [], "Node too small: cpu"),
    ],
)
def test_a_node_that_no_removal_helps_is_no_candidate_and_says_why(
    spec: dict[str, Any], taints: list[Object], reason: str
) -> None:
    cluster = world(node("a", taints=taints), pod("p", "a", cpu="4", priority=0))

    (answer,) = simulated(cluster, pod("new", priority=10, **spec))

    assert answer.nodes_excluded == {reason: 1}
    assert there(answer.diagnosis).node_reasons == {reason: 1}


@pytest.mark.parametrize("taken", [False, True])
def test_what_no_node_offers_fits_nowhere_whoever_else_asks_for_it(taken: bool) -> None:
    containers = [{"resources": {"requests": {"cpu": "1", "x.io/gpu": "1"}}}]
    more: dict[str, Any] = {"containers": containers} if taken else {}
    other = pod("other", "a", priority=0, **more)

    (answer,) = simulated(world(node("a"), other), pod("new", priority=10, containers=containers))

    assert answer.result == "refused"
    assert answer.nodes_excluded == {"Node too small: x.io/gpu": 1}


def test_a_cordoned_node_is_left_out_though_its_taint_is_missing() -> None:
    (answer,) = simulated(world(node("a", unschedulable=True), node("b", "1")), pod("new"))

    assert answer.node == "b"


def test_a_node_that_is_too_small_counts_as_the_scheduler_counts_it_where_a_port_is_taken_too() -> None:
    """NodePorts is asked before NodeResourcesFit, and may be helped."""
    port = [{"hostPort": 80, "containerPort": 80}]
    cluster = world(node("a"), pod("p", "a", ports=port, priority=0))

    (answer,) = simulated(cluster, pod("new", cpu="9", ports=port, priority=10))

    assert (answer.nodes_potential, answer.nodes_excluded) == (1, {})


def test_priorities_come_from_classes_as_admission_would_set_them() -> None:
    cluster = world(
        node("a"),
        priority_class("high", 900, preemptionPolicy="Never"),
        priority_class("base", 5, globalDefault=True),
    )

    named, unnamed, told = simulated(
        cluster, pod("x", priorityClassName="high"), pod("y"), pod("z", priority=7)
    )

    assert [one.preemptor.priority for one in (named, unnamed, told)] == [900, 5, 7]
    assert "priorityClassName" in told.warnings[0]
    with pytest.raises(ManifestError, match="no PriorityClass other; there are: base, high"):
        simulated(cluster, pod("v", priorityClassName="other"))


def test_room_is_made_for_a_pod_of_a_class_that_is_opted_in_for_the_nominator() -> None:
    opted_in = priority_class("urgent", 9, preemptionPolicy="Never")
    opted_in["metadata"]["annotations"] = {"makeway.dev/preemption": "external"}
    cluster = world(node("a"), pod("p", "a", cpu="4", priority=0), opted_in)

    (answer,) = simulated(cluster, pod("new", cpu="4", priorityClassName="urgent"))

    assert [victim.name for victim in answer.victims] == ["p"]


def test_a_pod_that_may_not_preempt_is_refused_for_that() -> None:
    cluster = world(node("a"), pod("p", "a", cpu="4", priority=0))

    (answer,) = simulated(cluster, pod("new", priority=9, preemptionPolicy="Never"))

    assert there(answer.diagnosis).reason == "PreemptionPolicyNever"


def test_a_limit_without_a_request_asks_for_as_much() -> None:
    cluster = world(node("a"), pod("p", "a", cpu="2", priority=0))
    new = pod("new", priority=9)
    new["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "3"}}

    (answer,) = simulated(cluster, new)

    assert names(answer) == ["p"]


def test_a_pod_held_by_gates_is_refused_for_them() -> None:
    (answer,) = simulated(world(node("a")), pod("new", schedulingGates=[{"name": "wait"}]))

    assert (answer.result, there(answer.diagnosis).reason) == ("refused", "SchedulingGated")


def test_a_pending_pod_of_the_cluster_is_the_same_pod_and_a_running_one_is_in_the_way() -> None:
    waiting = pod("w", priority=0, status={"phase": "Pending", "nominatedNodeName": "a"})
    cluster = world(node("a"), waiting, pod("p", "a", priority=0))

    (answer,) = simulated(cluster, pod("w", priority=0))

    assert answer.preemptor.uid == "uid-w"
    with pytest.raises(ManifestError, match="there already, on node a"):
        simulated(cluster, pod("p", priority=0))


def test_a_pod_with_the_uid_of_another_one_does_not_stand_in_its_place() -> None:
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=9))
    (uid,) = cluster.snapshot.pods
    new = pod("new", cpu="4", priority=0)
    new["metadata"]["uid"] = uid

    (answer,) = simulated(cluster, new)

    assert answer.result == "refused"
    assert uid in cluster.snapshot.pods


def test_a_nomination_of_a_greater_pod_keeps_its_place() -> None:
    waiting = pod("w", cpu="4", priority=50, status={"phase": "Pending", "nominatedNodeName": "a"})

    (answer,) = simulated(world(node("a"), waiting), pod("new", priority=10))

    assert answer.result == "refused"


def test_pods_that_have_ended_take_no_room() -> None:
    cluster = world(node("a"), pod("done", "a", cpu="4", status={"phase": "Succeeded"}))

    assert simulated(cluster, pod("new"))[0].result == "fits"


def test_the_policy_in_force_binds_the_simulation() -> None:
    cluster = world(node("a"), *(pod(f"p{n}", "a", priority=0) for n in range(4)))
    cluster.enforce(Policy(mode="observe", limits=PolicyLimits(victims_per_order=1)), "rev")

    (answer,) = simulated(cluster, pod("new", cpu="2", priority=9))

    assert answer.mode == "observe"
    assert there(answer.diagnosis).reason == "ForbiddenByPolicy"


def test_workloads_stand_for_their_pods() -> None:
    text = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, template: {spec: {containers: [{name: c}]}}}
---
kind: List
items:
- kind: Job
  metadata: {name: batch}
  spec: {template: {spec: {containers: [{name: c}]}}}
- kind: Pod
  metadata: {generateName: one-}
  spec: {containers: [{name: c}]}
"""
    pods = pods_of(documents(text, "x"))

    assert [one["metadata"]["name"] for one in pods] == ["web-0", "web-1", "batch-0", "one-0"]
    assert pods[0]["metadata"]["namespace"] == "shop"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no pods in it"),
        ("kind: Service", "no pods in it, only 1 Service"),
        ("a: 1", "a document without kind"),
        ('{"kind": "Pod"}{"kind": "Po', "not YAML"),
        ("- a", "document 1 is list"),
        ("a: [", "not YAML"),
        ("kind: Job\nmetadata: {name: j}", "Job j has no spec.template"),
        ("kind: Deployment\nspec: [1]", "the API server would not take this Deployment"),
        ("kind: StatefulSet\nspec: {ordinals: 1, template: {}}", "not take this StatefulSet"),
        ("kind: DaemonSet\nspec: {template: {spec: 1}}", "not take this DaemonSet"),
        ("kind: List\nitems: [1]", "not take this List"),
        ("kind: Deployment\nspec: {replicas: -1, template: {}}", "spec.replicas is no number"),
    ],
)
def test_a_file_without_usable_pods_says_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        pods_of(documents(text, "x"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metadata": {}}, "no metadata.name"),
        ({"spec": {}}, "no spec.containers"),
        ({"spec": {"containers": [{"resources": {"requests": {"cpu": "1x"}}}]}}, "1x"),
        ({"spec": {"containers": [{}], "nodeName": "a"}}, "spec.nodeName"),
        ({"spec": {"containers": [7]}}, "pods.yaml: pod default/new"),
        ({"spec": {"containers": [{}], "priority": "high"}}, "Expected `int"),
    ],
)
def test_a_pod_that_the_api_server_would_refuse_says_why(change: Object, told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        simulated(world(node("a")), {**pod("new"), **change})


@settings(max_examples=int(0.6 * settings().max_examples))
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    running=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)), max_size=8),
    coming=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=6),
)
def test_no_node_ever_holds_more_than_it_can_and_only_lesser_pods_leave(
    sizes: list[int], running: list[tuple[int, int, int]], coming: list[tuple[int, int]]
) -> None:
    held: Counter[str] = Counter()
    pods: dict[str, tuple[str, int, int]] = {}
    for number, (at, cpu, priority) in enumerate(running):
        name = f"n{at % len(sizes)}"
        if held[name] + cpu <= sizes[at % len(sizes)]:
            held[name] += cpu
            pods[f"p{number}"] = (name, cpu, priority)
    cluster = world(
        *(node(f"n{number}", str(size)) for number, size in enumerate(sizes)),
        *(pod(name, on, cpu=str(cpu), priority=priority) for name, (on, cpu, priority) in pods.items()),
    )

    asked = [pod(f"new{number}", cpu=str(cpu), priority=p) for number, (cpu, p) in enumerate(coming)]
    for (cpu, priority), answer in zip(coming, simulated(cluster, *asked), strict=True):
        for victim in names(answer):
            on, freed, lower = pods.pop(victim)
            assert on == answer.node
            assert lower < priority
            held[on] -= freed
        if answer.node is not None:
            held[answer.node] += cpu
            pods[answer.name] = (answer.node, cpu, priority)
            assert held[answer.node] <= sizes[int(answer.node[1:])]
        else:
            lesser = Counter[str]()
            for on, taken, lower in pods.values():
                lesser[on] += taken if lower < priority else 0
            assert all(held[f"n{n}"] - lesser[f"n{n}"] + cpu > size for n, size in enumerate(sizes))


def daemon_set(**spec: Any) -> Object:
    """A DaemonSet of 1 CPU a pod."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [container], **spec}}
    return {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": template}}


def test_a_daemon_set_has_a_pod_on_each_node_that_it_selects_and_only_there() -> None:
    taint = [{"key": "gpu", "effect": "NoSchedule"}]
    cluster = world(
        node("a", labels={"disk": "ssd"}),
        node("b"),
        node("c", labels={"disk": "ssd"}, taints=taint),
        node("d", labels={"disk": "ssd"}, unschedulable=True),
        pod("p", "a", cpu="4", priority=0),
    )
    manifests = pods_of([daemon_set(nodeSelector={"disk": "ssd"})], cluster)

    first, second = simulated(cluster, *manifests)

    assert [one["metadata"]["name"] for one in manifests] == ["agent-a", "agent-d"]
    assert first.result == "refused"
    assert there(first.diagnosis).reason == "NoLowerPriorityPods"
    assert (second.result, second.node) == ("fits", "d")


def test_the_pods_of_a_daemon_set_are_judged_by_the_policy_for_daemon_sets() -> None:
    cluster = world(node("a"), pod("small", "a", priority=0), pod("large", "a", cpu="3", priority=0))
    cluster.enforce(Policy(daemon_sets=DaemonSets(enabled=True, namespaces=("default",))), "policy")

    (answer,) = simulated(cluster, *pods_of([daemon_set()], cluster))

    assert (answer.result, names(answer)) == ("preempts", ["small"])
    assert answer.victims[0].rule == "daemonset-single"


def test_a_daemon_set_that_selects_no_node_is_said_to() -> None:
    with pytest.raises(ManifestError, match="x: DaemonSet agent selects no node"):
        pods_of([daemon_set(nodeSelector={"disk": "ssd"})], world(node("a")))


def apart(*, match: list[str] | None = None, mismatch: list[str] | None = None) -> Object:
    """Required anti-affinity to pods of app web on the same node, narrowed by label keys."""
    keys = {"matchLabelKeys": match or [], "mismatchLabelKeys": mismatch or []}
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    term = {**selector, **keys, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("affinity", "result"),
    [
        (apart(), "preempts"),
        (apart(match=["rev"]), "fits"),
        (apart(mismatch=["rev"]), "preempts"),
        (apart(match=["unknown"]), "preempts"),
    ],
)
def test_label_keys_of_an_affinity_are_merged_as_the_api_server_does(affinity: Object, result: str) -> None:
    cluster = world(node("a"), pod("old", "a", labels={"app": "web", "rev": "1"}, priority=0))

    (answer,) = simulated(
        cluster, pod("new", labels={"app": "web", "rev": "2"}, priority=9, affinity=affinity)
    )

    assert answer.result == result


def test_a_mismatch_key_leaves_pods_of_the_same_value_alone() -> None:
    cluster = world(node("a"), pod("old", "a", labels={"app": "web", "rev": "1"}, priority=0))

    (answer,) = simulated(
        cluster, pod("new", labels={"app": "web", "rev": "1"}, priority=9, affinity=apart(mismatch=["rev"]))
    )

    assert answer.result == "fits"


def test_a_deployments_pods_are_of_a_revision_of_their_own() -> None:
    template = pod("x", labels={"app": "web"}, affinity=apart(match=["pod-template-hash"]))
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"metadata": template["metadata"], "spec": template["spec"]}},
    }
    old = {"app": "web", "pod-template-hash": "5d4f"}
    cluster = world(node("a"), pod("old", "a", labels=old, priority=0))

    first, second = simulated(cluster, *pods_of([deployment]))

    assert first.result == "fits"
    assert second.result == "refused"


@pytest.mark.parametrize(("own", "result"), [({}, "refused"), ({"requests": {"cpu": "1"}}, "fits")])
def test_a_limit_of_the_whole_pod_asks_for_as_much(own: Object, result: str) -> None:
    new = pod("new", priority=9)
    new["spec"]["containers"][0]["resources"] = own
    new["spec"]["resources"] = {"limits": {"cpu": "8"}}

    (answer,) = simulated(world(node("a"), node("b")), new)

    assert answer.result == result


@pytest.mark.parametrize("effect", ["PreferNoSchedule", "NoSchedule", "NoExecute", None])
def test_every_pod_tolerates_a_node_that_is_not_ready_whatever_else_it_tolerates(effect: str | None) -> None:
    taint = [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]
    toleration = {"operator": "Exists", **({"effect": effect} if effect else {})}

    (answer,) = simulated(world(node("a", taints=taint)), pod("new", tolerations=[toleration]))

    assert answer.result == "fits"


def test_nodes_that_no_removal_helps_are_counted_apart_from_those_that_lack_room() -> None:
    cluster = world(node("a", "1"), node("b", unschedulable=True), pod("x", "a", priority=9))

    (answer,) = simulated(cluster, pod("new", priority=0))

    assert there(answer.diagnosis).node_reasons == {"No pods of lower priority": 1}
    assert answer.nodes_excluded == {"Node is cordoned": 1}
