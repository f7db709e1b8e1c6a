"""The demo's objects, as plain manifests: four nodes' worth of a small company's cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

NAMESPACE = "demo"
BATCH_PRIORITY = 100
SCAVENGER_PRIORITY = 10
URGENT_PRIORITY = 100_000
POD_GROUPS = "scheduling.k8s.io/v1beta1"
"""The API of pod groups in Kubernetes 1.37."""

Manifest = dict[str, Any]


def node(name: str) -> Manifest:
    """A node of 4 CPUs and 8 GiB, which is played."""
    size = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": size, "capacity": size},
    }


def namespace() -> Manifest:
    """The namespace all of it lives in."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def priority_class(name: str, value: int) -> Manifest:
    """A PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def pod_spec(priority_class_name: str, cpu: str) -> Manifest:
    """The spec of a pod with one container that asks for so much CPU."""
    return {
        "priorityClassName": priority_class_name,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}},
            }
        ],
    }


def policy(text: str) -> Manifest:
    """The ConfigMap of the policy."""
    return _configuration("policy", text)


def queues(tree: Manifest) -> Manifest:
    """The ConfigMap of the queues."""
    return _configuration("queues", json.dumps(tree, indent=2))


def _configuration(what: str, text: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"makeway-{what}", "namespace": "makeway-system"},
        "data": {f"{what}.yaml": text},
    }


def deployment(name: str, replicas: int, priority_class_name: str, *, queue: str = "") -> Manifest:
    """A Deployment of such pods as `pods` makes."""
    labels = {"app": name, **({"queue": queue} if queue else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(priority_class_name, "2")},
        },
    }


def pod(
    name: str, priority_class_name: str = "urgent", cpu: str = "2", *, app: str = "", node: str = ""
) -> Manifest:
    """A pod of no controller, by default one that cannot wait.

    `app`: the application it belongs to; where none is given, its name. `node`: the only one it may run on.
    """
    spec = pod_spec(priority_class_name, cpu)
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": app or name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pods(
    app: str, numbers: Iterable[int], priority_class_name: str, cpu: str = "2", node: str = ""
) -> list[Manifest]:
    """Pods of an application; two with 2 CPUs each fill a node."""
    return [pod(f"{app}-{number}", priority_class_name, cpu, app=app, node=node) for number in numbers]


def budget(app: str, min_available: int) -> Manifest:
    """A PodDisruptionBudget over the pods of an application."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": NAMESPACE},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }


def used_up(pods: int) -> Manifest:
    """What the disruption controller writes of a budget whose pods are all healthy and all needed."""
    counts = {"currentHealthy": pods, "desiredHealthy": pods, "expectedPods": pods}
    return {"status": {"observedGeneration": 1, "disruptionsAllowed": 0, **counts}}


def never_delete(app: str) -> list[Manifest]:
    """A ValidatingAdmissionPolicy, and its binding, that refuses every delete of an app's pods."""
    name = f"never-delete-{app}"
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["DELETE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "validations": [
                    {
                        "expression": f"oldObject.metadata.?labels.?app.orValue('') != '{app}'",
                        "message": f"pods of {app} hold the books open and may not be deleted",
                        "reason": "Forbidden",
                    }
                ],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
