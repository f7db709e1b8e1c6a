"""How far makeway may go: `off`, `observe` or `enforce`."""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["off", "observe", "enforce"]
"""`off`: nothing is planned. `observe`: planned and recorded, nothing evicted. `enforce`: all of it."""

MODES: Final[tuple[Mode, ...]] = ("off", "observe", "enforce")
"""The most restrictive first."""


def more_restrictive(*modes: Mode) -> Mode:
    """Return the one that allows least; `enforce` of none."""
    return min(modes, key=MODES.index, default="enforce")
