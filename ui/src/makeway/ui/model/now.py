"""Which components answer, and whether pods are evicted now. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from makeway.bus.component_status import ComponentStatus
from makeway.cli.text import safe

_MOST_COMPONENTS: Final = 100
_MOST_STOPS: Final = 3


class AnsweringPart(msgspec.Struct, frozen=True, rename="camel"):
    """A component that answers. `remark`: what stands in the way of its work, in sentences."""

    component: str
    identity: str
    version: str
    mode: str
    leading: bool
    remark: str


class Acting(msgspec.Struct, frozen=True, rename="camel"):
    """Whether pods are evicted now, for the head of every view.

    mode: of the parts that act, with a slash between where they differ; empty where none has answered. stops:
    the brake and the breakers that are set. by_part: the same by part and namespace, for who wants to know.
    parts: who answers; None before any was asked.
    """

    mode: str
    stops: tuple[str, ...]
    by_part: tuple[str, ...]
    parts: tuple[AnsweringPart, ...] | None = None


def acting_of(parts: Sequence[ComponentStatus] | None) -> Acting:
    """Sum up what the parts answered. A shadow acts on nothing, and neither does a part that stands by."""
    acting = [one for one in parts or () if one.leading or one.component == "scheduler"][:_MOST_COMPONENTS]
    brakes = [
        f"braked {'' if one.brake == 'everywhere' else 'for '}{one.brake}" for one in acting if one.brake
    ]
    breakers = ["breaker open" for one in acting if one.breaker]
    own = (f"namespace {space}: {mode}" for one in acting for space, mode in one.namespace_modes.items())
    return Acting(
        mode="/".join(dict.fromkeys(one.mode for one in acting)),
        stops=tuple(safe(one) for one in dict.fromkeys((*brakes, *breakers)))[:_MOST_STOPS],
        by_part=tuple(
            safe(one) for one in dict.fromkeys((*(f"{one.component}: {one.mode}" for one in acting), *own))
        )[:_MOST_COMPONENTS],
        parts=None if parts is None else tuple(map(part_of, parts[:_MOST_COMPONENTS])),
    )


def part_of(status: ComponentStatus) -> AnsweringPart:
    """Return what the page says of a component."""
    braked = f"braked: {status.brake}" if status.brake else ""
    stopped = f"breaker open: {status.breaker}" if status.breaker else ""
    remarks = (status.trouble, braked, stopped, status.loops)
    return AnsweringPart(
        component=status.component,
        identity=safe(status.identity),
        version=safe(status.version),
        mode=status.mode,
        leading=status.leading,
        remark=safe("; ".join(one for one in remarks if one)),
    )
