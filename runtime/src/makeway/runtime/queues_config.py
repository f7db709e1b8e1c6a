"""The configuration of the queues, which planner and evictor each read from the API server by themselves."""

from __future__ import annotations

from typing import Final

from makeway.core.queues.parsing import KEY, Queues, parse_queues
from makeway.runtime.config import ConfigKind

QUEUES: Final[ConfigKind[Queues | None]] = ConfigKind(
    "queues",
    KEY,
    parse_queues,
    None,
    lambda found: found.warnings if found else (),
    "nothing but `partitions: [{queues: []}]`",
)
