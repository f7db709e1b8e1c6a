"""What answered plans are about to order: their victims and places count as taken until their commits come.

Each planner has its own; that of the next leader begins without. Pure state, with the time passed in.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.messages import Placement
from makeway.planner.orders.not_now import Asker
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.naming import as_placement
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

LASTS: Final = timedelta(seconds=5)
"""How long a bridge may take from the answer to its commit before another's plan may take the room. The
plugin keeps an answer longer than that: its filters and the commit's judgement find out."""

MOST_IN_NAMESPACE: Final = 256
"""Pledges for preemptors of one namespace, as many as answers that the plugin keeps; for one more its eldest
is forgotten."""

MOST_UNUSED: Final = 8
"""Plans in a row without a commit, after which a preemptor's next one counts on less; see `Pledges.unused`.
With a lower bound more pods are evicted, with a higher one the planner is busy for longer."""


@dataclass(frozen=True, slots=True)
class Pledge:
    """The best candidate of one plan. `pledge_id`: that of the decision. `victims`: by UID, none awaited.

    `preemptor`: for whom; `places`: where it comes, of a group its members. `nodes`: of places and victims.
    `needs_order`: without an order the room does not come about; it counts towards the limit. `row`:
    how many plans its preemptor has had since its last commit, with this one.
    """

    pledge_id: str
    preemptor: Asker
    places: tuple[Placement, ...]
    victims: tuple[str, ...]
    until: datetime
    needs_order: bool = True
    nodes: frozenset[str] = frozenset()
    row: int = 1


def pledge_of(preemptor: Asker, decision: Decision, snapshot: Snapshot, now: datetime) -> Pledge | None:
    """Return what the best candidate of a pod's plan takes, or the plan for a group. O(members).

    None where there is no plan, or only the bridge can say which candidate is best.
    """
    question, plan = decision.question, decision.result
    if decision.chosen is None or isinstance(plan, PlanRefusal):
        return None
    places: tuple[Placement, ...] = ()
    if isinstance(plan, Plan):
        places = (as_placement(decision.asked.preemptor, plan.candidates[0].node),)
    elif isinstance(question, GangQuestion):
        places = tuple(_places(question, plan, snapshot))
    return Pledge(
        pledge_id=decision.decision_id,
        preemptor=preemptor,
        places=places,
        victims=tuple(one.pod.uid for one in decision.chosen),
        until=now + LASTS,
        needs_order=plan.needs_order,
        nodes=frozenset(one.node for one in places) | {one.pod.node for one in decision.chosen},
    )


def _places(question: GangQuestion, plan: GangPlan, snapshot: Snapshot) -> Iterator[Placement]:
    """Yield where members come: of those that ask for the same any one, since the plan only counts them."""
    members = [snapshot.pods.get(one.question.preemptor.uid) for one in question.classes]
    group = next((snapshot.groups.of(one) for one in members if one is not None), None)
    waiting: defaultdict[Hashable, list[PodRecord]] = defaultdict(list)
    for pod in group.pods.values() if group is not None else ():
        if not pod.node and not pod.terminating:
            waiting[_alike(pod)].append(pod)
    for place in plan.placements:
        member = members[place.member_class]
        alike = [] if member is None else waiting[_alike(member)]
        for _ in range(min(place.count, len(alike))):
            yield as_placement(alike.pop(), place.node)


def _alike(pod: PodRecord) -> Hashable:
    return pod.signature, tuple(sorted(pod.requests.items()))


class Pledges:
    """One a preemptor, the eldest first. A call costs O(pledges), of which there are those of 5 s.

    `bound`: reports whether a pod has a node by now. Its plan was asked for ahead and not needed: it takes
    nothing.
    """

    def __init__(self, bound: Callable[[str], bool] = lambda _: False) -> None:
        self._bound = bound
        self._by_uid: OrderedDict[str, Pledge] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._by_uid)

    def pledge(self, uid: str, pledge: Pledge | None) -> None:
        """Take note of a preemptor's newest plan, in place of that before; None where it takes nothing."""
        before = self._by_uid.pop(uid, None)
        if pledge is None:
            return
        if before is not None and pledge.until - before.until < LASTS:
            pledge = replace(pledge, row=before.row + 1)
        namespace = pledge.preemptor.namespace
        own = [other for other, one in self._by_uid.items() if one.preemptor.namespace == namespace]
        if len(own) >= MOST_IN_NAMESPACE:
            del self._by_uid[own[0]]
        self._by_uid[uid] = pledge

    def withdraw(self, uid: str) -> None:
        """Forget that of a preemptor: its commit has come."""
        self._by_uid.pop(uid, None)

    def id_of(self, uid: str) -> str:
        """Return the id of a preemptor's pledge; empty where it has none."""
        pledge = self._by_uid.get(uid)
        return "" if pledge is None else pledge.pledge_id

    def live(self, now: datetime, *, asking: str = "") -> Iterator[Pledge]:
        """Return those that count for a preemptor that asks."""
        while self._by_uid and next(iter(self._by_uid.values())).until <= now:
            self._by_uid.popitem(last=False)
        return (
            one
            for uid, one in self._by_uid.items()
            if uid != asking and now < one.until and not self._bound(uid)
        )

    def unused(
        self, now: datetime, *, asking: str, priority: int, nominated: Mapping[str, str]
    ) -> frozenset[str]:
        """Return the nodes of those of at least a priority of which no pod is nominated to any of them.

        `nominated`: by UID, the node; a plan does not say which member of a group comes to which. Their
        answers wait for their pods' next cycles, and no scheduler lets another pod count on room that no
        order makes. No node before whoever asks has had `MOST_UNUSED` plans, since room that others make
        spares victims.
        """
        last = self._by_uid.get(asking)
        if last is None or last.row < MOST_UNUSED:
            return frozenset()
        nodes = (
            one.nodes
            for one in self.live(now, asking=asking)
            if one.preemptor.priority >= priority
            and all(nominated.get(place.uid) not in one.nodes for place in one.places)
        )
        return frozenset[str]().union(*nodes)

    def victims(self, now: datetime, *, asking: str = "", priority: int | None = None) -> dict[str, str]:
        """Return the UIDs of the pods that they take, each with its pledge's id; of two the elder's.

        `priority`: of whoever asks; what less important pods may come to order keeps no pod from it.
        """
        taken: dict[str, str] = {}
        for one in self.live(now, asking=asking):
            if priority is None or one.preemptor.priority >= priority:
                for victim in one.victims:
                    taken.setdefault(victim, one.pledge_id)
        return taken
