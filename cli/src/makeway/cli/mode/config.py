"""The ConfigMap that holds the policy, and who else may write it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from makeway.runtime.config_kinds import POLICY

CONFIGMAP: Final = POLICY.configmap


_MANAGERS: Final[Mapping[str, str]] = {
    "makeway.dev/managed-by": "",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "config.k8s.io/owning-inventory": "a GitOps inventory",
}
"""Labels and annotations of what would put its own text back, and its name."""


def manager_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return who would put its own text back; empty where none would. Pure.

    Helm does not: the chart takes over what it finds, unless it is told to manage the policy.
    """
    for key, name in _MANAGERS.items():
        found = annotations.get(key) or labels.get(key)
        if found:
            return name or found
    return ""
