"""What a plan for a group says: values of the core, before they become messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from makeway.bus.plan import MemberPlacement
from makeway.planner.plan.price import Price
from makeway.planner.plan.result import AwaitedPod, GangDomain, Planned, RemovablePod, Scope
from makeway.planner.snapshot.records import PodRecord


@dataclass(frozen=True, slots=True)
class GangPlan(Planned):
    """Where the members go, in an order in which they can be placed, and which pods must go for them.

    `victims`: node by node; pods of one unit stand next to one another. Without any, the columns need no pod
    gone. More are placed than have to be only where that costs nothing. `domains`: key and value of each
    topology constraint. `priced`: the domains that were looked at, best first. `changed`: the cluster did so
    meanwhile; this holds in it as it is now, but another plan might be made there.
    """

    scope: Scope
    placements: tuple[MemberPlacement, ...]
    victims: tuple[RemovablePod, ...]
    awaited: tuple[AwaitedPod, ...]
    price: Price
    domains: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    priced: tuple[GangDomain, ...] = ()
    changed: bool = False

    @property
    def placed(self) -> int:
        """Return how many members get a node."""
        return sum(one.count for one in self.placements)

    @property
    def displacing(self) -> Mapping[int, int]:
        """Return how many members of each class come where pods go."""
        going, found = {one.pod.node for one in self.victims}, Counter[int]()
        for one in self.placements:
            if one.node in going:
                found[one.member_class] += one.count
        return found

    def without(self, held: Callable[[RemovablePod], bool]) -> GangPlan | None:
        """Return all of it or nothing: no part of it places the group."""
        return None if any(map(held, self.victims)) else self

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that members go to, in order of names."""
        return tuple(sorted({one.node for one in self.placements}))

    @property
    def needs_order(self) -> bool:
        """Whether an order would carry it out, as of a plan for a pod."""
        return bool(self.victims) or any(one.order_id for one in self.awaited)

    @property
    def gone(self) -> list[PodRecord]:
        """Return all pods that the plan counts on to leave."""
        return [*(one.pod for one in self.victims), *(one.pod for one in self.awaited)]
