"""Pods that are terminating: whose room a plan awaits, and which of them should have left. Pure.

One rule for every plan: a terminating pod is no victim. Its room is on its way while at most the policy's
`awaitTerminating` of its grace period is left; with more left it counts only in a plan that is otherwise
refused. A minute after the end of its grace period it is overdue, and makes no room.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from makeway.core.k8s.importance import microseconds, moment_of
from makeway.core.k8s.times import api_time
from makeway.core.policy.exemption import FOREVER, TERMINATING
from makeway.core.policy.rules import Verdict
from makeway.planner.plan.naming import full_name, named_for
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

OVERDUE_AFTER: Final = timedelta(seconds=60)
"""After the end of its grace period a pod is no longer expected to leave: its kubelet may be dead."""

_MICROSECOND: Final = timedelta(microseconds=1)


class InFlightPods(msgspec.Struct, gc=False):
    """A request's pods on one node: nominated, assumed (and not yet seen there), and awaited to go.

    Restored pods, which are no longer seen there, are among the assumed ones.

    `refused`: pods whose deletion was refused, as the snapshot has them; they stay. `apart`: units with pods
    here of which pods anywhere are in flight, refused or assumed, and how many; and gangs, by number below 0.
    """

    nominated: list[PodRecord] = []
    assumed: list[PodRecord] = []
    awaited: list[PodRecord] = []
    refused: list[PodRecord] = []
    apart: list[tuple[int, int, int, int]] = []


@dataclass(frozen=True, slots=True)
class AwaitedRoom:
    """The bound pods whose room is on its way, by row; it holds from `since` on, before `until`.

    `elsewhere`: those whose node is not there, whose room queues have. `version`: of the pods that are
    terminating, and of where they are. `complete`: no pod that is not overdue is left out.
    """

    by_row: Mapping[int, InFlightPods]
    version: int = 0
    since: int = 0
    until: int = 0
    complete: bool = True
    elsewhere: tuple[PodRecord, ...] = ()

    def seen(self, snapshot: Snapshot) -> Mapping[int, InFlightPods]:
        """Return them as they are in the snapshot now, by row; they must not be changed."""
        if self.version == snapshot.exemptions.terminating_version:
            return self.by_row
        now: dict[int, InFlightPods] = {}
        for pod in self.pods():
            known = snapshot.exemptions.terminating.get(pod.uid)
            if known is not None and known.node in snapshot.rows:
                now.setdefault(snapshot.rows[known.node], InFlightPods()).awaited.append(known)
        return now

    def pods(self) -> Iterator[PodRecord]:
        """Yield the pods."""
        for one in self.by_row.values():
            yield from one.awaited
        yield from self.elsewhere


NO_ROOM: Final = AwaitedRoom({})


class AwaitedRooms:
    """What was found last, with patience and without: most plans find the same."""

    def __init__(self) -> None:
        self._last: dict[bool, AwaitedRoom] = {}

    def at(self, snapshot: Snapshot, now: datetime, *, patient: bool = False) -> AwaitedRoom:
        """Return the bound pods whose room is on its way.

        `patient`: however much of their grace period is left. O(terminating pods) where one of them, or its
        time, is another than for the plan before.
        """
        last, micros = self._last.get(patient), microseconds(now)
        version = snapshot.exemptions.terminating_version
        if last is None or last.version != version or not last.since <= micros < last.until:
            last = self._last[patient] = _awaited(snapshot, micros, version, patient=patient)
        return last


def _awaited(snapshot: Snapshot, now: int, version: int, *, patient: bool) -> AwaitedRoom:
    overdue_after = OVERDUE_AFTER // _MICROSECOND
    most = FOREVER if patient else snapshot.exemptions.policy.await_terminating // _MICROSECOND
    by_row: dict[int, InFlightPods] = {}
    elsewhere: list[PodRecord] = []
    until, complete = FOREVER, True
    for pod in snapshot.exemptions.terminating.values():
        overdue, left = pod.ends_micros + overdue_after, pod.ends_micros - now
        if overdue <= now:
            continue
        if left > most:
            complete, until = False, min(until, now + left - most)
            continue
        until = min(until, overdue)
        row = snapshot.rows.get(pod.node)
        there = elsewhere if row is None else by_row.setdefault(row, InFlightPods()).awaited
        there.append(pod)
    return AwaitedRoom(by_row, version, now, until, complete, tuple(elsewhere))


def is_overdue(pod: PodRecord, now: datetime) -> bool:
    """Report whether a pod should have left by now."""
    return pod.terminating and pod.ends_micros <= microseconds(now - OVERDUE_AFTER)


def overdue_at(pods: Iterable[PodRecord]) -> datetime:
    """Return when the last of some terminating pods is no longer expected to leave."""
    return moment_of(max(pod.ends_micros for pod in pods)) + OVERDUE_AFTER


def verdict_of(pod: PodRecord, now: datetime) -> Verdict:
    """Return why a terminating pod is no victim."""
    ends = api_time(moment_of(pod.ends_micros))
    if is_overdue(pod, now):
        return Verdict(False, TERMINATING, f"its grace period ended at {ends}, and it has not left")
    return Verdict(False, TERMINATING, f"it is being deleted, and its grace period ends at {ends}")


def overdue_text(snapshot: Snapshot, nodes: Container[str], now: datetime, namespace: str) -> str:
    """Name the first few pods of some nodes that should have left; empty for none. O(terminating pods).

    `namespace`: of who reads it.
    """
    there = snapshot.exemptions.terminating.values()
    late = [pod for pod in there if pod.node in nodes and is_overdue(pod, now)]
    late.sort(key=lambda pod: (pod.ends_micros, pod.uid))

    def named(pod: PodRecord) -> str:
        ended = api_time(moment_of(pod.ends_micros))
        return f"{full_name(pod)} on {pod.node} (its grace period ended at {ended})"

    told = named_for(namespace, late, named)
    return told and f"makes no room since its node or a finalizer keeps it: {told}"
