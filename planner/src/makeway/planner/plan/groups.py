"""Pod groups in a plan: what can only go whole is one victim, wherever the rest of it runs.

On nodes that have pods of groups, the slots are put into the order of importance of kube-scheduler 1.37
(MoreImportantVictim: priority; composite group, group, pod; for units size, then start), in a copy. The pods
of a unit stand next to one another there; the first of them, its *lead*, stands for it: it takes what all of
them take on the node, and is reprieved or not for all. Rules look at every pod of a unit, on every node, and
one that may not go keeps all of them.

Of layers wider than a node a unit frees what its pods use in the node's domain, wherever they run. The least
that other domains of a topology spread hold is looked at as if pods on other nodes stayed, and required
affinity once, with all gone: looser than the filters, never stricter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.policy.exemption import DELETE_REFUSED, FOREVER, NOT_EXEMPT, Exemption
from makeway.core.policy.rules import Verdict
from makeway.core.text import counted
from makeway.core.unit import POD_RANK, Unit
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.layers import BatchLayers
from makeway.planner.plan.constraints.queues import GuaranteeMargin, QueueConstraints
from makeway.planner.plan.lost_work import Losses, LostWorkOf
from makeway.planner.plan.planned_unit import FreedByUnit, PlannedUnit, by_domain
from makeway.planner.plan.request import Question
from makeway.planner.plan.surplus import surplus_pods
from makeway.planner.plan.who_preempts import WhoPreempts
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.pod_groups import WholeGroup
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class BatchGroups:
    """Groups over the nodes of a batch whose slots are in their order; D slots, M nodes.

    `unit`: int64[D, M], the place of the pod's unit in `units`, 0 for none. `lead`: bool[D, M]. `follows`:
    bool[D, M], the pod before is of the same unit. `kept`: bool[D, M], may not go because of a group. `more`:
    int64[D, M], at a lead how many pods of the unit run elsewhere. `start`: int64[D, M], at a lead that of
    the pod that has been running longest. `until`: int64[M], until when units are kept at the least.
    `covered`: bool[M], a unit has pods under budgets. `charged`: int64[D, M], at a lead how many of its pods
    violate a budget, filled in by `violating`.
    """

    plan: PlanGroups
    units: Sequence[PlannedUnit | None]
    unit: Ints
    lead: Flags
    follows: Flags
    kept: Flags
    more: Ints
    start: Ints
    until: Ints
    covered: Flags
    charged: Ints

    def whole(self, removable: Flags) -> Flags:
        """Return the removable pods without those of units of which another one on the node is not."""
        stay = ~removable & (self.unit > 0)
        if not stay.any():
            return removable
        for slot in range(stay.shape[0] - 1, 0, -1):
            stay[slot - 1] |= stay[slot] & self.follows[slot]
        return removable & ~self.spread(stay)

    def spread(self, flags: Flags) -> Flags:
        """Return flags with those of leads given to all pods of their units."""
        flags = flags.copy()
        for slot in range(1, flags.shape[0]):
            np.copyto(flags[slot], flags[slot - 1], where=self.follows[slot])
        return flags

    def joined(self, uses: Ints, layers: BatchLayers, queues: QueueConstraints, batch: NodeBatch) -> Ints:
        """Return what slots use, all that units use at their leads. `uses`: int64[R, D, M].

        O(slots · nodes), and O(layers) for each unit on each node.
        """
        uses = uses.copy()
        for slot in range(uses.shape[1] - 1, 0, -1):
            follows = self.follows[slot]
            uses[:, slot - 1] += np.where(follows, uses[:, slot], 0)
            uses[:, slot][:, follows] = 0
        if layers.names:
            first = uses.shape[0] - len(layers.names)
            wide = [
                (number, layer.domains[batch.rows].tolist())
                for number, layer in enumerate(layers.layers)
                if layer.domains is not None
            ]
            known = first + len(layers.layers)
            for slot, node in np.argwhere(self.lead).tolist():
                unit = self.units[self.unit[slot, node]]
                if unit is None:
                    continue
                freed = self.plan.freed(unit, layers, queues)
                for number, domains in wide:
                    uses[first + number, slot, node] = freed.by_domain[number].get(domains[node], 0)
                uses[known:, slot, node] = freed.of_queues
        return uses

    def affinity_elsewhere(
        self, removable: Flags, layers: BatchLayers, queues: QueueConstraints, batch: NodeBatch
    ) -> tuple[Ints, Ints] | None:
        """Return what required affinity loses with the removable units on other nodes; see `kept` there.

        O(terms) for each unit on each node.
        """
        if layers.required_affinity is None:
            return None
        domains = layers.required_affinity.whole.domains[:, batch.rows]
        there, anywhere = np.zeros_like(domains), np.zeros(domains.shape[1], np.int64)
        for slot, node in np.argwhere(self.lead & removable).tolist():
            unit = self.units[self.unit[slot, node]]
            if unit is None:
                continue
            freed = self.plan.freed(unit, layers, queues)
            here = freed.on_rows.get(int(batch.rows[node]), 0)
            for term, used in enumerate(freed.affinity):
                domain = int(domains[term, node])
                there[term, node] += used.get(domain, 0) - here if domain >= 0 else 0
                anywhere[node] += sum(used.values()) - here
        return there, anywhere

    def above_guarantees(self, removable: Flags, queues: QueueConstraints, batch: NodeBatch) -> Flags:
        """Return the pods of units that would take a queue below its guarantee with what else may go."""
        keep = np.zeros_like(removable)
        columns = batch.columns
        numbers = queues.queue_numbers(columns)
        for margin in queues.margins:
            layer = columns.resources.get(margin.resource)
            taken = np.array(
                [0 if one is None else margin.taken(dict(one.price.amounts)) for one in self.units], np.int64
            )
            at_lead = np.where(removable & self.lead, taken[self.unit], 0)
            if layer is None or not at_lead.any():
                continue
            inside = (numbers >= margin.queue.number) & (numbers < margin.queue.below) & (self.unit == 0)
            alone = np.where(removable & inside, columns.request(layer), 0)
            over = at_lead.sum(axis=0) + alone.sum(axis=0) > margin.spare
            keep |= self.spread((at_lead > 0) & over[None, :])
        return keep

    def violating(self, sets: Ints, removable: Flags, places: Ints) -> Flags:
        """Return which pods violate a budget, as `BudgetTable.violating`; units are flagged at their leads.

        `sets`: int64[D, len(places)]. Puts down how many pods of units do. O(slots) a node with such units.
        """
        budgets, debits = self.plan.snapshot.budgets, self.plan.debits
        flags = budgets.violating(sets, debits)
        for column, place in enumerate(places.tolist()):
            if not self.covered[place]:
                continue
            flags[:, column] = False
            slots, charges = [], []
            for slot in np.flatnonzero(removable[:, place]).tolist():
                unit = self.units[int(self.unit[slot, place])]
                if unit is not None and not self.lead[slot, place]:
                    continue
                held = int(sets[slot, column])
                slots.append(slot)
                charges.append(unit.sets if unit is not None else ({held: 1} if held else {}))
            found = budgets.violations(charges, debits)
            flags[slots, column] = np.array(found) > 0
            self.charged[slots, place] = found
        return flags

    def against_hard(self, victims: Flags, sets: Ints) -> Flags:
        """Return bool[M]: victims, of units too, would together violate a hard budget."""
        budgets, over = self.plan.snapshot.budgets, np.zeros(victims.shape[1], np.bool_)
        for place in np.flatnonzero(self.covered & victims.any(axis=0)).tolist():
            charges: list[Mapping[int, int]] = []
            for slot in np.flatnonzero(victims[:, place]).tolist():
                unit = self.units[int(self.unit[slot, place])]
                held = int(sets[slot, place])
                if unit is None:
                    charges.append({held: 1} if held else {})
                elif self.lead[slot, place]:
                    charges.append(unit.sets)
            hard = [
                {number: count for number, count in one.items() if budgets.hard(np.array(number))}
                for one in charges
            ]
            over[place] = any(budgets.violations(hard, self.plan.debits))
        return over

    def losses(self, places: Ints) -> Losses:
        """Return int64[D, len(places)] each: at a lead what all of its unit lose, nothing at others."""
        none = 0, 0, FOREVER
        of_units = [none if one is None else one.losses for one in self.units]
        rate, base, until = np.array(of_units, np.int64).T
        lead, unit = self.lead[:, places], self.unit[:, places]
        return Losses(
            np.where(lead, rate[unit], 0), np.where(lead, base[unit], 0), np.where(lead, until[unit], FOREVER)
        )

    def exempting(self, slot: int, place: int) -> Verdict | None:
        """Return what keeps a pod's unit until some moment; None where it is in none, or nothing does."""
        unit = self.units[int(self.unit[slot, place])]
        return None if unit is None else unit.verdict()

    def why(self, slot: int, place: int, pod: PodRecord) -> str:
        """Return why a group keeps a pod."""
        unit = self.units[int(self.unit[slot, place])]
        if unit is not None:
            return (
                unit.kept or f"{unit.name} is evicted whole or not at all, and other rules keep a pod of it"
            )
        return self.plan.snapshot.units.of(pod).kept


@dataclass(slots=True)
class PlanGroups:
    """Groups for one question. What is worked out of a unit is kept for the question.

    `leaving_gangs`: how many pods each gang has less once those in flight have gone.
    """

    snapshot: Snapshot
    question: Question
    rules: WhoPreempts
    debits: Mapping[Key, int]
    margins: tuple[GuaranteeMargin, ...] = ()
    lost_work: LostWorkOf | None = None
    _planned: dict[int, PlannedUnit] = field(default_factory=dict)
    _freed: dict[int, FreedByUnit] = field(default_factory=dict)
    _leaving: Counter[int] = field(default_factory=Counter)
    _assumed: set[int] = field(default_factory=set)
    leaving_gangs: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Count which units and gangs have pods in flight. O(pods in flight)."""
        if not len(self.snapshot.groups):
            return
        for uid in self.question.in_flight:
            unit = self._unit(uid)
            if unit is not None and not self.snapshot.pods[uid].terminating:
                self._leaving[unit.number] += 1
        self.leaving_gangs = self.snapshot.groups.losing(
            self.snapshot.pods.get(uid) for uid in self.question.in_flight
        )
        for placement in self.question.assumed:
            unit = self._unit(placement.uid)
            pod = self.snapshot.pods.get(placement.uid)
            if unit is not None and pod is not None and not pod.node:
                self._assumed.add(unit.number)

    def _unit(self, uid: str) -> WholeGroup | None:
        pod = self.snapshot.pods.get(uid)
        return None if pod is None else self.snapshot.groups.unit_of_pod(pod)

    def ordered(self, batch: NodeBatch) -> tuple[NodeBatch, BatchGroups | None]:
        """Return a batch with its slots in the order of groups; as it is where none has a pod of a group.

        O(slots · nodes · log slots), and O(pods) for each unit that is met for the first time.
        """
        snapshot, depth = self.snapshot, batch.depth
        groups = snapshot.groups
        if not len(groups) or not depth:
            return batch, None
        columns, numbers = batch.columns, batch.columns.group
        if not numbers.any():
            return batch, None
        found, inverse = np.unique(groups.unit_of[numbers], return_inverse=True)
        units = [None, *(self.planned(number) for number in found[found > 0].tolist())]
        unit = (inverse + (found[0] > 0)).reshape(numbers.shape)
        alone = unit == 0
        by_uid = sorted((one.unit.first, one.unit.key) for one in units if one is not None)
        places = {key: place for place, (_, key) in enumerate(by_uid, 1)}
        size, start, rank, place, kept, until, covered = np.array(
            [
                (1, NOT_STARTED, POD_RANK, 0, False, FOREVER, False)
                if one is None
                else (
                    one.size,
                    one.unit.start,
                    one.unit.rank,
                    places[one.unit.key] if one.size > 1 else 0,
                    bool(one.kept),
                    one.until,
                    bool(one.sets),
                )
                for one in units
            ],
            np.int64,
        ).T
        by_itself = groups.rank[numbers]
        if snapshot.exemptions.policy.groups.surplus_first:
            by_itself = np.where(surplus_pods(numbers, self._surplus()), POD_RANK, by_itself)
        in_use = np.arange(depth)[:, None] < columns.count[None, :]
        order = np.lexsort(
            (
                place[unit],
                np.where(alone, columns.start, start[unit]),
                -size[unit],
                -np.where(alone, by_itself, rank[unit]),
                -columns.priority,
                ~in_use,
            ),
            axis=0,
        )
        columns = columns.reordered(order)
        unit, numbers = (np.take_along_axis(one, order, axis=0) for one in (unit, numbers))
        follows = np.zeros(unit.shape, np.bool_)
        follows[1:] = (unit[1:] == unit[:-1]) & (unit[1:] > 0)
        lead = (unit > 0) & ~follows
        here = (unit > 0).astype(np.int64)
        for slot in range(depth - 1, 0, -1):
            here[slot - 1] += np.where(follows[slot], here[slot], 0)
        exempt = np.array([one is not None and one.until < FOREVER for one in units])[unit]
        for slot, at in np.argwhere(exempt).tolist() if exempt.any() else ():
            if (planned := units[int(unit[slot, at])]) is not None:
                columns.set_exemption(at, slot, planned.exemption)
        batch = replace(batch, columns=columns, order=order)
        return batch, BatchGroups(
            plan=self,
            units=units,
            unit=unit,
            lead=lead,
            follows=follows,
            kept=groups.unknown[numbers] | (kept[unit] > 0),
            more=np.where(lead, size[unit] - here, 0),
            start=np.where(lead, start[unit], NOT_STARTED),
            until=until[unit].min(axis=0),
            covered=np.asarray((covered[unit] > 0).any(axis=0)),
            charged=np.zeros(unit.shape, np.int64),
        )

    def numbered(self, units: Iterable[PlannedUnit | None]) -> tuple[list[PlannedUnit | None], Ints]:
        """Return all units of the batches so far, and the places there of some: 0 for none. O(units)."""
        places = {number: place for place, number in enumerate(self._planned, 1)}
        there = [0 if one is None else places[one.unit.number] for one in units]
        return [None, *self._planned.values()], np.array(there, np.int64)

    def _surplus(self) -> Ints:
        """Return `PodGroups.surplus` as it is once the pods in flight have gone. O(groups) with any."""
        surplus = self.snapshot.groups.surplus
        if not self.leaving_gangs:
            return surplus
        left = surplus.copy()
        gangs = list(self.leaving_gangs)
        left[gangs] = np.maximum(left[gangs] - list(self.leaving_gangs.values()), 0)
        return left

    def planned(self, number: int) -> PlannedUnit:
        """Return a unit as this question sees it. O(its pods), once."""
        planned = self._planned.get(number)
        if planned is None:
            unit = self.snapshot.groups.unit(number)
            members = unit.members()
            price = self.snapshot.units.all_of(unit, members, self.snapshot.queues.tree)
            sets = Counter(price.budgets)
            kept, exemption = self._kept(unit, price, members, sets)
            planned = PlannedUnit(unit, price, members, kept, sets, exemption)
            if self.lost_work is not None:
                losses, lost = self.lost_work.together(map(self.snapshot.exemptions.work_of, members))
                planned = replace(planned, losses=losses, lost_work=lost)
            self._planned[number] = planned
        return planned

    def freed(self, unit: PlannedUnit, layers: BatchLayers, queues: QueueConstraints) -> FreedByUnit:
        """Return what a unit uses of the layers that are wider than a node. O(pods · layers) once a unit."""
        freed = self._freed.get(unit.unit.number)
        if freed is None:
            snapshot = self.snapshot
            placed = Counter(
                (snapshot.rows[pod.node], snapshot.signature(pod.uid))
                for pod in unit.members
                if pod.node in snapshot.rows
            )
            of_domains = tuple(by_domain(layer.domains, layer.use, placed) for layer in layers.layers)
            of_queues = [
                sum(
                    amounts.get(maximum.resource, 0)
                    for number, amounts in unit.price.amounts
                    if maximum.queue.number <= number < maximum.queue.below and queues.on_its_way is None
                )
                for maximum in queues.maxima
            ]
            affinity: tuple[Mapping[int, int], ...] = ()
            on_rows: Mapping[int, int] = {}
            if layers.required_affinity is not None:
                whole = layers.required_affinity.whole
                affinity = tuple(by_domain(domains, whole.use, placed) for domains in whole.domains)
                on_rows = by_domain(np.arange(whole.domains.shape[1]), whole.use, placed)
            freed = FreedByUnit(of_domains, np.array(of_queues, np.int64), affinity, on_rows)
            self._freed[unit.unit.number] = freed
        return freed

    def _kept(
        self, unit: WholeGroup, price: Unit, members: tuple[PodRecord, ...], sets: Mapping[int, int]
    ) -> tuple[str, Exemption]:
        """Return why a unit stays, empty where it may go; and what exempts a pod of it, the longest."""
        question, now_micros = self.question, self.rules.now_micros
        whole = f"{unit.key} is evicted whole or not at all"
        if price.kept:
            return price.kept, NOT_EXEMPT
        if 0 < self._leaving[unit.number] < len(members):
            return f"{whole}, and a part of it is leaving", NOT_EXEMPT
        if unit.number in self._assumed:
            return f"{whole}, and a pod of it is being bound", NOT_EXEMPT
        lower = price.priority < question.preemptor.priority
        if not lower and not all(self.rules.reaches(pod) for pod in members):
            pod = max(members, key=lambda one: one.priority)
            return f"{whole}, and pod {pod.namespace}/{pod.name} has priority {pod.priority}", NOT_EXEMPT
        longest, why = NOT_EXEMPT, ""
        for pod in members:
            if pod.uid in question.refused:
                return f"{whole}, and pod {pod.namespace}/{pod.name} is kept by {DELETE_REFUSED}", NOT_EXEMPT
            exemption = self.rules.exemption_of(pod)
            if exemption.applies(question.preemptor.priority, now_micros) and (
                longest == NOT_EXEMPT or exemption.until > longest.until
            ):
                longest = exemption
                why = f"{whole}, and pod {pod.namespace}/{pod.name} is kept by {exemption.rule}"
        if why:
            return why, longest
        budgets = self.snapshot.budgets
        hard = {number: count for number, count in sets.items() if budgets.hard(np.array(number))}
        if hard and (
            any(budgets.violations([hard], self.debits))
            or budgets.exhausted(np.array([*hard]), self.debits).any()
        ):
            return (
                f"{whole}, and a hard disruption budget does not allow {counted(len(members), 'pod')}",
                NOT_EXEMPT,
            )
        held = dict(price.amounts)
        for margin in self.margins:
            if margin.taken(held) > margin.spare:
                return f"{whole}, and queue {margin.queue.path} would be below its guarantee", NOT_EXEMPT
        return "", NOT_EXEMPT
