"""A pending pod: what would become of it now, what would unblock it, and what is in its way where. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from makeway.planner.offline.obstacles import obstacles
from makeway.planner.offline.pending import asked_about, pending
from makeway.planner.offline.results import Pending
from makeway.planner.offline.world import World
from makeway.planner.plan.cache import PlanCache


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of one pending pod. nodes: their names by what stands in the way there."""

    found: Pending
    nodes: dict[str, tuple[str, ...]]


def standing_of(
    world: World, raw: bytes, now: datetime, in_flight: Mapping[str, str], leaving: frozenset[str]
) -> Standing:
    """Plan again for a pod of the world. `raw`: the v1.Pod; raises as `asked_about`."""
    request, question = asked_about(world, raw, now, in_flight=in_flight, leaving=leaving)
    return Standing(
        found=pending(world, raw, now, request, question),
        nodes=obstacles(world.snapshot, question, now, PlanCache()),
    )
