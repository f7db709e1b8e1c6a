"""A preemptor whose queue is below its guarantee, and is refused nevertheless: why that makes no room."""

from __future__ import annotations

from makeway.core.queues.amounts import text_of
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.state import Snapshot


def below_guarantee(snapshot: Snapshot, question: Question) -> str:
    """Return that a guarantee keeps the queue's own pods and takes none of others; else nothing.

    Schedulers that reclaim would evict pods of queues above their guarantee for it, whatever the priority.
    """
    tree, own = snapshot.queues.tree, snapshot.queues.queue_of(question.preemptor)
    held = snapshot.queues.held
    if tree is None or own is None or held is None:
        return ""
    for queue in tree.line(own.number):
        for name, least in sorted(queue.guaranteed.items()):
            asked, used = question.preemptor.requests.get(name, 0), held.of(queue.number).get(name, 0)
            if asked and used + asked <= least:
                amounts = f"{name} {text_of(name, used)} of its guaranteed {text_of(name, least)}"
                return (
                    f"; queue {queue.path} uses {amounts}, which keeps its own pods and reclaims nothing "
                    "from queues above theirs: of those only pods of lower priority go"
                )
    return ""
