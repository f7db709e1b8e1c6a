"""The ConfigMap that holds the policy, as `makeway mode` reads and writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from makeway.cli.connect.configmaps import StoredMap, change_map, read_map
from makeway.core.policy.document import KEY
from makeway.runtime.kube import Api

CONFIGMAP: Final = "makeway-policy"

_MANAGERS: Final[Mapping[str, str]] = {
    "makeway.dev/managed-by": "",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "config.k8s.io/owning-inventory": "a GitOps inventory",
}
"""Labels and annotations of what would put its own text back, and its name."""


@dataclass(frozen=True)
class StoredPolicy:
    """The policy's text as it is stored; None where there is none.

    `manager`: what else writes it. `since`: when its ConfigMap was last written, empty where not known.
    """

    text: str | None
    version: str = ""
    manager: str = ""
    immutable: bool = False
    keys: tuple[str, ...] = field(default=())
    since: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is such a ConfigMap."""
        return bool(self.version)


def manager_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return who would put its own text back; empty where none would. Pure.

    Helm does not: the chart takes over what it finds, unless it is told to manage the policy.
    """
    for key, name in _MANAGERS.items():
        found = annotations.get(key) or labels.get(key)
        if found:
            return name or found
    return ""


def _policy_of(found: StoredMap) -> StoredPolicy:
    return StoredPolicy(
        text=found.data.get(KEY),
        version=found.version,
        manager=manager_of(found.labels, found.annotations),
        immutable=found.immutable,
        keys=tuple(sorted(found.data)),
        since=found.since,
    )


async def stored(api: Api, namespace: str) -> StoredPolicy:
    """Read it. Raises ApiError, ApiUnavailable."""
    return _policy_of(await read_map(api, namespace, CONFIGMAP))


async def change(api: Api, namespace: str, edit: Callable[[StoredPolicy], str]) -> bool:
    """Store what `edit` makes of what is stored; report as `change_map`, and raise as that."""
    return await change_map(
        api, namespace, CONFIGMAP, lambda before: {**before.data, KEY: edit(_policy_of(before))}
    )
