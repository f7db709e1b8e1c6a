"""Which components go by a policy, and which do not yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from makeway.bus.component_status import ComponentStatus
from makeway.cli.connect.form import PARTS
from makeway.cli.tables import Column
from makeway.core.policy.mode import Mode, more_restrictive

COLUMNS: Final = (
    Column("COMPONENT"),
    Column("NAME"),
    Column("MODE"),
    Column("POLICY", rank=1),
    Column("REMARK", kind="text", least=40),
)

SILENT: Final = "does not answer"


class Confirmation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One component. `why`: what is to be said of it, such as why it does not go by the policy yet.

    Attributes:
        component: planner, evictor, scheduler or nominator.
        identity: its name; of one that does not answer, its pod's.
        confirmed: it goes by the policy.
        mode: in force in it, for the namespace asked about where there is one.
        policy_revision: of the policy that it goes by.
        namespace_modes: other modes in it, by namespace.
        brake: what is braked in it: everywhere, or names of namespaces.
    """

    component: str
    identity: str
    confirmed: bool
    mode: Mode | None = None
    policy_revision: str = ""
    namespace_modes: dict[str, Mode] = msgspec.field(default_factory=dict)
    why: str = ""
    brake: str = ""


def confirmation(
    status: ComponentStatus,
    *,
    revision: str | None,
    mode: Mode | None,
    namespace: str = "",
    brake: str = "",
) -> Confirmation:
    """Report whether a component goes by that mode, and by the policy of that revision.

    Its own argument may hold it to less, which is as it should be and said. `revision`: None where the brake
    says the mode, so that it does not matter which policy a component has. `mode`: None where the policy is
    refused, so that only the last good one can be gone by; then `brake`, what is braked, is all there is to
    confirm.
    """
    own = status.namespace_modes.get(namespace, status.mode)
    wanted = more_restrictive(mode, status.own_mode) if mode is not None else None
    other = revision is not None and status.policy_revision != revision
    why = ""
    if other:
        why = "has another policy" if status.policy_revision else "has no policy yet"
    elif wanted is None and status.brake != brake:
        why = f"is still braked: {status.brake}" if status.brake else "has not seen the brake"
    elif wanted is None:
        good = "the last good policy" if status.policy_revision else "the defaults: none accepted yet"
        why = f"goes by {good}"
    elif own != wanted:
        why = f"is still in mode {own}"
    elif wanted != mode:
        why = f"held to {wanted} by its own argument"
    return Confirmation(
        component=status.component,
        identity=status.identity,
        confirmed=not other and (own == wanted if wanted is not None else status.brake == brake),
        mode=own,
        policy_revision=status.policy_revision,
        namespace_modes=dict(status.namespace_modes),
        brake=status.brake,
        why="; ".join(part for part in (why, status.trouble, status.breaker) if part),
    )


def silent(heard: Iterable[Confirmation], pods: Mapping[str, str]) -> list[Confirmation]:
    """Return those that should be there and do not answer.

    `pods`: names of the installation's running pods, with their component. A process names itself after its
    pod.
    """
    hosts = {one.identity.split("_", maxsplit=1)[0] for one in heard}
    missing = {pod: component for pod, component in pods.items() if pod not in hosts}
    return [Confirmation(component, name, confirmed=False, why=SILENT) for name, component in missing.items()]


def in_order(confirmations: Iterable[Confirmation]) -> list[Confirmation]:
    """Return them as they are shown."""
    return sorted(confirmations, key=lambda one: (one.component, one.identity))


def row(one: Confirmation) -> tuple[str, ...]:
    """One as a line of the table."""
    return (one.component, one.identity, one.mode or "", one.policy_revision or "none", one.why)


def without(confirmations: Iterable[Confirmation], parts: Iterable[str] = PARTS["plugin"]) -> list[str]:
    """Name the components of which there is none. `parts`: of which there must be one each."""
    there = {one.component for one in confirmations}
    return [component for component in parts if component not in there]
