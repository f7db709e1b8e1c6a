"""The time as if nothing had set this machine's clock since the process began.

By it planners tell how long a question has waited, and how long it counts.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_BEGAN: Final = datetime.now(UTC) - timedelta(seconds=time.monotonic())


def steady_now() -> datetime:
    """Return it, UTC."""
    return _BEGAN + timedelta(seconds=time.monotonic())
