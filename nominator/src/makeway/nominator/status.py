"""What a nominator answers when it is asked how it is; see `makeway.bus.component_status`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from makeway.bus.component_status import ComponentStatus
from makeway.bus.messages import API_VERSION
from makeway.core.policy.brake import Brake
from makeway.nominator.streams import ControlFollower
from makeway.runtime.process import version


class NominatorStatus:
    """One nominator's. `trouble`: what stands in the way of its work. `signatures`: how they are."""

    def __init__(
        self,
        identity: str,
        cluster_uid: str,
        control: ControlFollower,
        *,
        leading: Callable[[], bool],
        trouble: Callable[[], str],
        brake: Callable[[], Brake],
        signatures: Callable[[], str],
    ) -> None:
        self._identity = identity
        self._cluster_uid = cluster_uid
        self._control = control
        self._leading = leading
        self._trouble = trouble
        self._brake = brake
        self._signatures = signatures

    def now(self) -> ComponentStatus:
        """Return it as it is."""
        state = self._control.state
        return ComponentStatus(
            api_version=API_VERSION,
            component="nominator",
            identity=self._identity,
            version=version(),
            at=datetime.now(UTC),
            mode=self._control.mode(""),
            own_mode=self._control.own_mode,
            cluster_uid=self._cluster_uid,
            namespace_modes=self._control.modes(),
            revision=state.revision if state else 0,
            policy_revision=state.policy_revision if state else "",
            queues_revision=state.queues_revision if state else "",
            leading=self._leading(),
            brake=self._brake().scope(),
            trouble=self._trouble(),
            signatures=self._signatures(),
        )
