"""What a refusal says of the guarantees of the preemptor's queues: why they make no room."""

from __future__ import annotations

from makeway.core.queues.amounts import text_of
from makeway.core.queues.reclaim import beyond_guarantees
from makeway.core.queues.tree import Queue
from makeway.planner.plan.who_preempts import WhoPreempts


def guarantees_text(preempting: WhoPreempts) -> str:
    """Return what the queue of a pod or a group takes back of others', or why nothing; else nothing.

    Where queues take nothing back at all only one below its guarantee is named: schedulers that reclaim evict
    pods of queues above their guarantee for it.
    """
    claim, reclaim = preempting.claim, preempting.reclaim
    if claim is None:
        return ""
    if reclaim is not None:
        queue, name = reclaim.queue, reclaim.resources[0]
        return (
            f"; {_uses(queue, name, claim.held(queue.number).get(name, 0))}, and takes back only from queues "
            "above theirs, with pods of equal priority"
        )
    beyond = beyond_guarantees(claim.tree, claim.queue.number, claim.asked, claim.held)
    if claim.tree.reclaim and (named := [_uses(*one) for one in beyond]):
        return f"; {', and '.join(named)}, too much to take anything back for it"
    for queue in claim.tree.line(claim.queue.number):
        held = claim.held(queue.number)
        for name, least in sorted(queue.guaranteed.items()):
            asked, used = claim.asked.get(name, 0), held.get(name, 0)
            if asked and used + asked <= least:
                return (
                    f"; {_uses(queue, name, used)}, which keeps its own pods and reclaims nothing from "
                    "queues above theirs: of those only pods of lower priority go"
                )
    return ""


def _uses(queue: Queue, name: str, used: int) -> str:
    least = queue.guaranteed[name]
    return f"queue {queue.path} uses {name} {text_of(name, used)} of its guaranteed {text_of(name, least)}"
