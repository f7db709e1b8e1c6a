"""What enforcing one lowered quota comes to: the need, the shares, the victims, and how well it does.

* success: usage will be at or below the maximum,
* best effort: it stays above by no more than `quota.preemption.miss` per cent of the need that the process
  began with, for every resource, and pods go,
* unsuccessful: no pod goes; what stood in the way is named.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from makeway.core.queues.amounts import NO_AMOUNTS, Amounts, most_of, over, text_of, texts_of
from makeway.core.queues.tree import Queue, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.queues.victims import Members, Selection, Steps, Surplus, Veto, selecting
from makeway.core.text import counted
from makeway.core.unit import Unit

Result: TypeAlias = Literal["notNeeded", "success", "bestEffort", "unsuccessful"]


@dataclass(frozen=True, slots=True)
class QuotaObstacle:
    """Something that kept pods from going: a constant in kebab-case and a sentence with the numbers."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The answer for one queue. Amounts only of resources that usage was above the maximum of.

    `target`: what the guarantees leave of the need. `shares`: the target by leaf. `short`: what of the
    need is not met. `victims`: in the order of being taken.
    """

    queue: str
    result: Result
    usage: Amounts
    maximum: Amounts
    need: Amounts
    target: Amounts
    shares: tuple[tuple[str, Amounts], ...]
    victims: tuple[Unit, ...]
    freed: Amounts
    short: Amounts
    blocked: tuple[QuotaObstacle, ...]

    def lacks(self, reason: str) -> bool:
        """Report whether something of the need is not met, and pods stay for this reason among others."""
        return bool(self.short) and any(one.reason == reason for one in self.blocked)

    @property
    def message(self) -> str:
        """A sentence for people: the numbers, and what stood in the way."""
        held = f"{self.queue} uses {_of(self.usage, self.maximum)} of at most {texts_of(self.maximum)}"
        if self.result == "notNeeded":
            return f"{held}: no pod has to be evicted"
        who = (
            "no pod can be evicted"
            if not self.victims
            else counted(sum(unit.size for unit in self.victims), "pod") + f" with {texts_of(self.freed)}"
        )
        text = f"{held}, {texts_of(self.need)} too much: {who}"
        if self.short:
            text += f"; {texts_of(self.short)} short"
        return "; ".join([text, *(block.message for block in self.blocked)])


def planning_quota(
    tree: QueueTree,
    usage: Usage,
    queue: Queue,
    members: Members,
    *,
    maximum: Amounts | None = None,
    began_need: Amounts = NO_AMOUNTS,
    running: Set[str] = frozenset(),
    veto: Veto | None = None,
    surplus: Surplus | None = None,
) -> Steps[QuotaPlan]:
    """Decide which pods go so that a queue comes down to its maximum, or to another one that is given.

    Called when the queue's timer has fired, and again where an order left some of its victims. `usage`
    and `members` are without the pods that are leaving already. `began_need`: what had to go when the process
    began, of which `miss` is a per cent, where that is more. O(pods below · (log + depth)).
    """
    most = queue.maximum if maximum is None else maximum
    held = dict(usage.of(queue.number))
    need = over(held, most)
    if not need:
        return QuotaPlan(queue.path, "notNeeded", held, most, {}, {}, (), (), {}, {}, ())
    shares, found = yield from selecting(
        tree, usage, queue, need, members, running=running, veto=veto, surplus=surplus
    )
    freed: Amounts = found.freed
    short = _short(need, freed)
    blocked = _obstacles(tree, usage, found)
    result: Result = "success"
    victims = found.victims
    if short:
        began = most_of(need, began_need)
        allowed = _within(short, began, queue.miss_percent)
        result = "bestEffort" if victims and allowed else "unsuccessful"
        if victims and not allowed:
            blocked = (_miss(short, began, queue), *blocked)
        if result == "unsuccessful":
            victims, freed, short = (), {}, need
    return QuotaPlan(
        queue=queue.path,
        result=result,
        usage=held,
        maximum=most,
        need=need,
        target=shares.target,
        shares=tuple((tree.queues[number].path, shares.leaves[number]) for number in sorted(shares.leaves)),
        victims=victims,
        freed=freed,
        short=short,
        blocked=blocked,
    )


def _short(need: Amounts, freed: Amounts) -> dict[str, int]:
    left = {name: amount - freed.get(name, 0) for name, amount in need.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _within(short: Amounts, need: Amounts, percent: int) -> bool:
    return all(amount * 100 <= need[name] * percent for name, amount in short.items())


def _miss(short: Amounts, need: Amounts, queue: Queue) -> QuotaObstacle:
    worst = max(short, key=lambda name: (short[name] * 100 / need[name], name))
    lacking = f"{text_of(worst, short[worst])} of {text_of(worst, need[worst])} {worst}"
    message = f"{lacking} would stay, more than the {queue.miss_percent} % that quota.preemption.miss allows"
    return QuotaObstacle("miss", message)


def _obstacles(tree: QueueTree, usage: Usage, found: Selection) -> tuple[QuotaObstacle, ...]:
    obstacles = []
    for guarantee, pods in sorted(found.guaranteed.items(), key=lambda one: (one[0].queue, one[0].resource)):
        queue, name = tree.at(guarantee.queue), guarantee.resource
        least = text_of(name, queue.guaranteed[name])
        held = text_of(name, usage.of(queue.number).get(name, 0))
        message = (
            f"{counted(pods, 'pod')} kept by the guarantee of {queue.path}: {name} {least}, it used {held}"
        )
        obstacles.append(QuotaObstacle("queue-guaranteed", message))
    for rule, pods in sorted(found.exempt.items()):
        obstacles.append(QuotaObstacle(rule, f"{counted(pods, 'pod')} kept by the rule {rule}"))
    for path, pods in sorted(found.busy.items()):
        obstacles.append(
            QuotaObstacle(
                "process-running", f"{counted(pods, 'pod')} left to the process that runs for {path}"
            )
        )
    return tuple(obstacles)


def _of(usage: Amounts, maximum: Amounts) -> str:
    return texts_of({name: usage.get(name, 0) for name in maximum})
