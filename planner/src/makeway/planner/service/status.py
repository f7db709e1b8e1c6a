"""What a planner answers when it is asked how it is; see `makeway.bus.component_status`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from makeway.bus.component_status import ComponentStatus
from makeway.bus.messages import API_VERSION
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.planner.service.configuration.reader import Configuration
from makeway.runtime.process import version


class PlannerStatus:
    """One planner's.

    `leading`: it answers plan requests. `published`: the revision of the control state in force. `trouble`:
    what stands in the way of planning. `signatures`: how they are. `loops`: preemption loops, in words.
    """

    def __init__(
        self,
        identity: str,
        cluster_uid: str,
        mode: Mode,
        *,
        configuration: Configuration,
        published: Callable[[], int],
        trouble: Callable[[], str],
        signatures: Callable[[], str],
        loops: Callable[[], str],
    ) -> None:
        self.leading = False
        self._identity = identity
        self._cluster_uid = cluster_uid
        self._mode: Mode = mode
        self._configuration = configuration
        self._published = published
        self._trouble = trouble
        self._signatures = signatures
        self._loops = loops

    def now(self) -> ComponentStatus:
        """Return it as it is."""
        in_force = self._configuration.in_force
        return ComponentStatus(
            api_version=API_VERSION,
            component="planner",
            identity=self._identity,
            version=version(),
            at=datetime.now(UTC),
            mode=more_restrictive(self._mode, in_force.mode),
            own_mode=self._mode,
            cluster_uid=self._cluster_uid,
            namespace_modes={
                namespace: more_restrictive(self._mode, mode)
                for namespace, mode in sorted(in_force.modes().items())
            },
            revision=self._published() if self.leading else 0,
            policy_revision=self._configuration.policy.revision,
            queues_revision=self._configuration.queues.revision,
            leading=self.leading,
            trouble=self._trouble(),
            brake=self._configuration.brake.current.scope(),
            signatures=self._signatures(),
            loops=self._loops() if self.leading else "",
        )
