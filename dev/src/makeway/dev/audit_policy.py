"""What the API server writes to its audit log: one JSON object a line, so that tests read what happened."""

from pathlib import Path
from typing import Any

import yaml

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Heartbeats and elections: many, and nothing is learnt from them.
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        # Who deleted which pod, with which preconditions, and what the API server said.
        {
            "level": "RequestResponse",
            "verbs": ["delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["pods"]}],
        },
        {
            "level": "RequestResponse",
            "verbs": ["patch"],
            "resources": [{"group": "", "resources": ["pods/status"]}],
        },
        # Which node a pod was bound to.
        {
            "level": "Request",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/binding"]}],
        },
        {"level": "Metadata"},
    ],
}


def write_policy(path: Path) -> Path:
    """Write the policy as kube-apiserver reads it."""
    path.write_text(yaml.safe_dump(POLICY, sort_keys=False))
    return path
