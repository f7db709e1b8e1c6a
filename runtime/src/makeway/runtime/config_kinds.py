"""The configurations, which planner and evictor each read from the API server by themselves."""

from __future__ import annotations

from typing import Final

from makeway.core.policy import document
from makeway.core.policy.document import Policy, parse_policy
from makeway.core.queues import parsing
from makeway.core.queues.parsing import Queues, parse_queues
from makeway.runtime.config import ConfigKind

POLICY: Final[ConfigKind[Policy]] = ConfigKind(
    "policy", "makeway-policy", document.KEY, parse_policy, Policy()
)
QUEUES: Final[ConfigKind[Queues | None]] = ConfigKind(
    "queues",
    "makeway-queues",
    parsing.KEY,
    parse_queues,
    None,
    lambda found: found.warnings if found else (),
    "nothing but `partitions: [{queues: []}]`",
)
