"""Named points between two side effects, at which tests may end, freeze or delay a process.

They do nothing here. `makeway.dev.failpoints`, which is not shipped, lists them and acts on them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Action = Callable[[str, str], Awaitable[None]]

_actions: list[Action] = []


def act_on_failpoints(action: Action) -> None:
    """Call `action` with each point's name, and the order that passes it, from now on. For tests alone."""
    _actions.append(action)


async def failpoint(name: str, of: str = "") -> None:
    """Pass a point; nothing happens. `of`: the order, where it passes the point for each of its victims."""
    for action in _actions:
        await action(name, of)
