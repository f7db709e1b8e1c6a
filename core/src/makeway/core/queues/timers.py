"""When a lowered quota is enforced: one timer a queue, as a state machine that is told the time.

What starts, restarts and stops a timer (YuniKorn's rules, and what is decided here where they are silent):

* A maximum that is lowered for any resource, or set where there was none, starts it from zero.
* One that is only raised stops it, whatever else is changed, and though usage is still above.
* A changed delay starts it from zero; other changes do not touch it.
* A delay of 0, no maximum, or quota preemption turned off, or the mode off: no timer.
* Another mode starts it from zero: what was only observed is carried out after the full delay.
* A restart starts every timer again that ran, and every one whose process had not ended, unless the maximum
  was only raised since that began. What was settled by then is remembered, and compared with what is saved,
  as if the planner had gone on.
* While a process runs for a queue, its changes wait. When it ends, the maximum and the delay that it began
  with are compared with the present ones, as if all had been changed then.

A timer that fires is gone: without a change it does not fire again, whatever came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from makeway.core.policy.mode import Mode
from makeway.core.queues.amounts import Amounts
from makeway.core.queues.tree import NEVER, Queue, QueueTree, paths_in_order


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """What a timer depends on. `delay` is NEVER where quota preemption, or the mode, is off."""

    maximum: Amounts
    delay: timedelta
    mode: Mode

    @property
    def enforced(self) -> bool:
        """Whether a decrease to these terms would start a timer."""
        return self.delay != NEVER and bool(self.maximum)


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that runs."""

    since: datetime
    fires_at: datetime


class Timers:
    """The timers of all queues, by path. Quota processes are told to it by `begin` and `end`."""

    def __init__(self, settled: Mapping[str, TimerSettings] | None = None) -> None:
        """`settled`: what a planner before remembered, as `settled` gave it."""
        self._terms: dict[str, TimerSettings] = dict(settled or {})
        self._timers: dict[str, Timer] = {}
        self._running: dict[str, TimerSettings | None] = {}
        self.changes = 0
        """Rises with whatever may change what `settled` returns."""

    def settled(self) -> dict[str, TimerSettings]:
        """Return the terms of queues that could have a timer or a process, and have neither. O(queues)."""
        return {
            path: settings
            for path, settings in self._terms.items()
            if settings.enforced and path not in self._timers and path not in self._running
        }

    def timer(self, path: str) -> Timer | None:
        """Return a queue's timer, where one runs."""
        return self._timers.get(path)

    def saved(self, tree: QueueTree | None, now: datetime, mode: Mode = "enforce") -> None:
        """Take note of a configuration that has come into force; None where there is none. O(queues)."""
        self.changes += 1
        settings = timer_settings_of(tree, mode)
        for path in self._timers.keys() - settings.keys():
            del self._timers[path]
        for path, new in settings.items():
            if path not in self._running:
                self._change(path, self._terms.get(path), new, now)
        self._terms = settings

    def fired(self, tree: QueueTree, now: datetime) -> list[str]:
        """Return the queues whose timers have fired, in the order in which to enforce them; they fire once.

        Leaves come before their ancestors, since what a leaf releases helps those above it. Queues that the
        tree no longer has are left out. O(timers).
        """
        due = [path for path, timer in self._timers.items() if timer.fires_at <= now]
        self.changes += len(due)
        for path in due:
            del self._timers[path]
        return paths_in_order([queue for path in due if (queue := tree.find(path)) is not None])

    def begin(self, path: str) -> None:
        """A process begins for a queue; its timer, if it has one, stops."""
        self._begin(path, self._terms.get(path))

    def resume(self, path: str, began_with: TimerSettings | None) -> None:
        """A process goes on that another planner began, as `unfinished` has it; None where that is not known.

        The timer starts again when it ends, unless the maximum was only raised by then.
        """
        self._begin(path, began_with)

    def _begin(self, path: str, terms: TimerSettings | None) -> None:
        self.changes += 1
        self._timers.pop(path, None)
        self._running[path] = terms

    def end(self, path: str, now: datetime) -> None:
        """The process of a queue has ended: what was changed meanwhile counts from now on."""
        self.changes += 1
        began_with = self._running.pop(path)
        new = self._terms.get(path)
        if new is not None:
            self._change(path, began_with, new, now)

    def _change(self, path: str, old: TimerSettings | None, new: TimerSettings, now: datetime) -> None:
        """Start, stop or leave a timer for the change from `old`, None for a queue that was not known."""
        if not new.enforced:
            self._timers.pop(path, None)
            return
        before = old.maximum if old is not None else {}
        if is_raised(before, new.maximum):
            self._timers.pop(path, None)
        elif old is None or before != new.maximum or (old.delay, old.mode) != (new.delay, new.mode):
            self._timers[path] = Timer(now, now + new.delay)


def unfinished(maximum: Amounts, mode: Mode = "enforce") -> TimerSettings:
    """Return the terms of a process that had not ended: any that are not a raised maximum start the timer."""
    return TimerSettings(maximum, NEVER, mode)


def timer_settings_of(tree: QueueTree | None, mode: Mode) -> dict[str, TimerSettings]:
    """Return what the timers of a configuration depend on, by path. O(queues)."""
    return {queue.path: _settings(tree, queue, mode) for queue in tree} if tree is not None else {}


def is_lowered(before: Amounts, after: Amounts) -> bool:
    """Report whether a maximum is lower for any resource, where none means no limit."""
    return any(name not in before or most < before[name] for name, most in after.items())


def is_raised(before: Amounts, after: Amounts) -> bool:
    """Report whether a maximum is higher for some resource and lower for none."""
    return before != after and not is_lowered(before, after)


def _settings(tree: QueueTree, queue: Queue, mode: Mode) -> TimerSettings:
    enforced = tree.quota_preemption and mode != "off"
    return TimerSettings(queue.maximum, queue.delay if enforced else NEVER, mode)
