"""A preemptor whose queue is below its guarantee, and is refused nevertheless: why that makes no room."""

from __future__ import annotations

from makeway.core.queues.amounts import text_of
from makeway.core.queues.reclaim import Reclaim
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.state import Snapshot


def below_guarantee(snapshot: Snapshot, question: Question, reclaim: Reclaim | None) -> str:
    """Return that a guarantee keeps the queue's own pods, and what it takes back of others'; else nothing.

    Schedulers that reclaim evict pods of queues above their guarantee for it.
    """
    tree, own = snapshot.queues.tree, snapshot.queues.queue_of(question.preemptor)
    held = snapshot.queues.held
    if tree is None or own is None or held is None:
        return ""
    for queue in tree.line(own.number) if reclaim is None else (reclaim.queue,):
        for name, least in sorted(queue.guaranteed.items()):
            asked, used = question.preemptor.requests.get(name, 0), held.of(queue.number).get(name, 0)
            if asked and used + asked <= least:
                amounts = f"{name} {text_of(name, used)} of its guaranteed {text_of(name, least)}"
                if reclaim is not None:
                    return (
                        f"; queue {queue.path} uses {amounts}, and takes back only from queues above theirs, "
                        "with pods of equal priority"
                    )
                return (
                    f"; queue {queue.path} uses {amounts}, which keeps its own pods and reclaims nothing "
                    "from queues above theirs: of those only pods of lower priority go"
                )
    return ""
