"""What a simulated pod asks for and no column judges, in sentences: the filters may say no. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from makeway.core.k8s.unmodelled import unmodelled
from makeway.planner.offline.admission import DEFAULT_SCHEDULER
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.state import Snapshot

_WITH_LIMITS: Final = ("persistentVolumeClaim", "ephemeral", "csi")
"""Volumes of which a node can attach so many, and for which there may be no capacity."""


class _Spec(msgspec.Struct, frozen=True):
    volumes: tuple[dict[str, msgspec.Raw], ...] | None = None


class _WithVolumes(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_volumes = msgspec.json.Decoder(_WithVolumes).decode


def unseen(snapshot: Snapshot, raw: bytes, question: Question) -> Iterator[str]:
    """Yield what of a pod was not judged, whatever the answer; `beyond` has what the answer left out.

    `raw`: the v1.Pod.
    """
    if what := unmodelled(raw):
        yield f"not judged: {what}"
    if snapshot.devices:
        for name in sorted(snapshot.served_by_devices(question.needs)):
            yield f"not judged: devices that a DeviceClass offers as {name}"
    volumes = _volumes(raw).spec.volumes or ()
    if any(kind in volume for volume in volumes for kind in _WITH_LIMITS):
        yield "not judged: attach limits of nodes and capacity of storage, for its volumes"
    if question.scheduler_name != DEFAULT_SCHEDULER:
        yield f"its scheduler, {question.scheduler_name}, is taken for kube-scheduler with makeway in it"


def beyond(left_out: Iterable[str]) -> Iterator[str]:
    """Yield what is more than plans look at. `left_out`: constants of `bounds`."""
    for what in left_out:
        yield f"not judged: {what}, which is beyond the planner's bounds"
