"""cli."""

import time
from typing import Final

BEGAN: Final = time.monotonic()
"""When the command began."""
