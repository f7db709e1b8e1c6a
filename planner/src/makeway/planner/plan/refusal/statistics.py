"""Why removing pods helps no node, kept node by node, so that a refusal only adds up.

What is kept of a node is what a refusal says of it in numbers: what stands in the way, how many pods rules
keep, when tolerations end, how much is missing. It is worked out when a node is looked at for a refusal, and
forgotten when the node has to be evaluated again.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from makeway.core.k8s.resources import PODS
from makeway.core.policy.exemption import ANY_PREEMPTOR, FOREVER, RULES
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.candidates import EvaluatedBatch
from makeway.planner.plan.constraints.layers import NO_AFFINITY
from makeway.planner.plan.constraints.queues import QUEUE_GUARANTEED
from makeway.planner.plan.evaluate import Evaluation
from makeway.planner.plan.ranking import top
from makeway.planner.plan.refusal.domains import kept_by_domain
from makeway.planner.plan.refusal.exempt import HARD_BUDGET, exempt_mask
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.pod_groups import POD_GROUP
from makeway.planner.snapshot.state import Snapshot

NO_LOWER = "No pods of lower priority"
ALL_EXEMPT = "All pods of lower priority are exempt"
OVER_BUDGET = "A hard disruption budget forbids it"
OVER_LIMIT = "More victims than an order may have"

_EXEMPTING_RULES = (*RULES, HARD_BUDGET, QUEUE_GUARANTEED, POD_GROUP)


class RefusalStats:
    """The statistics for refusing one class of preemptors, by row.

    About 30 bytes a row, and one for each reason. Adding up costs O(rows · (reasons + rules)).
    """

    def __init__(self) -> None:
        self._reasons: dict[str, Flags] = {}
        self._exempt: NDArray[np.int32] = np.zeros((len(_EXEMPTING_RULES), 0), np.int32)
        self._relative: NDArray[np.float64] = np.zeros(0, np.float64)
        self._ends: Ints = np.zeros(0, np.int64)
        self._enough: Ints = np.zeros(0, np.int64)
        self._known: Flags = np.zeros(0, np.bool_)
        self._by_domain: Flags = np.zeros(0, np.bool_)
        self._budgets: dict[int, frozenset[int]] = {}

    # ---------------------------------------------------------------------------------- reading

    def unknown(self, snapshot: Snapshot, rows: Ints) -> Ints:
        """Return those of some rows whose nodes have to be looked at."""
        self._grow(snapshot)
        return rows[~self._known[rows]]

    def reasons(self, rows: Ints) -> Counter[str]:
        """Count nodes by what stands in the way; one node may count for several resources."""
        counts = {reason: int(np.count_nonzero(flags[rows])) for reason, flags in self._reasons.items()}
        return Counter({reason: number for reason, number in counts.items() if number})

    def standing(self) -> dict[str, Flags]:
        """Return bool[nodes] by what stands in the way, of the nodes that were looked at."""
        return {reason: flags.copy() for reason, flags in self._reasons.items()}

    def by_domain(self, rows: Ints) -> Flags:
        """Return bool[rows]: nodes that pods elsewhere in their topology domain keep, and nothing else."""
        return self._by_domain[rows]

    def but_by_domain(self, reason: str, rows: Ints) -> int:
        """Count the nodes where one thing stands in the way, but for those of `by_domain`."""
        flags = self._reasons.get(reason)
        return 0 if flags is None else int(np.count_nonzero(flags[rows] & ~self._by_domain[rows]))

    def exempt(self, rows: Ints) -> Counter[str]:
        """Count the pods of lower priority that rules exempt, by rule."""
        if not self._exempt.any():
            return Counter()
        counts = self._exempt[:, rows].sum(axis=1).tolist()
        return Counter(
            {rule: number for rule, number in zip(_EXEMPTING_RULES, counts, strict=True) if number}
        )

    def first_end(self, rows: Ints) -> int | None:
        """Return the first microsecond after which a toleration no longer keeps a pod."""
        return _first(self._ends[rows])

    def first_help(self, rows: Ints) -> int | None:
        """Return the microsecond after which tolerations have ended whose pods make enough room on a node."""
        return _first(self._enough[rows])

    def sample(self, snapshot: Snapshot, rows: Ints, others: Ints, turn: int) -> Ints:
        """Return one of the rows that the columns rule out though something may go there, or of others.

        None where there are none of either. By turns, in the order of the nodes' names. O(rows).
        """
        judged = np.ones(rows.size, np.bool_)
        for reason in (NO_LOWER, ALL_EXEMPT, OVER_BUDGET, OVER_LIMIT):
            if reason in self._reasons:
                judged &= ~self._reasons[reason][rows]
        chosen = np.concatenate([rows[judged], others])
        if not chosen.size:
            return chosen
        place = turn % chosen.size
        found: Ints = chosen[np.argpartition(snapshot.name_rank()[chosen], place)[place]][None]
        return found

    def nearest(self, snapshot: Snapshot, rows: Ints, most: int) -> Ints:
        """Return the rows of the nodes that lack least, relative to what is asked, in order, then by name.

        A node from which no pod may go is near, too, where that is because rules exempt its pods.
        """
        near = rows[np.isfinite(self._relative[rows])]
        chosen = top((self._relative, snapshot.name_rank()), near, most)
        return chosen[np.lexsort((snapshot.name_rank()[chosen], self._relative[chosen]))]

    def budgets(self, snapshot: Snapshot, rows: Ints) -> set[Key]:
        """Return the hard budgets that keep pods. O(rows that they keep pods on)."""
        wanted = self._exempt[_EXEMPTING_RULES.index(HARD_BUDGET), rows] > 0
        sets = frozenset[int]().union(*(self._budgets.get(row, ()) for row in rows[wanted].tolist()))
        return {key for number in sets for key in snapshot.budgets.members(number)}

    # --------------------------------------------------------------------------------- changing

    def forget(self, snapshot: Snapshot, rows: Ints) -> None:
        """Forget what was found on some rows."""
        self._grow(snapshot)
        self._known[rows] = False

    def put(self, evaluated: EvaluatedBatch) -> None:
        """Keep what was found on the nodes of a batch. O(slots · nodes)."""
        batch, found, rows = evaluated.batch, evaluated.found, evaluated.batch.rows
        self._grow(evaluated.inputs.snapshot)
        exempt = exempt_mask(found)
        for flags in self._reasons.values():
            flags[rows] = False
        kept = self._by_domain[rows] = kept_by_domain(evaluated)
        for reason, stands in _reasons(batch, found, exempt, kept).items():
            if stands.any():
                if reason not in self._reasons:
                    self._reasons[reason] = np.zeros(self._known.size, np.bool_)
                self._reasons[reason][rows] = stands
        self._put_exempt(batch, found, exempt)
        self._relative[rows] = np.where(kept, 0.0, _relative(evaluated, exempt))
        self._ends[rows] = self._enough[rows] = FOREVER
        if exempt.any():
            until = np.where(exempt, batch.columns.exempt_until, FOREVER)
            self._ends[rows] = until.min(axis=0, initial=FOREVER)
            self._enough[rows] = _enough(found, until)
        self._known[rows] = True

    def _put_exempt(self, batch: NodeBatch, found: Evaluation, exempt: Flags) -> None:
        rows = batch.rows
        self._exempt[:, rows] = 0
        if exempt.any():
            at = np.flatnonzero(exempt)
            numbers = np.maximum(batch.columns.exempt_below.ravel()[at] - ANY_PREEMPTOR, 0)
            counts = np.bincount(numbers * rows.size + at % rows.size, minlength=len(RULES) * rows.size)
            self._exempt[: len(RULES), rows] = counts.reshape(len(RULES), rows.size)
        if found.guaranteed.any():
            self._exempt[_EXEMPTING_RULES.index(QUEUE_GUARANTEED), rows] = found.guaranteed.sum(axis=0)
        if found.grouped.any():
            self._exempt[_EXEMPTING_RULES.index(POD_GROUP), rows] = found.grouped.sum(axis=0)
        if found.under_budget.any():
            self._exempt[_EXEMPTING_RULES.index(HARD_BUDGET), rows] = found.under_budget.sum(axis=0)
            sets = batch.columns.budgets
            for place in np.flatnonzero(found.under_budget.any(axis=0)).tolist():
                self._budgets[int(rows[place])] = frozenset(
                    sets[found.under_budget[:, place], place].tolist()
                )

    def _grow(self, snapshot: Snapshot) -> None:
        more = snapshot.columns.nodes - self._known.size
        if more <= 0:
            return
        for reason, flags in self._reasons.items():
            self._reasons[reason] = extended(flags, more)
        self._exempt, self._relative = extended(self._exempt, more), extended(self._relative, more)
        self._ends, self._enough = extended(self._ends, more), extended(self._enough, more)
        self._known, self._by_domain = extended(self._known, more), extended(self._by_domain, more)


def resource_names(batch: NodeBatch, found: Evaluation) -> list[str]:
    """Return the names of the asked resources, in the order of the evaluation's layers."""
    by_layer = {layer: name for name, layer in batch.columns.resources.items()}
    return [by_layer[layer] for layer in found.asked.tolist()]


def _reasons(batch: NodeBatch, found: Evaluation, exempt_pods: Flags, kept: Flags) -> dict[str, Flags]:
    """Return bool[M] by what may stand in the way. `kept`: bool[M], of nodes that a domain alone keeps."""
    empty = ~found.removable.any(axis=0)
    stay = exempt_pods | found.under_budget | found.guaranteed | found.grouped
    exempt = empty & stay.any(axis=0) & ~found.over_budget
    reasons = {
        NO_LOWER: empty & ~exempt & ~found.over_budget,
        ALL_EXEMPT: exempt,
        OVER_BUDGET: found.over_budget,
        OVER_LIMIT: found.over_limit,
        NO_AFFINITY: found.breaks_affinity & ~empty,
    }
    lacks = (found.short > 0) & ~empty
    for place, name in enumerate(found.constraints, found.asked.size):
        reasons[name] = reasons.get(name, False) | lacks[place] | ((found.short[place] > 0) & kept)
    for place, name in enumerate(resource_names(batch, found)):
        reasons[f"Node too small: {name}"] = found.too_small[place] & ~empty
        too_many = "Too many pods" if name == PODS else f"Insufficient {name}"
        reasons[too_many] = lacks[place] & ~found.too_small[place]
    return reasons


def _relative(evaluated: EvaluatedBatch, exempt: Flags) -> NDArray[np.float64]:
    """Return float64[M], the greatest shortfall relative to what is asked; infinite where no pod could go."""
    batch, found, needs = evaluated.batch, evaluated.found, evaluated.inputs.question.needs
    if not found.short.shape[0]:
        return np.full(batch.rows.size, np.inf)
    asked = [*(needs[name] for name in resource_names(batch, found)), *(1 for _ in found.constraints)]
    relative = (found.short / np.array(asked, np.float64)[:, None]).max(axis=0)
    movable = (found.removable | exempt | found.under_budget | found.grouped).any(
        axis=0
    ) & ~found.too_small.any(axis=0)
    return np.where(movable, relative, np.inf)


def _enough(found: Evaluation, until: Ints) -> Ints:
    """Return int64[M], when so many tolerations have ended that nothing is short any more.

    `until`: int64[slots, M], FOR_EVER for pods without one. On each node they end one after the other; the
    pods freed so far are added up. O(slots · nodes · asked resources), more for sorting.
    """
    enough_at = np.full(until.shape[1], FOREVER, np.int64)
    places = np.flatnonzero((until < FOREVER).any(axis=0) & ~found.breaks_affinity)
    if not places.size:
        return enough_at
    until = until[:, places]
    order = np.argsort(until, axis=0, kind="stable")
    until = np.take_along_axis(until, order, axis=0)
    enough = until < FOREVER
    for use, short in zip(found.uses[:, :, places], found.short[:, places], strict=True):
        freed = np.where(until < FOREVER, np.take_along_axis(use, order, axis=0), 0).cumsum(axis=0)
        enough &= freed >= short
    enough_at[places] = np.where(enough, until, FOREVER).min(axis=0)
    return enough_at


def _first(moments: Ints) -> int | None:
    first = int(moments.min(initial=FOREVER))
    return first if first < FOREVER else None
