"""What the API server writes to its audit log: one JSON object a line, so that tests read what happened."""

from pathlib import Path
from typing import Any

import yaml

SCHEDULER_USERS = ["system:serviceaccount:makeway-system:makeway-scheduler", "system:kube-scheduler"]

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # The components' elections: when a scheduler was there at all, and which epoch each Lease was in.
        {
            "level": "Request",
            "verbs": ["create", "update", "patch"],
            "userGroups": ["system:serviceaccounts"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {
            "level": "Request",
            "verbs": ["create", "update", "patch"],
            "users": SCHEDULER_USERS,
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        # Who may touch which Lease.
        {
            "level": "Metadata",
            "userGroups": ["system:serviceaccounts"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        # Other heartbeats and elections: many, and nothing is learnt from them.
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        # What every pod was at every time: who made, changed, marked, nominated and deleted it, with which
        # preconditions, and what the API server answered.
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["pods", "pods/status", "pods/eviction"]}],
        },
        # Which pods could only go together.
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "scheduling.k8s.io", "resources": ["podgroups", "compositepodgroups"]}],
        },
        # Which labels the nodes had; their heartbeats are many, and tell nothing of them.
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["nodes"]}],
        },
        # Which node a pod was bound to.
        {
            "level": "Request",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/binding"]}],
        },
        # What the scheduler said about which pod.
        {
            "level": "Request",
            "users": SCHEDULER_USERS,
            "verbs": ["create", "update", "patch"],
            "resources": [
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ],
        },
        {"level": "Metadata"},
    ],
}


def write_policy(path: Path) -> Path:
    """Write the policy as kube-apiserver reads it."""
    path.write_text(yaml.safe_dump(POLICY, sort_keys=False))
    return path
