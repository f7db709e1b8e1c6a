"""What a refusal says of the guarantees of the preemptor's queues: why they make no room."""

from __future__ import annotations

from makeway.core.queues.amounts import text_of
from makeway.core.queues.reclaim import Reclaim, beyond_guarantees
from makeway.core.queues.tree import Queue
from makeway.planner.plan.request import Question
from makeway.planner.plan.who_preempts import held_for_reclaim
from makeway.planner.snapshot.state import Snapshot


def guarantees_text(snapshot: Snapshot, question: Question, reclaim: Reclaim | None) -> str:
    """Return what the preemptor's queue takes back of others', or why nothing; else nothing.

    Where queues take nothing back at all only one below its guarantee is named: schedulers that reclaim evict
    pods of queues above their guarantee for it. `reclaim`: what the queue may take back.
    """
    queues, pod = snapshot.queues, question.preemptor
    tree, own = queues.tree, queues.queue_of(pod)
    if tree is None or own is None or queues.held is None:
        return ""
    if (held := held_for_reclaim(snapshot, question, [pod])) is not None:
        if reclaim is not None:
            queue, name = reclaim.queue, reclaim.resources[0]
            return (
                f"; {_uses(queue, name, held(queue.number).get(name, 0))}, and takes back only from queues "
                "above theirs, with pods of equal priority"
            )
        if beyond := [_uses(*one) for one in beyond_guarantees(tree, own.number, pod.requests, held)]:
            return f"; {', and '.join(beyond)}, too much to take anything back for this pod"
    for queue in tree.line(own.number):
        for name, least in sorted(queue.guaranteed.items()):
            asked, used = pod.requests.get(name, 0), queues.held.of(queue.number).get(name, 0)
            if asked and used + asked <= least:
                return (
                    f"; {_uses(queue, name, used)}, which keeps its own pods and reclaims nothing from "
                    "queues above theirs: of those only pods of lower priority go"
                )
    return ""


def _uses(queue: Queue, name: str, used: int) -> str:
    least = queue.guaranteed[name]
    return f"queue {queue.path} uses {name} {text_of(name, used)} of its guaranteed {text_of(name, least)}"
