"""Orders that others count on: what their ends mean for those. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from makeway.bus.messages import Awaited, Outcome
from makeway.evictor.judge.verdicts import Await, Failed


def awaited_state(
    awaited: Iterable[Awaited], outcomes: Mapping[str, Outcome | None]
) -> Await | Failed | None:
    """What the ends of the orders that this one counts on mean for it. None: all awaited pods go.

    `outcomes` has every awaited order's id; None where it has no outcome yet. An order that did not succeed
    may have removed the pod that is awaited all the same, as one of a quota that the caps cut short.
    """
    pending: list[str] = []
    for one in awaited:
        outcome = outcomes.get(one.order_id)
        if not one.order_id or (outcome is not None and _removed(outcome, one.uid)):
            continue
        if outcome is not None:
            message = f"order {one.order_id}, which this one counts on, {outcome.result}"
            return Failed("awaited-order-failed", message)
        pending.append(one.order_id)
    return Await(tuple(dict.fromkeys(pending))) if pending else None


def _removed(outcome: Outcome, uid: str) -> bool:
    """Report whether an order has removed a pod that another one awaits."""
    return outcome.result == "succeeded" or any(one.uid == uid and one.leaves for one in outcome.victims)
