"""Which components answer, and whether pods are evicted now. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from makeway.bus.component_status import ComponentStatus

_MOST_COMPONENTS: Final = 100
_MOST_STOPS: Final = 3


class Acting(msgspec.Struct, frozen=True, rename="camel"):
    """Whether pods are evicted now, for the head of every view.

    mode: of the parts that act, with a slash between where they differ; empty where none has answered. stops:
    the brake and the breakers that are set, and which parts are missed. by_part: the modes by part and
    namespace, for who wants to know.
    parts: who answers; None before any was asked.
    """

    mode: str
    stops: tuple[str, ...]
    by_part: tuple[str, ...]
    parts: tuple[ComponentStatus, ...] | None = None


def acting_of(parts: Sequence[ComponentStatus] | None) -> Acting:
    """Sum up what the parts answered. A shadow acts on nothing, and neither does a part that stands by."""
    acting = [one for one in parts or () if one.leading or one.component == "scheduler"][:_MOST_COMPONENTS]
    brakes = [
        f"braked {'' if one.brake == 'everywhere' else 'for '}{one.brake}" for one in acting if one.brake
    ]
    breakers = ["breaker open" for one in acting if one.breaker]
    answered = {one.component for one in parts or ()}
    needed = ("planner", "evictor") if answered & {"scheduler", "nominator"} else ("planner",)
    missed = [f"no {one} answers" for one in needed if answered and one not in answered]
    modes = (f"{one.component}: {one.mode}" for one in acting)
    own = (f"namespace {space}: {mode}" for one in acting for space, mode in one.namespace_modes.items())
    return Acting(
        mode="/".join(dict.fromkeys(one.mode for one in acting)),
        stops=tuple(dict.fromkeys((*brakes, *breakers, *missed)))[:_MOST_STOPS],
        by_part=tuple(dict.fromkeys((*modes, *own)))[:_MOST_COMPONENTS],
        parts=None if parts is None else tuple(parts[:_MOST_COMPONENTS]),
    )
