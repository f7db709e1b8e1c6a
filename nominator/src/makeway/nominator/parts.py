"""What a nominator works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from makeway.bus.client import Bus
from makeway.nominator.cluster import NominatorApi
from makeway.nominator.decide import Writer
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.pending import PendingPods, PriorityClasses
from makeway.nominator.shadow import ShadowScheduler
from makeway.nominator.streams import StreamsRead
from makeway.runtime.brake import BrakeReader


@dataclass(frozen=True, kw_only=True)
class NominatorParts:
    """One process's. `synced`: why nothing may be planned yet; empty where something may be.

    `shadow`: None where no plan is verified.
    """

    bus: Bus
    cluster: NominatorApi
    pods: PendingPods
    classes: PriorityClasses
    streams: StreamsRead
    brake: BrakeReader
    metrics: NominatorMetrics
    writer: Writer
    synced: Callable[[], str]
    shadow: ShadowScheduler | None = None
