"""The bounds that a process takes on by its environment, and that the kernel keeps."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Final

MEMORY: Final = "MAKEWAY_CHILD_MEMORY_BYTES"
CPU: Final = "MAKEWAY_CHILD_CPU_SECONDS"


def bound(environment: Mapping[str, str]) -> None:
    """Bound this process as the environment says; no core is dumped, for it would hold the cluster."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, limit in ((MEMORY, resource.RLIMIT_DATA), (CPU, resource.RLIMIT_CPU)):
        if name in environment:
            value = int(environment[name])
            resource.setrlimit(limit, (value, value))
