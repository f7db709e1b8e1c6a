"""A drawn cluster as its users have it: manifests, a policy and queues; and the planner's world of them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from builders_bus import plan_request
from makeway.bus.plan import NodeSelection
from makeway.core.k8s import objects
from makeway.core.k8s.times import api_time
from makeway.core.policy.document import Policy, parse_policy
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from makeway.core.policy.toleration_record import CONFIGMAP, entry_of
from makeway.core.queues.parsing import parse_queues
from makeway.core.queues.tree import QueueTree
from makeway.planner.offline import configuring
from makeway.planner.offline.asking import as_asked
from makeway.planner.offline.dump import world_of
from makeway.planner.offline.world import World
from makeway.planner.plan.request import Question, question_of
from makeway.planner.snapshot.changes import PutPod
from pairs.drawing import ENVS, Case, Condition, Pod, PriorityClass, Rule, Side

NOW: Final = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
VALUE: Final = 0
"""Of every class but the preemptor's."""
DAEMONSET: Final = "agent"
START_DELAY: Final = 10
Manifest = dict[str, Any]


def world(case: Case) -> World:
    """Return the cluster as it is read from a dump, with policy, queues and the record of tolerations."""
    found = world_of(msgspec.json.encode({"kind": "List", "items": _objects(case)}), "dump")[0]
    configuring.enforce(found, policy_text(case), "policy")
    if case.queues:
        configuring.adopt(found, queues_text(case), "queues")
    configuring.take(found, {CONFIGMAP: record(case)}, "makeway-system")
    return found


def question(case: Case, there: World, nodes: tuple[int, ...]) -> Question:
    """Ask for the preemptor on some nodes, as plugin and nominator do; it is put into the snapshot."""
    manifest = preemptor(case)
    on = NodeSelection(names=tuple(f"n{node}" for node in nodes))
    asked = question_of(plan_request(manifest, nodes=on), {})
    there.snapshot.apply(PutPod(asked.preemptor))
    return as_asked(there.snapshot, asked, msgspec.convert(manifest, objects.Pod))


def policy(case: Case) -> Policy:
    """Return the policy in force."""
    return parse_policy(policy_text(case), "policy")


def policy_text(case: Case) -> str:
    """Return policy.yaml; JSON is YAML."""
    limits = {"victimsPerOrder": case.victims_per_order}
    if case.on("caps"):
        limits["victimsPerMinute"] = case.victims_per_order
    document: Manifest = {
        "apiVersion": "makeway.dev/v1",
        "kind": "Policy",
        "mode": "enforce",
        "limits": limits,
    }
    protection: Manifest = {}
    if case.on("protection"):
        protection = {"namespaces": ["vault"], "minimumPriority": 5, "neverEvictNamespaces": ["tools"]}
    document["protection"] = protection
    if case.on("hard-budgets"):
        document |= {"disruptionBudgets": "hard", "hardBudgetNamespaces": ["shop"]}
    if case.on("daemonset"):
        document["daemonSets"] = {
            "enabled": True,
            "namespaces": ["agents"],
            "beyond_own_namespace": ["agents"],
            "preemption_start_delay": f"{START_DELAY}s",
            "multiple_max_victims": 20,
        }
    if case.rules:
        rules = [_rule(number, rule) for number, rule in enumerate(case.rules)]
        document["preemption"] = {"rules": rules}
    return msgspec.json.encode(document).decode()


def _rule(number: int, rule: Rule) -> Manifest:
    found: Manifest = {
        "name": f"rule-{number}",
        "preemptors": _side(rule.preemptors),
        "victims": _side(rule.victims),
        "action": "allow" if rule.allow else "deny",
    }
    return found | ({"minimumRunTime": f"{rule.least}s"} if rule.least else {})


def _side(side: Side) -> Manifest:
    return {
        "namespaceSelector": _selector("env", side.env),
        "labelSelector": _selector("tier", side.tier),
        "priorityClasses": side.classes,
        "queues": side.queues,
    }


def _selector(key: str, condition: Condition | None) -> Manifest:
    if condition is None:
        return {}
    if condition.operator == "In":
        return {"matchLabels": {key: condition.values[0]}}
    return {"matchExpressions": [{"key": key, "operator": condition.operator, "values": condition.values}]}


def namespaces(case: Case) -> list[Manifest]:
    """Return the namespaces, where rules may ask for their labels."""
    return [
        {"kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": {"env": env} if env else {}}}
        for name, env in (ENVS.items() if case.rules else ())
    ]


def queues_text(case: Case, *, before: bool = False) -> str:
    """Return queues.yaml; `before`: as it was until a maximum was set."""
    found: dict[str, Manifest] = {}
    for path, limits in case.queues.items():
        resources: Manifest = {}
        if limits.guaranteed:
            resources["guaranteed"] = {"vcore": limits.guaranteed}
        if limits.maximum is not None and not (before and limits.lowered):
            resources["max"] = {"vcore": limits.maximum}
        if limits.lowered:
            resources["quota.preemption.delay"] = 60
        found[path] = {"name": path.rpartition(".")[2], "resources": resources}
    for path, queue in found.items():
        if (above := found.get(path.rpartition(".")[0])) is not None:
            above.setdefault("queues", []).append(queue)
    queues = [queue for path, queue in found.items() if path.rpartition(".")[0] == "root"]
    partition = {"preemption": {"quotapreemptionenabled": True}, "unplaced": "default", "queues": queues}
    return msgspec.json.encode({"partitions": [partition]}).decode()


def tree(case: Case, *, before: bool = False) -> QueueTree:
    """Return the queues as a tree."""
    return parse_queues(queues_text(case, before=before), "queues").tree


def record(case: Case) -> dict[str, str]:
    """Return the data of the record of tolerations."""
    return {name: entry_of(a_class(name, one)) for name, one in case.classes.items() if one.recorded}


def a_class(name: str, one: PriorityClass) -> objects.PriorityClass:
    """Return a class as it is, or was."""
    annotations = {TOLERATION_SECONDS: str(one.seconds)}
    if one.minimum is not None:
        annotations[MINIMUM_PREEMPTABLE_PRIORITY] = str(one.minimum)
    return objects.PriorityClass(metadata=objects.Metadata(name=name, uid=name, annotations=annotations))


def classes(case: Case) -> dict[str, objects.PriorityClass]:
    """Return the classes that exist."""
    found = {name: a_class(name, one) for name, one in case.classes.items() if not one.gone}
    if case.on("external"):
        metadata = objects.Metadata(name="external", uid="external", annotations={ANNOTATION: EXTERNAL})
        found["external"] = objects.PriorityClass(
            metadata=metadata, value=case.preemptor.priority, preemption_policy="Never"
        )
    return found


def running(case: Case, pod: Pod) -> Manifest:
    """Return a bound pod as the API server has it."""
    manifest = _pod(case, pod)
    meta = manifest["metadata"]
    meta |= {"uid": uid(pod), "resourceVersion": "1", "creationTimestamp": _ago(pod.scheduled_ago)}
    if pod.left is not None:
        meta |= {"deletionTimestamp": _ago(-pod.left), "deletionGracePeriodSeconds": 300}
    manifest["spec"]["nodeName"] = f"n{pod.node}"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _ago(pod.scheduled_ago)}
    ready = {"type": "Ready", "status": "True"}
    manifest["status"] = {
        "phase": "Running",
        "startTime": _ago(pod.scheduled_ago),
        "conditions": [scheduled, ready],
    }
    return manifest


def preemptor(case: Case) -> Manifest:
    """Return the pod that needs room, as its scheduler last wrote it."""
    manifest = _pod(case, case.preemptor)
    manifest["metadata"] |= {"uid": uid(case.preemptor), "resourceVersion": "1"}
    manifest["spec"]["schedulerName"] = "default-scheduler"
    unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    manifest["status"] = {
        "phase": "Pending",
        "conditions": [unfit | {"lastTransitionTime": _ago(case.waited)}],
    }
    if case.on("external"):
        manifest["spec"]["preemptionPolicy"] = "Never"
    if case.preemptor.daemon:
        field = {"key": "metadata.name", "operator": "In", "values": [f"n{case.preemptor.node}"]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        manifest["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    return manifest


def uid(pod: Pod) -> str:
    """Return a pod's UID."""
    return f"uid-{pod.name}"


def _pod(case: Case, pod: Pod) -> Manifest:
    labels = {"budget": pod.budget} if pod.budget else {}
    labels |= {"queue": pod.queue} if pod.queue else {}
    labels |= {"tier": pod.tier} if pod.tier else {}
    meta: Manifest = {"name": pod.name, "namespace": pod.namespace, "labels": labels}
    if pod.daemon:
        labels["daemon"] = "yes"
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMONSET, "controller": True}
        meta["ownerReferences"] = [owner | {"uid": f"ds-{pod.namespace}"}]
    if pod.never_evict:
        meta["annotations"] = {"makeway.dev/never-evict": "true"}
    container = {"name": "c", "resources": {"requests": {"cpu": str(pod.cpu)}}}
    spec: Manifest = {
        "containers": [container],
        "priority": pod.priority,
        "terminationGracePeriodSeconds": 30,
    }
    if pod.priority_class:
        spec["priorityClassName"] = pod.priority_class
    if pod.group:
        spec["schedulingGroup"] = {"podGroupName": pod.group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def groups(case: Case) -> list[Manifest]:
    """Return the PodGroups."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {
                "priority": one.priority,
                "disruptionMode": {"all" if one.whole else "single": {}},
                "schedulingPolicy": {"gang": {"minCount": one.min_count}} if one.min_count else {"basic": {}},
            },
        }
        for name, one in case.groups.items()
    ]


def daemonsets(case: Case) -> list[Manifest]:
    """Return the DaemonSets that control pods."""
    namespaces = {pod.namespace for pod in (*case.pods, case.preemptor) if pod.daemon}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": DAEMONSET, "namespace": namespace, "uid": f"ds-{namespace}"},
            "spec": {"selector": {"matchLabels": {"daemon": "yes"}}},
        }
        for namespace in sorted(namespaces)
    ]


def _objects(case: Case) -> list[Manifest]:
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": f"n{number}", "uid": f"node-{number}"},
            "status": {"allocatable": {"cpu": str(size), "memory": "64Gi", "pods": "110"}},
        }
        for number, size in enumerate(case.nodes)
    ]
    budgets = [
        {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"selector": {"matchLabels": {"budget": name}}},
            "status": {"disruptionsAllowed": allowed},
        }
        for name, allowed in case.budgets.items()
    ]
    found: list[Manifest] = [*nodes, *budgets, *groups(case), *daemonsets(case), *namespaces(case)]
    found += [msgspec.to_builtins(one) | {"kind": "PriorityClass"} for one in classes(case).values()]
    return found + [running(case, pod) for pod in case.pods]


def _ago(seconds: int) -> str:
    return api_time(NOW - timedelta(seconds=seconds))
