"""What is about to change on a node, in a request or by itself."""

from __future__ import annotations

import msgspec

from makeway.planner.snapshot.records import PodRecord


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
