"""Which queue a pod is in.

The order, the same in the scheduler's queue gate:

1. the label `yunikorn.apache.org/queue`, else `queue`: the queue's full path,
2. else `root.<namespace>`, where that queue is defined,
3. else `root.default`.

A label that names no leaf, or one that the pod's namespace may not use, counts as `root.default`, with a
warning. `root.<namespace>` counts under the same conditions, without a warning, as the pod did not ask for
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from makeway.core.queues.tree import DEFAULT_PATH, ROOT, Queue, QueueTree


@dataclass(frozen=True, slots=True)
class QueuePlacement:
    """The leaf that a pod counts in, and why it is not the one it asked for; empty where it is."""

    queue: Queue
    warning: str = ""


def place(tree: QueueTree, asked: str, namespace: str) -> QueuePlacement:
    """Find a pod's queue. O(1)."""
    default = tree.at(DEFAULT_PATH)
    if not asked:
        own = tree.find(f"{ROOT}.{namespace}")
        return QueuePlacement(
            own if own is not None and own.is_leaf and _may_use(own, namespace) else default
        )
    queue = tree.find(asked)
    if queue is None:
        return QueuePlacement(default, f"there is no queue {asked}; counted in {DEFAULT_PATH}")
    if not queue.is_leaf:
        return QueuePlacement(
            default, f"{asked} has queues below it: name one of them; counted in {DEFAULT_PATH}"
        )
    if not _may_use(queue, namespace):
        return QueuePlacement(
            default, f"namespace {namespace} may not use {asked}; counted in {DEFAULT_PATH}"
        )
    return QueuePlacement(queue)


def _may_use(queue: Queue, namespace: str) -> bool:
    return not queue.namespaces or namespace in queue.namespaces
