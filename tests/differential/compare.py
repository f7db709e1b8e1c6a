"""Hold the planner's answer for a cluster against kube-scheduler's, node by node and in the final choice.

Constraints that the planner has columns for must agree exactly. Of the others it may know too little, never
too much: each of kube-scheduler's candidates must be among its own or among the nodes that it leaves to the
plugin's verification, with every victim among the pods that may be removed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from differential.case import NOW, Case, Victims, asked, snapshot_of
from makeway.core.k8s.budget import budget_of
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.requests import pod_requests
from makeway.core.k8s.resources import allocatable, is_extended
from makeway.core.policy.document import Policy
from makeway.dev.binaries import KUBERNETES
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal

EXACT = frozenset(
    {
        "resources",
        "pod-counts",
        "extended",
        "shapes",
        "priorities",
        "budgets",
        "terminating",
        "nominated",
        "assumed",
        "taints",
        "unschedulable",
        "node-affinity",
        "node-names",
        "host-ports",
        "pod-affinity",
        "anti-affinity",
        "existing-anti",
        "topology-spread",
        "rwop",
        "volumes",
        *(("pod-groups", "group-priorities") if KUBERNETES.name == "1.37" else ()),
    }
)
"""Kinds of constraints in which both must agree exactly. A kind comes in with its column.

Taints, cordons, node affinity and the zones of volumes have none: they rule nodes out, whoever goes.
"""

RANKED_OTHERWISE = frozenset({"group-priorities"})
"""Kinds where the choice among nodes differs on purpose.

kube-scheduler ranks nodes by the victims' own priorities, makeway by those of their groups, by which both say
who may go.
"""

_GROUPS = "pod-groups"
_LOOSER_WITH_GROUPS = frozenset({"pod-affinity", "topology-spread"})
"""Kinds in which a group's pods on other nodes are looked at once, or as if they stayed."""

_CHARGE_ONE_BUDGET = frozenset({"1.37"})
"""Minors where a pod that violates a budget is not charged to the others that it is under.

Which ones those are depends on the order of a map. The planner charges all, as kube-scheduler did before.
"""

MAX_CANDIDATES = 16
"""The plugin's default."""

_PODS_AT_ONCE = 2000
_NODES_AT_ONCE = 100
"""A reply names so many pods and unmodelled nodes at most; to see every node, they are asked in parts."""

_NO_VICTIM = -(2**40)
"""In place of the highest priority where terminating pods alone make the room: better than any."""

Score = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing on which the two differ. `what` is a constant, `node` where, `detail` for a person."""

    what: str
    node: str
    detail: str

    def __str__(self) -> str:
        return f"{self.what} on {self.node or 'no node'}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of one case. `nodes`: how many nodes by how the two relate there."""

    exact: bool
    disagreements: tuple[Disagreement, ...]
    nodes: Counter[str]
    ours: Score | None
    sampled: Score | None


def compare(case: Case) -> Comparison:
    """Ask the planner and compare. O(the planner's answer for every potential node)."""
    exact = is_exact(case)
    answer = case.answer
    snapshot = snapshot_of(case)
    candidates: dict[str, PlanCandidate] = {}
    unmodelled: dict[str, PlanCandidate] = {}
    chosen = asked(case, snapshot, answer.potential, MAX_CANDIDATES)
    patient = _is_patient(chosen)
    for part in _parts(case, answer.potential):
        result = asked(case, snapshot, part, len(part))
        # A part without a candidate is asked for with patience, as if there were none on any node.
        if isinstance(result, Plan) and (patient or not _is_patient(result)):
            candidates.update((one.node, one) for one in result.candidates)
            unmodelled.update((one.node, one) for one in result.unmodelled)

    found: list[Disagreement] = []
    counted: Counter[str] = Counter()
    for node in answer.potential:
        theirs, ours, open_ = answer.candidates.get(node), candidates.get(node), unmodelled.get(node)
        relation = _relation(theirs, ours, open_)
        counted[relation] += 1
        if relation in _STRICTER or (exact and relation not in _SAME):
            found.append(Disagreement(relation, node, _told(theirs, ours or open_)))

    ranking = Ranking(case)
    best = chosen.candidates[0] if isinstance(chosen, Plan) and chosen.candidates else None
    ours_score = ranking.of(_victims(best)) if best else None
    theirs_score = ranking.of(answer.candidates[answer.chosen]) if answer.chosen else None
    if exact and ranked_alike(case) and ours_score != theirs_score:
        detail = f"theirs {answer.chosen} {theirs_score}, ours {best.node if best else ''} {ours_score}"
        found.append(Disagreement("choice", answer.chosen, detail))
    return Comparison(
        exact=exact,
        disagreements=tuple(found),
        nodes=counted,
        ours=ours_score if exact else theirs_score,
        sampled=ranking.of(answer.candidates[answer.sampled]) if answer.sampled else None,
    )


def ranked_alike(case: Case) -> bool:
    """Return whether both are to choose an equally good node."""
    return RANKED_OTHERWISE.isdisjoint(case.constraints)


def is_exact(case: Case) -> bool:
    """Return whether both must agree exactly."""
    return plans_alike(case) and not _asks_for_devices(case)


def plans_alike(case: Case) -> bool:
    """Return whether both look at the same constraints in the same way."""
    kinds = set(case.constraints)
    if not EXACT.issuperset(kinds):
        return False
    if _GROUPS in kinds and not _LOOSER_WITH_GROUPS.isdisjoint(kinds):
        return False
    return not (KUBERNETES.name in _CHARGE_ONE_BUDGET and _several_budgets(case))


def _several_budgets(case: Case) -> bool:
    """Return whether a pod is under several budgets."""
    budgets = [budget_of(budget) for budget in case.budgets]
    named = [(pod.metadata.namespace, pod.metadata.name, pod.metadata.labels or {}) for pod in case.pods]
    return any(sum(budget.covers(*pod) for budget in budgets) > 1 for pod in named)


def _asks_for_devices(case: Case) -> bool:
    """Say whether the pod asks for an extended resource that no node offers, which may stand for devices."""
    wanted = pod_requests(msgspec.json.decode(case.preemptor, type=Pod), placed=False)
    offered = {
        name
        for node in case.nodes
        for name, amount in allocatable(node.status.allocatable).items()
        if amount > 0
    }
    return any(is_extended(name) and name not in offered for name in wanted)


def _is_patient(result: Plan | PlanRefusal) -> bool:
    """Return whether a plan waits for terminating pods with more of their grace period left than others do.

    The planner makes such a plan only where there is none without them.
    """
    soon = microseconds(NOW + Policy().await_terminating)
    candidates = (*result.candidates, *result.unmodelled) if isinstance(result, Plan) else ()
    return any(one.pod.ends_micros > soon for candidate in candidates for one in candidate.awaited)


SAME, NEITHER = "same victims", "no candidate"
STRICTER, MISSING = "not a candidate here", "a victim is not removable"
LOOSER, UNMODELLED = "a candidate here alone", "left to verification"
OTHER_VICTIMS, OTHER_VIOLATIONS = "other victims", "other violations"
_SAME = frozenset({SAME, NEITHER})
_STRICTER = frozenset({STRICTER, MISSING})


def _relation(theirs: Victims | None, ours: PlanCandidate | None, unmodelled: PlanCandidate | None) -> str:
    known = ours or unmodelled
    if theirs is None:
        if ours:
            return LOOSER
        return UNMODELLED if unmodelled else NEITHER
    if known is None:
        return STRICTER
    if not set(theirs.uids) <= {pod.pod.uid for pod in known.removable}:
        return MISSING
    if unmodelled:
        return UNMODELLED
    if ours and set(theirs.uids) != set(_victims(ours).uids):
        return OTHER_VICTIMS
    if ours and theirs.violations != ours.pdb_violations:
        return OTHER_VIOLATIONS
    return SAME


def _victims(candidate: PlanCandidate) -> Victims:
    return Victims(tuple(one.pod.uid for one in candidate.victims), candidate.pdb_violations)


def _told(theirs: Victims | None, ours: PlanCandidate | None) -> str:
    def said(victims: Victims | None) -> str:
        return f"{sorted(victims.uids)} ({victims.violations} violations)" if victims else "none"

    return f"theirs {said(theirs)}, ours {said(_victims(ours) if ours else None)}"


def _parts(case: Case, potential: Sequence[str]) -> Iterator[list[str]]:
    """Cut the nodes into parts whose answer is complete."""
    size = Counter(pod.spec.node_name for pod in case.pods)
    size.update(case.assumed.values())
    # A node's pods may take those of their groups on other nodes with them.
    grouped = sum(pod.spec.scheduling_group is not None for pod in case.pods)
    part: list[str] = []
    pods = 0
    for node in potential:
        if part and (len(part) == _NODES_AT_ONCE or pods + size[node] + grouped > _PODS_AT_ONCE):
            yield part
            part, pods = [], 0
        part.append(node)
        pods += size[node] + grouped
    if part:
        yield part


class Ranking:
    """Scores of sets of victims, computed from the cluster alone: lower is better.

    In kube-scheduler's order: violations, highest priority, sum of priorities, victims, latest start of
    those of highest priority. Pods that have not started start now, which is later than all and the same
    for all.
    """

    def __init__(self, case: Case) -> None:
        self._pods = {
            pod.metadata.uid: (pod.spec.priority or 0, microseconds(pod.status.start_time))
            for pod in case.pods
        }

    def of(self, victims: Victims) -> Score:
        """Give the score of a node with these victims."""
        pods = [self._pods[uid] for uid in victims.uids]
        if not pods:
            return 0, _NO_VICTIM, 0, 0, 0
        highest = max(priority for priority, _ in pods)
        start = min(start for priority, start in pods if priority == highest)
        return (
            victims.violations,
            highest,
            sum(priority + 2**31 for priority, _ in pods),
            len(pods),
            NOT_STARTED - start,
        )
