"""How far makeway may go: `off`, `observe` or `enforce`."""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["off", "observe", "enforce"]
"""`off`: nothing is planned. `observe`: planned and recorded, nothing evicted. `enforce`: all of it."""

_ORDER: Final[tuple[Mode, ...]] = ("off", "observe", "enforce")


def more_restrictive(*modes: Mode) -> Mode:
    """Give the one that allows least; `enforce` of none."""
    return min(modes, key=_ORDER.index, default="enforce")
