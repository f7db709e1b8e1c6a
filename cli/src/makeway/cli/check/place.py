"""Where `makeway check` looks: the cluster, and the bus."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from makeway.bus.client import Bus
from makeway.cli.check.clocks import Reading
from makeway.cli.connect.form import Form
from makeway.runtime.kube import Api

KUBE_SCHEDULER: Final = "system:kube-scheduler"


@dataclass(frozen=True)
class CheckedCluster:
    """Where to look. form: what is installed. replaced: makeway-scheduler runs as the cluster's own.

    denied: what the user was refused there; empty for nothing.
    """

    api: Api
    namespace: str
    form: Form
    replaced: bool
    denied: str = ""

    def user(self, account: str) -> str:
        """Return the user that a part is for the API server."""
        if account == "scheduler" and self.replaced:
            return KUBE_SCHEDULER
        name = self.form.accounts.get(account, f"makeway-{account}")
        return f"system:serviceaccount:{self.namespace}:{name}"


@dataclass(frozen=True)
class CheckedBus:
    """Where to look. form: what is installed. minor: the API server's. readings: clocks, added to here.

    not_stored: `policy` and `queues`, where there is no such ConfigMap.
    """

    bus: Bus
    namespace: str
    form: Form
    cluster_uid: str
    minor: int
    readings: list[Reading] = field(default_factory=list)
    not_stored: Collection[str] = ()

    @property
    def denied(self) -> str:
        """What NATS has refused to this user, or else is wrong with the connection."""
        return self.bus.healthy()
