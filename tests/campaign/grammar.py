"""What tenants create: pods, budgets and changes drawn from a grammar, from the usual to the hostile. Pure.

Sizes stay below what the API server refuses, and reach it.
"""

from __future__ import annotations

import random
from typing import Any

Manifest = dict[str, Any]

SYSTEM = "camp-system"
"""Where a DaemonSet runs that may displace pods of equal priority in all namespaces."""
DAEMON_CLASS = "camp-usual"

TENANTS = ("camp-a", "camp-b", "camp-c", "camp-quota", "camp-budget", "camp-hostile")
"""Namespaces of tenants; what each is for is in the policy and the queues of `settings`."""
PROTECTED = "camp-protected"
"""The policy protects its pods."""
HARD_BUDGETS = "camp-budget"
"""Where budgets are hard."""
HOSTILE = "camp-hostile"
NEVER_EVICT = "makeway.dev/never-evict"

CLASSES: dict[str, tuple[int, dict[str, str]]] = {
    "camp-batch": (-50, {}),
    "camp-usual": (10, {}),
    "camp-odd": (
        10,
        {
            "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "100000",
            "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "30",
        },
    ),
    "camp-broken": (
        20,
        {
            "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "1e9",
            "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "-99999999999999999999",
        },
    ),
    "camp-urgent": (5000, {}),
    "camp-largest": (1_000_000_000, {}),
}
"""PriorityClasses: value and annotations."""

SPARED_NAMESPACES = (PROTECTED, HARD_BUDGETS, HOSTILE)
SPARED_CLASSES = ("camp-odd", "camp-broken")
"""Where rules spare pods: some of these pods no preemptor can remove."""

LOW = ("camp-batch", "camp-batch", "camp-usual", "camp-odd", "camp-broken", "low", "neg")
URGENT = ("mid", "high", "high", "camp-urgent")

_QUEUES = (
    "root.camp-a",
    "root.camp-quota",
    "root.default",
    "root",
    "nonsense",
    "root..x",
    "ROOT.camp-a",
    "root.camp-a.deeper.and.deeper",
    "default",
    "x" * 63,
)
_LONG = 200_000


def victim(chance: random.Random, namespace: str, name: str) -> Manifest:
    """A pod that is there to be evicted."""
    pod = _pod(namespace, name, chance.choice(LOW), chance.choice((100, 250, 500, 500, 1000)))
    pod["spec"]["terminationGracePeriodSeconds"] = chance.choice((0, 1, 1, 2, 5))
    if namespace == HARD_BUDGETS:
        pod["metadata"]["labels"]["app"] = chance.choice(("web", "api"))
    return pod


def preemptor(chance: random.Random, namespace: str, name: str) -> Manifest:
    """A pod that needs room."""
    return _pod(namespace, name, chance.choice(URGENT), chance.choice((250, 500, 1000)))


def hostile(chance: random.Random, name: str) -> Manifest:
    """A pod as a tenant writes it who wants others' room, or wants to stay for ever."""
    pod = _pod(HOSTILE, name, chance.choice((*LOW, "mid")), chance.choice((1, 100, 500, 3900, 10**9)))
    metadata, spec = pod["metadata"], pod["spec"]
    for _ in range(chance.randint(1, 3)):
        match chance.choice(
            ("queue", "never-evict", "daemon", "pinned", "long", "nominated", "grace", "gate", "labels")
        ):
            case "queue":
                metadata["labels"][chance.choice(("queue", "yunikorn.apache.org/queue"))] = chance.choice(
                    _QUEUES
                )
            case "never-evict":
                metadata["annotations"][NEVER_EVICT] = chance.choice(("true", "TRUE", "yes", "1", ""))
            case "daemon":
                metadata["ownerReferences"] = [_forged_owner(chance)]
            case "pinned":
                # As the DaemonSet controller pins a pod to its node.
                field = {"key": "metadata.name", "operator": "In", "values": [f"camp-{chance.randint(1, 8)}"]}
                terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
                required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
                spec["affinity"] = {"nodeAffinity": required}
                metadata["ownerReferences"] = [_forged_owner(chance)]
            case "long":
                metadata["annotations"]["camp.example/long"] = chance.choice("xé漢") * (_LONG // 3)
            case "nominated":
                pod["status"] = {"nominatedNodeName": chance.choice(("camp-1", "nowhere", "x" * 253))}
            case "grace":
                spec["terminationGracePeriodSeconds"] = chance.choice((0, 3600, 2**31 - 1))
            case "gate":
                spec["schedulingGates"] = [{"name": "camp.example/held"}]
            case "labels":
                metadata["labels"] |= {
                    f"l{number}.camp.example/{'k' * 40}": "v" * 63 for number in range(chance.randint(1, 60))
                }
                metadata["labels"]["app"] = chance.choice(("web", "api"))
    return pod


def daemon_set() -> Manifest:
    """A DaemonSet with a small pod on every node."""
    labels = {"app": "agent"}
    spec = _pod(SYSTEM, "agent", DAEMON_CLASS, 200)["spec"]
    return {
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def change(chance: random.Random) -> Manifest:
    """A merge patch of a running pod's metadata."""
    return chance.choice(
        (
            {"metadata": {"labels": {"queue": chance.choice(_QUEUES)}}},
            {"metadata": {"annotations": {NEVER_EVICT: chance.choice(("true", "false"))}}},
            {"metadata": {"labels": {"app": chance.choice(("web", "api", None))}}},
            {"metadata": {"ownerReferences": [_forged_owner(chance)]}},
            {"metadata": {"finalizers": None}},
        )
    )


def budget(chance: random.Random, name: str) -> Manifest:
    """A disruption budget of a hostile tenant, over whatever is in its namespace."""
    selector: Manifest = chance.choice(
        (
            {},
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["v" * 63]}]},
            {"matchExpressions": [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(50)]},
        )
    )
    allowed = chance.choice(({"minAvailable": 2**31 - 1}, {"maxUnavailable": 0}, {"minAvailable": "100%"}))
    return {"metadata": {"name": name}, "spec": {"selector": selector, **allowed}}


def _forged_owner(chance: random.Random) -> Manifest:
    return {
        "apiVersion": chance.choice(("apps/v1", "apps/v1beta1", "v1")),
        "kind": chance.choice(("DaemonSet", "DaemonSet", "Node", "ReplicaSet")),
        "name": chance.choice(("agent", "no-such", "kube-proxy")),
        "uid": f"{chance.getrandbits(128):032x}",
        "controller": True,
    }


def _pod(namespace: str, name: str, priority: str, cpu: int) -> Manifest:
    container = {"name": "main", "image": "example.com/none:1", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {}, "annotations": {}},
        "spec": {
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
