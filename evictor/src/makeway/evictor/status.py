"""What an evictor answers when it is asked how it is; see `makeway.bus.component_status`."""

from __future__ import annotations

from datetime import UTC, datetime

from makeway.bus.component_status import ComponentStatus
from makeway.bus.messages import API_VERSION
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.runtime.process import version


def evictor_status(
    identity: str,
    cluster_uid: str,
    mode_guard: ModeGuard,
    *,
    policy_revision: str,
    trouble: str,
    caps: str,
    breaker: str,
    signatures: str,
) -> ComponentStatus:
    """Return how one evictor is.

    `policy_revision`: of the policy that it read. `trouble`: what keeps it from its work. `caps`: how much of
    the policy's caps is used. `breaker`: for what it is open. `signatures`: how they are.
    """
    mode, namespace_modes = mode_guard.modes()
    control = mode_guard.control
    return ComponentStatus(
        api_version=API_VERSION,
        component="evictor",
        identity=identity,
        version=version(),
        at=datetime.now(UTC),
        mode=mode,
        own_mode=mode_guard.own_mode,
        cluster_uid=cluster_uid,
        namespace_modes=namespace_modes,
        revision=control.revision if control else 0,
        policy_revision=policy_revision,
        told_policy_revision=control.policy_revision if control else "",
        queues_revision=control.queues_revision if control else "",
        leading=True,
        brake=mode_guard.brake.scope(),
        trouble=trouble,
        caps=caps,
        breaker=breaker,
        signatures=signatures,
    )
