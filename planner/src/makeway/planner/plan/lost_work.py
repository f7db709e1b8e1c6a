"""What victims lose of their work, as one preemptor counts it. Pure.

Of every pod it grows with time by the same amount each second, until it has reached its bound. So what a node
costs at another moment is known without a look at its pods, up to the moment at which one of them reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from makeway.core.k8s.resources import PODS
from makeway.core.policy.document import LostWork
from makeway.core.policy.exemption import FOREVER
from makeway.core.policy.lost_work import MOST_SHARE, WHOLE, UnsavedWork, seconds_of, share, whole_seconds
from makeway.planner.snapshot.columns import LONGEST_UNSAVED, RESOURCES, UNSAVED_SINCE, Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots

_SECOND = 1_000_000
_LAST_SECOND = FOREVER // _SECOND - 1


@dataclass(frozen=True, slots=True)
class Losses:
    """What pods lose, int64[n] each: `rate` a second on top of `base`, until the microsecond `until`."""

    rate: Ints
    base: Ints
    until: Ints

    def at(self, second: int) -> Ints:
        """Return what they lose at a moment that is not after `until`."""
        return self.rate * second + self.base

    def of(self, slots: Ints, places: Ints) -> Losses:
        """Return those of some pods. `self`: int64[slots, M] each."""
        return Losses(self.rate[slots, places], self.base[slots, places], self.until[slots, places])

    def where(self, own: Flags, others: Losses) -> Losses:
        """Return their own, or what others lose in their place."""
        return Losses(
            np.where(own, self.rate, others.rate),
            np.where(own, self.base, others.base),
            np.where(own, self.until, others.until),
        )

    def summed(self, places: Ints, many: int) -> Losses:
        """Return the losses of so many nodes, from those of pods. `places`: int64[n], of the pods."""
        rate, base = np.zeros((2, many), np.int64)
        until = np.full(many, FOREVER, np.int64)
        np.add.at(rate, places, self.rate)
        np.add.at(base, places, self.base)
        np.minimum.at(until, places, self.until)
        return Losses(rate, base, until)


@dataclass(frozen=True, slots=True)
class LostWorkOf:
    """What evicted pods lose by the measure of one preemptor: thousandths of seconds of a pod of its size.

    `needs`: what it asks for. `longest`: seconds, of no pod more count; `restart`: of every pod so many more.
    `now_micros`: the time.
    """

    needs: Mapping[str, int]
    longest: int
    restart: int
    now_micros: int

    @property
    def second(self) -> int:
        """The time in seconds since 1970."""
        return self.now_micros // _SECOND

    @property
    def measure(self) -> tuple[object, ...]:
        """What decides besides the time."""
        return self.longest, self.restart, *sorted(self.needs.items())

    def of_pods(self, columns: NodeSlots, slots: Ints, places: Ints) -> Losses:
        """Return the losses of the pods in some slots. O(n · asked resources)."""
        counted = {name for name, need in self.needs.items() if need and name != PODS}
        asked = [
            (RESOURCES + layer, self.needs[name])
            for name, layer in columns.resources.items()
            if name in counted
        ]
        layers = (UNSAVED_SINCE, LONGEST_UNSAVED, *(layer for layer, _ in asked))
        since, longest, *uses = columns.of_each(layers, slots, places)
        held = np.zeros(slots.size, np.int64)
        for amounts, (_, need) in zip(uses, asked, strict=True):
            np.maximum(held, amounts * WHOLE // need, out=held)
        return self._losses(np.minimum(held, MOST_SHARE), since, np.minimum(longest, self.longest))

    def of(self, work: UnsavedWork) -> int:
        """Return what one pod loses now."""
        return work.lost(self.needs, self.longest, self.restart, self.second)

    def together(self, works: Iterable[UnsavedWork]) -> tuple[tuple[int, int, int], int]:
        """Return what some pods lose together: rate, base and until, and what that is now. O(pods)."""
        found = np.array(
            [(share(one.requests, self.needs), one.since, min(one.longest, self.longest)) for one in works],
            np.int64,
        ).reshape(-1, 3)
        losses = self._losses(found[:, 0], found[:, 1], found[:, 2])
        until = int(losses.until.min(initial=FOREVER))
        return (int(losses.rate.sum()), int(losses.base.sum()), until), int(losses.at(self.second).sum())

    def _losses(self, shares: Ints, since: Ints, longest: Ints) -> Losses:
        losses = _unsaved(shares, since, longest, self.second)
        return replace(losses, base=losses.base + shares * self.restart) if self.restart else losses


def lost_work_of(policy: LostWork, needs: Mapping[str, int], now_micros: int) -> LostWorkOf:
    """Return what decides for a preemptor how much an evicted pod loses."""
    longest, restart = seconds_of(policy.longest), whole_seconds(policy.restart)
    return LostWorkOf(needs, longest, restart, now_micros)


def largest_of(needs: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return of each resource the most that one of some pods asks for: the measure of a group."""
    return {name: max(one.get(name, 0) for one in needs) for one in needs for name in one}


def ranking_by(policy: LostWork, needs: Mapping[str, int], now_micros: int) -> LostWorkOf | None:
    """Return the same where the policy ranks nodes by it, else None."""
    return None if policy.rank == "off" else lost_work_of(policy, needs, now_micros)


def _unsaved(shares: Ints, since: Ints, longest: Ints, now: int) -> Losses:
    """Return what pods lose that they have not saved. O(n)."""
    begun, grows = since < now, now - since < longest
    grows &= begun
    if grows.all():
        return Losses(shares, -shares * since, (since + longest) * _SECOND + _SECOND - 1)
    rate = np.where(grows, shares, 0)
    base = np.where(grows, -since, np.where(begun, longest, 0)) * shares
    ends = np.where(grows, since + longest, np.where(begun, _LAST_SECOND, since))
    return Losses(rate, base, np.minimum(ends * _SECOND + _SECOND - 1, FOREVER))
