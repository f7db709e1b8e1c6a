"""What orders that came to nothing teach: the pods and nodes that their preemptor's next plans leave out.

docs/decisions/bridge-retries.md says why. Another preemptor may well evict those pods: an admission policy
may look at who asks and when. Pure state, with the time passed in.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.commit import LATE, TOO_LARGE
from makeway.bus.messages import MAY_PASS, Outcome, VictimOutcome, Void
from makeway.planner.plan.left_out import PassedOver

FIRST: Final = timedelta(seconds=10)
LONGEST: Final = timedelta(minutes=5)
"""How long a pod or node is left out the first time, and at the most: each further time doubles it."""

MOST_LEFT_OUT: Final = 64
"""Pods, and nodes, that are left out for one preemptor. Those tried again first go."""

_LONGEST_CAUSE: Final = 200

_PASSES: Final = MAY_PASS - {"budget"}
"""Reasons of victims for which an order had no time left. A budget keeps its pod longer than that."""

_NEVER_REMOVED: Final = frozenset({"spared", "failed", "notAttempted"})

_OF_THE_BREAKER: Final = frozenset({"breaker-open", "breaker-open-namespace"})
"""Reasons for which an order is refused that say nothing of its preemptor, nor of its node."""

_OF_ANOTHER_ORDER: Final = "awaited-order-failed"
_OF_THE_NODE: Final = frozenset({"victim-spared", "unit-incomplete", "too-many-victims"})
"""Reasons for which an order is refused that another node may not have; caps, modes and breakers it has.

The evictor may know a lower `limits.victimsPerOrder` than the plan did; elsewhere fewer victims may do.
"""

_ANSWERED: Final = re.compile(r"^\d{3} \w+: ")
"""How a refusal of the API server begins: its status and reason."""


@dataclass(frozen=True, slots=True)
class OrderEnd:
    """How an order ended, by its outcome.

    `removed`: UIDs of the pods that it deleted. `unevicted`: those that stay for a reason that lasts.
    `nodes_fault`: the same plan would fail again. `counts`: whether it says something of its preemptor.
    """

    removed: tuple[str, ...]
    succeeded: bool
    at: datetime
    unevicted: tuple[VictimOutcome, ...] = ()
    nodes_fault: bool = False
    counts: bool = True


def end_of(outcome: Outcome) -> OrderEnd:
    """Return what an outcome says of its order's end."""
    failed, refused = outcome.result == "failed", outcome.result == "refused"
    return OrderEnd(
        removed=tuple(one.uid for one in outcome.victims if one.result not in _NEVER_REMOVED),
        succeeded=outcome.result == "succeeded",
        at=outcome.finished_at,
        unevicted=tuple(
            one
            for one in outcome.victims
            if one.result == "spared" or (one.result == "failed" and one.reason not in _PASSES)
        ),
        nodes_fault=(failed and outcome.reason != _OF_ANOTHER_ORDER)
        or (refused and outcome.reason in _OF_THE_NODE),
        counts=outcome.reason not in _OF_THE_BREAKER,
    )


def end_of_void(void: Void, at: datetime) -> OrderEnd:
    """Return what it says that an order was never stored: of its preemptor only what lies with the plan.

    And that its nominations did not show in time, as those of a group with more members than its scheduler
    writes until then: tried at once, they would be written and taken back without end.
    """
    of_the_node = void.reason in _OF_THE_NODE or void.reason == TOO_LARGE
    counts = of_the_node or void.reason == LATE
    return OrderEnd(removed=(), succeeded=False, at=at, nodes_fault=of_the_node, counts=counts)


@dataclass(frozen=True, slots=True)
class _Pause:
    until: datetime
    lasts: timedelta
    cause: str


class Failures:
    """Those of one preemptor."""

    __slots__ = ("_nodes", "_victims")

    def __init__(self) -> None:
        self._victims: dict[str, _Pause] = {}
        self._nodes: dict[str, _Pause] = {}

    def ended(self, end: OrderEnd, node: str, namespace: str) -> None:
        """Take note of an order that made no room. `node`: a pod's; empty for a group, whose nodes are many.

        Where a pod stays that had not been left out, another one on the same node may do.
        """
        news = [_note(self._victims, one.uid, end.at, cause_of(one, namespace)) for one in end.unevicted]
        if node and end.nodes_fault and not any(news):
            _note(self._nodes, node, end.at, "")

    def at(self, now: datetime) -> PassedOver:
        """Return what a plan made now leaves out."""
        victims = {uid: one for uid, one in self._victims.items() if now < one.until}
        nodes = {name: one for name, one in self._nodes.items() if now < one.until}
        causes = Counter(one.cause for one in victims.values())
        return PassedOver(
            victims=frozenset(victims),
            nodes=frozenset(nodes),
            until=min((one.until for one in (*victims.values(), *nodes.values())), default=None),
            why=min(causes, key=lambda cause: (-causes[cause], cause), default=""),
        )


def cause_of(victim: VictimOutcome, namespace: str) -> str:
    """Return why a pod stays, without its name, for the condition of a preemptor of a namespace.

    Of a pod of another namespace it is a constant or a status: what an admission policy, a budget or a group
    is called there is not for the preemptor; see docs/visibility.md.
    """
    if victim.namespace != namespace:
        answered = _ANSWERED.match(victim.message)
        return answered.group().removesuffix(": ") if answered else victim.reason or victim.result
    text = victim.message or victim.reason or victim.result
    for quoted in (f'"{victim.name}"', f"'{victim.name}'", f"/{victim.name}"):
        text = text.replace(quoted, quoted.replace(victim.name, "…"))
    return text.encode()[:_LONGEST_CAUSE].decode(errors="ignore")


def _note(table: dict[str, _Pause], key: str, at: datetime, cause: str) -> bool:
    """Leave something out, longer each time; report whether it was not left out then."""
    before = table.get(key)
    lasts = FIRST if before is None else min(2 * before.lasts, LONGEST)
    table[key] = _Pause(at + lasts, lasts, cause)
    if len(table) > MOST_LEFT_OUT:
        del table[min(table, key=lambda one: table[one].until)]
    return before is None or at >= before.until
