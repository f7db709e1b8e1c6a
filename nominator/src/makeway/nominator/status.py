"""What a nominator answers when it is asked how it is; see `makeway.bus.component_status`."""

from __future__ import annotations

from datetime import UTC, datetime

from makeway.bus.component_status import ComponentStatus
from makeway.bus.messages import API_VERSION
from makeway.core.policy.brake import Brake
from makeway.nominator.streams import ControlFollower
from makeway.runtime.process import version


def nominator_status(
    identity: str,
    cluster_uid: str,
    control: ControlFollower,
    *,
    leading: bool,
    trouble: str,
    brake: Brake,
    signatures: str,
) -> ComponentStatus:
    """Return how one nominator is.

    `trouble`: what keeps it from its work. `signatures`: how they are.
    """
    state = control.state
    return ComponentStatus(
        api_version=API_VERSION,
        component="nominator",
        identity=identity,
        version=version(),
        at=datetime.now(UTC),
        mode=control.mode(""),
        own_mode=control.own_mode,
        cluster_uid=cluster_uid,
        namespace_modes=control.modes(),
        revision=state.revision if state else 0,
        policy_revision=state.policy_revision if state else "",
        queues_revision=state.queues_revision if state else "",
        leading=leading,
        brake=brake.scope(),
        trouble=trouble,
        signatures=signatures,
    )
