"""Which queue a pod is in.

The order, the same in the scheduler's queue gate:

1. the label `yunikorn.apache.org/queue`, else `queue`: the queue's full path,
2. without a label `root.<namespace>`, where that queue is defined,
3. without either `root.default`.

Pods run in leaves. A queue with a list of namespaces is for these alone, one without is open. What follows
for a pod whose label names no leaf that its namespace may use depends on the configuration:

* `unplaced: hold`: it counts in a queue that has no room, and so is held. A namespace that the tree names has
  its queues: an open queue is none of them, unless it is `root.<namespace>` or below, so that no label, and
  no lack of one, takes its pods elsewhere.
* `unplaced: default`: it counts as `root.default`, with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from makeway.core.queues.tree import DEFAULT_PATH, ROOT, UNPLACED_PATH, Queue, QueueTree


@dataclass(frozen=True, slots=True)
class QueuePlacement:
    """The leaf that a pod counts in, and why it is not the one it asked for; empty where it is."""

    queue: Queue
    warning: str = ""


def place(tree: QueueTree, asked: str, namespace: str) -> QueuePlacement:
    """Find a pod's queue. O(1)."""
    held = tree.find(UNPLACED_PATH)
    default = tree.at(DEFAULT_PATH)
    instead, waits = (default, "") if held is None else (held, ", and is held while it has no node")
    then = f"it counts in {instead.path}{waits}"
    if not asked:
        own = tree.find(f"{ROOT}.{namespace}")
        if own is not None and own.is_leaf and _may_use(tree, own, namespace):
            return QueuePlacement(own)
        if held is None or _may_use(tree, default, namespace):
            return QueuePlacement(default)
        return QueuePlacement(
            held, f"namespace {namespace} may not use {DEFAULT_PATH}: name a queue by label; {then}"
        )
    queue = tree.find(asked)
    if queue is None:
        return QueuePlacement(instead, f"there is no queue {asked}; {then}")
    if not queue.is_leaf:
        return QueuePlacement(instead, f"{asked} has queues below it: name one of them; {then}")
    if not _may_use(tree, queue, namespace):
        return QueuePlacement(instead, f"namespace {namespace} may not use {asked}; {then}")
    return QueuePlacement(queue)


def _may_use(tree: QueueTree, queue: Queue, namespace: str) -> bool:
    if queue.namespaces:
        return namespace in queue.namespaces
    if UNPLACED_PATH not in tree.numbers or namespace not in tree.named:
        return True
    return f"{queue.path}.".startswith(f"{ROOT}.{namespace}.")
