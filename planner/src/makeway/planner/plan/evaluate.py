"""Which pods would have to go on each node: remove all that may go, then reprieve what there is room for.

One pass over the slots with all nodes side by side. Source: defaultpreemption's SelectVictimsOnNode,
with the resource columns in place of the filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.budgets import violating_beyond
from makeway.planner.plan.constraints.layers import BatchLayers
from makeway.planner.plan.constraints.queues import QueueConstraints
from makeway.planner.plan.groups import BatchGroups
from makeway.planner.plan.lost_work import LostWorkOf
from makeway.planner.plan.ranking import RemoteVictims
from makeway.planner.plan.request import Question
from makeway.planner.plan.who_preempts import WhoPreempts
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import BUDGETS, MOST, Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.state import Snapshot

LAST, _MORE = 8, 4
"""The last pods of each node that are reprieved one by one at first, and how many times as many where these
do not free enough."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was found on the nodes of a batch; M nodes, R asked resources and then layers of constraints.

    * `lower`: bool[slots, M], pods of lower priority, or that are reclaimed; `removable`: those of them that
      may be evicted; `violating`, `victims`: bool[slots, M], only on nodes that `help`.
    * `under_budget`: bool[slots, M], pods that may not go because of a hard budget; `guaranteed`: because of
      the guarantee of a queue.
    * `fits`: bool[M], the columns need no pod gone. `waits`: bool[M], it is enough that the awaited go.
    * `helps`: bool[M], removing pods makes room, and the `victims` are those that must go.
    * `room`: int64[R, M], what is left with the preemptor there and the awaited gone.
    * `over_budget`, `over_limit`: bool[M], it would make room, but against a hard budget, or with more
      victims than an order may have.
    * `asked`: the layers of the asked resources; `short`: int64[R, M], what is missing even then.
    * `too_small`: bool[R, M], the node could not hold it when empty.
    * `breaks_affinity`: bool[M], pods that the preemptor needs near it would go too.
    * `grouped`: bool[slots, M], pods that stay because of their group. `groups`: those of the batch, None
      where there are none.
    * `constraints`: the names of the layers, which follow the asked resources; `uses`: int64[R, slots, M],
      what each pod takes. `lost_work`: what evicted pods lose, where the policy ranks by it.
    """

    lower: Flags
    removable: Flags
    violating: Flags
    victims: Flags
    under_budget: Flags
    guaranteed: Flags
    fits: Flags
    waits: Flags
    helps: Flags
    room: Ints
    over_budget: Flags
    over_limit: Flags
    asked: Ints
    short: Ints
    too_small: Flags
    breaks_affinity: Flags
    constraints: tuple[str, ...]
    uses: Ints
    grouped: Flags
    groups: BatchGroups | None = None
    lost_work: LostWorkOf | None = None

    def remote(self, places: Ints) -> RemoteVictims | None:
        """Return what goes elsewhere with pods of some nodes, by place."""
        groups = self.groups
        if groups is None:
            return None
        return RemoteVictims(
            groups.more[:, places],
            groups.charged[:, places],
            groups.start[:, places],
            groups.unit[:, places] == 0,
            None if self.lost_work is None else groups.losses(places),
        )


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What looking at nodes depends on besides them: the same for all batches of a plan.

    `debits`: what pods in flight take from budgets. `undecided`: bool[signatures], pods that stay since it is
    not known which hard budgets cover them. `devices`: asked resources that a node without any of them may
    serve by dynamic allocation: the room there is not limited. `lost_work`: what evicted pods lose, where the
    policy ranks by it.
    """

    snapshot: Snapshot
    question: Question
    now: datetime
    debits: Mapping[Key, int]
    queues: QueueConstraints
    rules: WhoPreempts
    undecided: Flags | None
    devices: frozenset[str]
    lost_work: LostWorkOf | None


def evaluate(
    batch: NodeBatch,
    inputs: PlanInputs,
    *,
    layers: BatchLayers,
    groups: BatchGroups | None,
    reclaimable: Flags | None,
) -> Evaluation:
    """Find the victims on every node of a batch. O(nodes · slots · asked resources and layers).

    `reclaimable`: bool[slots, M], pods that are removable though they are not lower.
    """
    snapshot, queues, debits, undecided = inputs.snapshot, inputs.queues, inputs.debits, inputs.undecided
    columns, budgets, policy = batch.columns, snapshot.budgets, snapshot.exemptions.policy
    vector = columns.amounts(inputs.question.needs)
    asked = np.flatnonzero(vector > 0)
    need = vector[asked][:, None]

    lower = lower_pods(columns, inputs.rules.priority, reclaimable)
    removable = removable_pods(columns, lower, inputs.rules)
    allowed = removable
    if groups is not None:
        removable = groups.whole(removable & ~groups.kept)
    covered = len(budgets) > 0
    under_budget = np.zeros_like(removable)
    hard = under_budget
    if policy.hard_budgets and covered:
        sets = columns.budgets
        hard = budgets.hard(sets)
        under_budget = removable & hard & budgets.exhausted(sets, debits)
    if undecided is not None:
        under_budget = under_budget | (removable & undecided[columns.signature])
    if under_budget.any():
        removable = removable & ~under_budget
    if groups is not None:
        removable = groups.whole(removable)
    guaranteed = queues.kept(batch, removable)
    if queues.margins:
        removable &= ~guaranteed
        if groups is not None:
            removable = groups.whole(removable)
            removable &= ~groups.above_guarantees(removable, queues, batch)
    grouped = np.zeros_like(removable)
    if groups is not None:
        removable = groups.whole(removable)
        grouped = allowed & ~removable & ~under_budget & ~guaranteed
    room = resource_room(batch, asked, need, inputs.devices)
    leaving = np.broadcast_to(batch.leaving[asked], room.shape)
    uses = columns.requests(asked)
    too_small = (need > columns.allocatable[asked]) & (room != MOST)
    if layers.names:
        room = np.concatenate([room, layers.room])
        leaving = np.concatenate([leaving, layers.leaving])
        uses = np.concatenate([uses, layers.uses])
        too_small = np.concatenate([too_small, np.zeros_like(layers.room, np.bool_)])
    if groups is not None:
        uses = groups.joined(uses, layers, queues, batch)
    emptied = room + np.einsum("rsn,sn->rn", uses, removable.astype(np.int64))
    breaks_affinity = np.zeros(batch.rows.size, np.bool_)
    if layers.required_affinity is not None:
        elsewhere = None
        if groups is not None:
            elsewhere = groups.affinity_elsewhere(removable, layers, queues, batch)
        breaks_affinity = ~layers.required_affinity.kept(removable, elsewhere)
    fits = _all(room - leaving >= 0)
    waits = _all(room >= 0) & ~fits
    if layers.required_affinity is not None and batch.awaited:
        waits &= layers.required_affinity.kept(np.zeros_like(removable))
    helps = _all(emptied >= 0) & ~breaks_affinity & ~fits & ~waits & removable.any(axis=0)

    violating = np.zeros_like(removable)
    victims = np.zeros_like(removable)
    chosen = np.flatnonzero(helps)
    if chosen.size:
        if covered:
            sets = np.where(removable.take(chosen, axis=1), columns.at(BUDGETS, chosen), 0)
            if groups is None:
                violating[:, chosen] = budgets.violating(sets, debits)
            else:
                violating[:, chosen] = groups.violating(sets, removable, chosen)
        needed = reprieve(uses, -room.take(chosen, axis=1), removable, violating, chosen)
        if chosen.size == helps.size:
            victims = needed
        else:
            victims[:, chosen] = needed
        if groups is not None:
            victims = groups.spread(victims & ~groups.follows)
    over_budget = np.zeros_like(helps)
    if hard.any() or (policy.hard_budgets and groups is not None and groups.covered.any()):
        sets = np.where(removable & hard, columns.budgets, 0)
        beyond = violating_beyond(sets, victims, budgets, debits)
        over_budget = np.asarray((victims & beyond).any(axis=0))
        under_budget |= beyond
        removable &= ~beyond
        violating &= ~hard
        if groups is not None:
            over_budget |= groups.against_hard(victims, sets)
            removable = groups.whole(removable)
    over_limit, most_victims = np.zeros_like(helps), policy.limits.victims_per_order
    if groups is not None or batch.depth > most_victims:
        count = victims.sum(axis=0)
        if groups is not None:
            count = count + np.where(victims, groups.more, 0).sum(axis=0)
        over_limit = (count > most_victims) & ~over_budget
    helps &= ~over_budget & ~over_limit
    return Evaluation(
        lower=lower,
        removable=removable,
        violating=violating,
        victims=victims,
        under_budget=under_budget,
        guaranteed=guaranteed,
        fits=fits,
        waits=waits,
        helps=helps,
        room=room,
        over_budget=over_budget,
        over_limit=over_limit,
        asked=asked,
        short=np.maximum(-emptied, 0),
        too_small=too_small,
        breaks_affinity=breaks_affinity,
        constraints=layers.names,
        uses=uses,
        grouped=grouped,
        groups=groups,
        lost_work=inputs.lost_work,
    )


def resource_room(batch: NodeBatch, asked: Ints, need: Ints, devices: frozenset[str]) -> Ints:
    """Return int64[R, M], what is left of asked resources with the preemptor there and the awaited gone.

    `asked`: the resources' layers; `need`: int64[R, 1]. MOST where a node may serve one of `devices`.
    """
    columns = batch.columns
    allocatable = columns.allocatable[asked]
    room: Ints = allocatable - columns.requested[asked] - batch.reserved[asked] - need
    if devices:
        served = np.isin(asked, [columns.resources[name] for name in devices])
        room = np.where(served[:, None] & (allocatable == 0), MOST, room)
    return room


def _all(flags: Flags) -> Flags:
    """Report for each node whether it holds for all resources, also where none is asked."""
    return np.asarray(np.logical_and.reduce(flags, axis=0))


def reprieve(requests: Ints, lack: Ints, removable: Flags, violating: Flags, nodes: Ints) -> Flags:
    """Reprieve removed pods where there is room: first those under a violated budget, then by importance.

    `requests`: int64[R, slots, M]; `removable`, `violating`: bool[slots, M], some of these. `nodes`:
    int64[K], places of nodes, one perhaps several times; `lack`: int64[R, K], what has to stay free of what
    the removable pods take. Returns bool[slots, K], the pods that found no place.
    """
    if not violating.any():
        return _reprieve_last(requests, lack, removable, nodes)[0]
    victims, short = _reprieve_last(requests, lack, removable & ~violating, nodes)
    if short.size:
        again = nodes[short]
        order = np.argsort(~violating[:, again], axis=0, kind="stable")
        ordered = np.take_along_axis(requests[:, :, again], order[None], axis=1)
        turn = np.take_along_axis(removable[:, again], order, axis=0)
        found, _ = _reprieve_last(ordered, lack[:, short], turn, np.arange(short.size))
        slots, places = np.nonzero(found)
        victims[:, short] = False
        victims[order[slots, places], short[places]] = True
    return victims


def _reprieve_last(requests: Ints, lack: Ints, turn: Flags, nodes: Ints) -> tuple[Flags, Ints]:
    """Reprieve pods in the order of their slots, of all that are in `turn`; as in `reprieve`.

    Returns as well where all of them do not free enough: int64, places in `nodes`. Where the last few pods
    of a node free enough, all before them find a place: on few nodes more are looked at one by one.
    """
    slots, columns = turn.shape
    width = min(LAST, slots)
    victims = np.zeros((slots, nodes.size), np.bool_)
    places, of_nodes = np.arange(nodes.size), nodes
    cells = requests.reshape(len(requests), slots * columns)
    # Behind the last pod of each node that is in turn.
    behind = (turn * np.arange(1, slots + 1, dtype=np.min_scalar_type(slots))[:, None]).max(axis=0, initial=0)
    while True:
        if width == slots or (places.size == nodes.size and (behind.take(nodes) == slots).all()):
            # The last slots of all nodes are what they have last, and so read in one piece.
            at = None
            there = turn[slots - width :].take(of_nodes, axis=1)
            uses = requests[:, slots - width :].take(of_nodes, axis=2)
        else:
            at = behind.take(of_nodes).astype(np.int64) - width + np.arange(width)[:, None]
            chosen = at * columns + of_nodes
            there = turn.ravel().take(chosen, mode="clip") & (at >= 0)
            uses = cells.take(chosen, axis=1, mode="clip")
        if not there.all():
            uses *= there
        left = uses.sum(axis=1) - lack[:, places]
        enough = _all(left >= 0)
        short = places[~enough]
        if short.size and width < slots:
            kept = np.flatnonzero(enough)
            places, left, uses = places[kept], left[:, kept], uses.take(kept, axis=2)
            there, at = there.take(kept, axis=1), None if at is None else at.take(kept, axis=1)
        for slot in range(width if places.size else 0):
            stays = _all(uses[:, slot] <= left)
            left -= uses[:, slot] * stays
            there[slot] &= ~stays
        if at is None:
            victims[slots - width :, places if places.size < nodes.size else slice(None)] = there
        else:
            victims.reshape(-1)[(at * nodes.size + places)[there]] = True
        if not short.size or width == slots:
            return victims, short
        places, of_nodes, width = short, nodes[short], min(_MORE * width, slots)


def lower_pods(columns: NodeSlots, preemptor_priority: int, reclaimable: Flags | None) -> Flags:
    """Return bool[slots, M]: the pods of lower priority, and those that are reclaimed."""
    lower = columns.priority < preemptor_priority
    return lower if reclaimable is None else lower | reclaimable


def removable_pods(columns: NodeSlots, lower: Flags, rules: WhoPreempts) -> Flags:
    """Return bool[slots, M]: the pods that every rule allows to go; False in empty slots.

    The same as `makeway.core.policy.rules.rules_in_force` asks of one pod: `lower-priority` is `lower`, as
    `lower_pods` returns it, every rule that looks at the victim alone its exemption, which the columns hold.
    """
    exempted = columns.exempted(rules.priority, rules.now_micros)
    return lower.copy() if exempted is None else lower & ~exempted
