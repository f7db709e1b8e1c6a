"""The cluster of a campaign: nodes, namespaces, classes, budgets, policy and queues."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import yaml

from campaign.counted import NAMESPACE as COUNTED
from campaign.grammar import CLASSES, HARD_BUDGETS, PROTECTED, SYSTEM, TENANTS, daemon_set
from integration.cluster import RunningCluster
from integration.configuring import put
from integration.queueing import queue, queues_yaml
from makeway.dev import nodes
from makeway.dev.checker.history import InForce

VICTIMS_PER_MINUTE = 60
"""Reached now and then: orders wait for the rest of a minute."""
VICTIMS_APART = 8
"""Of a group's order, on nodes without members."""
NODE_CPU = 4000
"""Milli-CPU of each node."""


def policy() -> dict[str, Any]:
    """The policy in force."""
    return {
        "apiVersion": "makeway.dev/v1",
        "kind": "Policy",
        "mode": "enforce",
        "disruptionBudgets": "hard",
        "hardBudgetNamespaces": [HARD_BUDGETS],
        "protection": {"namespaces": [PROTECTED], "neverEvictNamespaces": ["camp-c"]},
        "daemonSets": {
            "enabled": True,
            "preemption_start_delay": "1s",
            "namespaces": [SYSTEM],
            "beyond_own_namespace": [SYSTEM],
        },
        "crossNode": {"mostVictims": VICTIMS_APART},
        # A cluster this small takes more than its part of all pods in ten minutes.
        "limits": {"victimsPercentPerTenMinutes": 100, "victimsPerMinute": VICTIMS_PER_MINUTE},
    }


def in_force(cluster_uid: str, brakes: tuple[tuple[datetime, datetime], ...] = ()) -> InForce:
    """What the checker is told of it."""
    return InForce(
        protected_namespaces=frozenset({PROTECTED}),
        never_evict_namespaces=frozenset({"camp-c"}),
        hard_namespaces=frozenset({HARD_BUDGETS}),
        daemonset_namespaces=frozenset({SYSTEM}),
        brakes=brakes,
        cluster_uid=cluster_uid,
        victims_per_order=100,
        victims_per_minute=VICTIMS_PER_MINUTE,
        victims_apart=VICTIMS_APART,
    )


def queues(most: int = 12) -> str:
    """A queue for each tenant, and one for the preemptors that are counted; one has a maximum."""
    return queues_yaml(
        queue(COUNTED),
        queue("camp-a"),
        queue("camp-b", guaranteed=8),
        queue("camp-quota", max=most, delay="2s"),
    )


async def prepare(cluster: RunningCluster, count: int) -> str:
    """Make everything that is there before the load begins; gives the cluster's UID."""
    await asyncio.to_thread(_make, cluster, count)
    await put(cluster, {"policy.yaml": yaml.safe_dump(policy())})
    await put(cluster, {"queues.yaml": queues()}, "makeway-queues")
    system = cluster.owned.api.request("GET", "/api/v1/namespaces/kube-system")
    return str(system["metadata"]["uid"])


def _make(cluster: RunningCluster, count: int) -> None:
    api = cluster.owned.api
    for number in range(1, count + 1):
        api.request("POST", "/api/v1/nodes", nodes.manifest(f"camp-{number}", cpu=f"{NODE_CPU}m"))
    for name, (value, written) in CLASSES.items():
        api.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name, "annotations": written},
                "value": value,
            }
        )
    for name in (*TENANTS, PROTECTED, SYSTEM, COUNTED):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api.request("POST", f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets", daemon_set())
    for app in ("web", "api"):
        api.apply(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"namespace": HARD_BUDGETS, "name": app},
                "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 2},
            }
        )
