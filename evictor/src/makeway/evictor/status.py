"""What an evictor answers when it is asked how it is; see `makeway.bus.component_status`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from makeway.bus.component_status import ComponentStatus
from makeway.bus.messages import API_VERSION
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.runtime.process import version


class EvictorStatus:
    """One evictor's.

    `policy_revision`: of the policy that it read. `trouble`: what keeps it from its work. `caps`: how much of
    the policy's caps is used. `breaker`: for what it is open. `signatures`: how they are.
    """

    def __init__(
        self,
        identity: str,
        cluster_uid: str,
        mode_guard: ModeGuard,
        *,
        policy_revision: Callable[[], str],
        trouble: Callable[[], str],
        caps: Callable[[], str],
        breaker: Callable[[], str],
        signatures: Callable[[], str],
    ) -> None:
        self._identity = identity
        self._cluster_uid = cluster_uid
        self._mode_guard = mode_guard
        self._policy_revision = policy_revision
        self._trouble = trouble
        self._caps = caps
        self._breaker = breaker
        self._signatures = signatures

    def now(self) -> ComponentStatus:
        """Return it as it is."""
        mode, namespace_modes = self._mode_guard.modes()
        control = self._mode_guard.control
        return ComponentStatus(
            api_version=API_VERSION,
            component="evictor",
            identity=self._identity,
            version=version(),
            at=datetime.now(UTC),
            mode=mode,
            own_mode=self._mode_guard.own_mode,
            cluster_uid=self._cluster_uid,
            namespace_modes=namespace_modes,
            revision=control.revision if control else 0,
            policy_revision=self._policy_revision(),
            told_policy_revision=control.policy_revision if control else "",
            queues_revision=control.queues_revision if control else "",
            leading=True,
            brake=self._mode_guard.brake.scope(),
            trouble=self._trouble(),
            caps=self._caps(),
            breaker=self._breaker(),
            signatures=self._signatures(),
        )
