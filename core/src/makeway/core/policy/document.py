"""The policy document, `policy.yaml`: what makeway may do in this cluster beyond kube-scheduler's rule.

Pure values. `parse_policy` is the one way in, for the planner, the evictor and `makeway policy lint`;
what it accepts never fails at run time. Without a policy `Policy()` holds: priorities and budgets as
kube-scheduler has them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from makeway.core.config.document import Document, Problem, read
from makeway.core.policy.mode import Mode
from makeway.core.policy.preemption import Preemption, rule_problems, rule_warnings
from makeway.core.policy.section import PolicySection

KEY = "policy.yaml"
"""The key of the ConfigMap that holds it."""

EVERYWHERE = "*"
"""In a list of namespaces: every one."""

Namespace = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z",
        extra={"expected": "a namespace's name, such as team-a"},
    ),
]
NamespaceOrAll = Annotated[
    str,
    Meta(
        pattern=r"^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)\Z",
        extra={"expected": 'a namespace\'s name, such as team-a, or "*" for every one'},
    ),
]
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
UnplannedPods = Literal["hold", "fallback"]
LostWorkRank = Literal["off", "aboveSum"]
GroupPreemptors = Literal["upstream", "hold"]
Strategy = Literal["single,multiple", "multiple,single", "single", "multiple"]


class Protection(PolicySection, frozen=True):
    """Pods that are never victims, whatever the preemptor's priority.

    Mirror pods never are, and pods of priority 2000000000 and above only for a higher one; that needs no
    line here.

    Attributes:
        namespaces: Pods in these namespaces.
        minimum_priority: Pods of at least this priority. Absent: none.
        never_evict_namespaces: Where the annotation `makeway.dev/never-evict: "true"` of a pod is
            honoured; `"*"` means everywhere. Whoever may create pods there may keep them for ever.
    """

    namespaces: tuple[Namespace, ...] = ()
    minimum_priority: Priority | None = None
    never_evict_namespaces: tuple[NamespaceOrAll, ...] = ()


class DaemonSets(PolicySection, frozen=True, rename=None):
    """Room for pods that a DaemonSet has bound to one node.

    Attributes:
        enabled: Make room for them by their own rules. Off: by those for every other pod.
        preemption_start_delay: How long such a pod has not fitted on its node before anything is evicted.
        preemption_victim_pods_selection_strategy: How victims are chosen; the second where the first
            finds none.
        single_max_deviation_percent: How far the one victim of `single` may be larger than needed, in
            percent of the request.
        multiple_max_victims: How many pods `multiple` may evict.
        namespaces: Whose DaemonSets may displace pods of equal priority; `"*"` means everywhere. Whoever may
            create DaemonSets there may do so. Makeway's own namespace is always one of them.
        beyond_own_namespace: Those of `namespaces` whose DaemonSets may displace pods of equal priority in
            other namespaces too. Makeway's own namespace is always one of them.
    """

    enabled: bool = False
    preemption_start_delay: timedelta = timedelta(seconds=10)
    preemption_victim_pods_selection_strategy: Strategy = "single,multiple"
    single_max_deviation_percent: Annotated[int, Meta(ge=0, le=1_000_000)] = 10
    multiple_max_victims: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    namespaces: tuple[NamespaceOrAll, ...] = ("kube-system",)
    beyond_own_namespace: tuple[NamespaceOrAll, ...] = ("kube-system",)

    def may_preempt(self, namespace: str, own_namespace: str) -> bool:
        """Report whether a namespace's DaemonSets may preempt by these rules; `own_namespace`: makeway's."""
        return (
            self.enabled
            and bool(namespace)
            and (namespace == own_namespace or in_namespaces(namespace, self.namespaces))
        )

    def reaches_beyond(self, namespace: str, own_namespace: str) -> bool:
        """Report whether they may displace pods of equal priority in other namespaces too."""
        return self.may_preempt(namespace, own_namespace) and (
            namespace == own_namespace or in_namespaces(namespace, self.beyond_own_namespace)
        )


class PolicyLimits(PolicySection, frozen=True):
    """Bounds that hold for every preemption, and for quotas.

    Sizes are refused; what is over a rate waits until its order's time is over, and is refused then. A value
    of 1000000 (of 100 for the share) lifts a bound.

    Attributes:
        victims_per_order: A plan that needs more victims is refused, and so is an order.
        orders_in_flight: So many orders may be without an outcome at once. A tenth is kept for preemptors of
            a higher priority than those that hold the rest, and one namespace has at most a quarter while
            others wait. Absent or more: 1,000.
        orders_awaited: An order that counts on the victims of more other orders is refused.
        victims_per_minute: Evictors delete no more pods in any minute. Absent: no limit, but 500 for quotas
            and for orders that the API server does not bear out.
        victims_per_namespace_and_minute: Nor more pods of one namespace. Absent: no limit.
        victims_percent_per_ten_minutes: Nor a larger part of all pods on nodes in any ten minutes, but always
            100 and `victimsPerOrder`. Absent: no limit, but 5 for quotas and for orders that the API server
            does not bear out.
    """

    victims_per_order: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    orders_in_flight: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    orders_awaited: Annotated[int, Meta(ge=1, le=1_000_000)] = 32
    victims_per_minute: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    victims_per_namespace_and_minute: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    victims_percent_per_ten_minutes: Annotated[int, Meta(ge=1, le=100)] | None = None


class WhenUnplanned(PolicySection, frozen=True):
    """What happens to a pod that there is no plan for, in mode enforce, where anything restricts preemption.

    Where nothing does, kube-scheduler's own preemption acts, which knows no policy. `hold`: nothing is
    evicted, and the pod waits for a plan. `fallback`: that preemption acts all the same, unless budgets are
    hard or `protection` names pods.

    Attributes:
        default: For pods of every other priority.
        system: For pods of priority 2000000000 and above.
    """

    default: UnplannedPods = "hold"
    system: UnplannedPods = "fallback"


class QueueRules(PolicySection, frozen=True):
    """What holds for queues besides their tree.

    Pods of priority 2000000000 and above and of makeway's own namespace are never held by their queue; that
    needs no line here.

    Attributes:
        exempt_namespaces: Pods of these namespaces are counted in their queues and never held by them.
    """

    exempt_namespaces: tuple[Namespace, ...] = ("kube-system",)


GroupTerm = Literal[
    "budgets", "highestPriority", "groups", "lostWork", "highestVictims", "prioritySum", "victims"
]
"""A term of what a plan for a group costs."""

OBJECTIVE: Final[tuple[GroupTerm, ...]] = (
    "budgets",
    "highestPriority",
    "groups",
    "highestVictims",
    "prioritySum",
    "victims",
)
"""The order in which the terms count where a policy says nothing else: kube-scheduler's order of nodes, with
groups, and with fewer victims of the highest priority before fewer victims."""


class Groups(PolicySection, frozen=True):
    """Pods of a PodGroup, where the cluster has them; mode all: it is evicted whole or not at all.

    Attributes:
        surplus_first: Of equal priority, pods of a gang beyond its minCount count as pods by themselves, and
            those whose end would break it as more important. Off: all of them do, as in kube-scheduler 1.37.
        objective: What a plan for a group is to keep low, most important first; a term that is left out
            does not count. `budgets`: pods beyond what disruption budgets allow. `highestPriority`: of any
            victim. `groups`: groups that lose a unit, or fall below their minCount. `highestVictims`: victims
            that have the highest priority. `prioritySum`: over the victims. `victims`: their number.
            `lostWork`, which no default has: what the victims lose of their work, see `lostWork`.
        preemptors: What happens to pods of a gang that fit nowhere, in Kubernetes 1.36. `upstream`: they are
            left to kube-scheduler's own preemption, which may evict for a gang that can never run. `hold`:
            nothing is evicted for them.
    """

    surplus_first: bool = True
    objective: Annotated[tuple[GroupTerm, ...], Meta(min_length=1, max_length=7)] = OBJECTIVE
    preemptors: GroupPreemptors = "upstream"


class LostWork(PolicySection, frozen=True):
    """What evicted pods lose of their work: the time since they last saved it, weighed by how much they hold.

    A pod saves when its annotation `makeway.dev/checkpointed-at` says so, and at least as often as the
    annotation `makeway.dev/checkpoint-interval` of its PriorityClass grants.

    Attributes:
        rank: How nodes are ranked for a pod. `off`: by kube-scheduler's rules alone. `aboveSum`: of those
            with as few violated budgets and an equal highest priority, the one with the least lost work.
        longest: Of no pod a longer time counts, whatever it says; 0: without a bound.
        restart: What each start of a pod costs besides: so much longer time counts of every victim.
    """

    rank: LostWorkRank = "off"
    longest: timedelta = timedelta(hours=24)
    restart: timedelta = timedelta(minutes=1)


MOST_CROSS_NODE: Final = 32
"""So many victims may be on nodes that no member comes to, whatever the policy says."""


class CrossNode(PolicySection, frozen=True):
    """Victims on nodes that no member of the group comes to, which keep a whole domain closed by a rule.

    Attributes:
        most_victims: So many of them a plan for a PodGroup may have, and an order; a domain that more keep
            closed stays so. 0: none, and such a group waits where kube-scheduler 1.37 would make room.
    """

    most_victims: Annotated[int, Meta(ge=0, le=MOST_CROSS_NODE)] = MOST_CROSS_NODE


class Policy(PolicySection, frozen=True):
    """What holds beyond kube-scheduler's rule; without any values, nothing.

    Attributes:
        mode: How far makeway goes. `off`: it decides nothing. `observe`: it plans and records what it
            would do, and evicts nothing. `enforce`: it evicts.
        namespace_modes: In place of `mode` for single namespaces, by the namespace of the pod that needs
            room (of the victim, where a quota is enforced). Where `mode` is `off`, everything is off.
        disruption_budgets: PodDisruptionBudgets. `soft`: violated where there is no other way, as
            kube-scheduler does. `hard`: never violated in `hardBudgetNamespaces`, which it needs.
        hard_budget_namespaces: Where budgets are hard; `"*"` means everywhere. Whoever may create budgets
            there may keep pods from ever being evicted.
        protection: Pods that are never victims.
        daemon_sets: Room for pods of DaemonSets.
        limits: Bounds that hold for every preemption.
        await_terminating: A pod that is being deleted is no victim, and its room is waited for while at most
            so much of its grace period is left; with more left, only where nothing else makes room.
        when_unplanned: Pods that there is no plan for: the planner is away, late, or has not read the cluster
            yet, or they have none by their nature.
        queues: What holds for queues besides their tree.
        groups: Pods of a PodGroup.
        cross_node: Victims of a PodGroup on nodes that no member comes to.
        lost_work: What evicted pods lose of their work.
        preemption: Who may preempt whom.
    """

    mode: Mode = "enforce"
    namespace_modes: dict[Namespace, Mode] = msgspec.field(default_factory=dict)
    disruption_budgets: Literal["soft", "hard"] = "soft"
    hard_budget_namespaces: tuple[NamespaceOrAll, ...] = ()
    protection: Protection = Protection()
    daemon_sets: DaemonSets = DaemonSets()
    limits: PolicyLimits = PolicyLimits()
    await_terminating: timedelta = timedelta(seconds=60)
    when_unplanned: WhenUnplanned = WhenUnplanned()
    queues: QueueRules = QueueRules()
    groups: Groups = Groups()
    cross_node: CrossNode = CrossNode()
    lost_work: LostWork = LostWork()
    preemption: Preemption = Preemption()

    def mode_for(self, namespace: str) -> Mode:
        """Return the mode that holds for a namespace."""
        return self.modes().get(namespace, self.mode)

    def modes(self) -> Mapping[str, Mode]:
        """Return the modes that stand in place of `mode`, by namespace; none where that is off."""
        return {} if self.mode == "off" else self.namespace_modes

    @property
    def hard_budgets(self) -> tuple[str, ...]:
        """The namespaces whose disruption budgets are hard, `"*"` for all; empty where budgets are soft."""
        return self.hard_budget_namespaces if self.disruption_budgets == "hard" else ()

    def has_hard_budgets(self, namespace: str) -> bool:
        """Report whether the disruption budgets of a namespace are hard."""
        return in_namespaces(namespace, self.hard_budgets)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is accepted but not what it seems to be, a sentence each."""
        return (*_in_vain(self.limits), *rule_warnings(self.preemption))


def in_namespaces(namespace: str, names: Container[str]) -> bool:
    """Report whether a list of namespaces holds this one, by its name or by `"*"`."""
    return EVERYWHERE in names or namespace in names


class PolicyDocument(Policy, frozen=True, kw_only=True):
    """A policy. Only `apiVersion` and `kind` have to be there.

    Attributes:
        api_version: Version of this form.
        kind: What the document is.
    """

    api_version: Literal["makeway.dev/v1"]
    kind: Literal["Policy"]


def parse_policy(text: str, source: str) -> Policy:
    """Read a policy. `source` names the file or object in errors.

    Raises:
        ConfigError: it is refused, with all that is wrong, each with its remedy.
    """
    read_document = read(text, source, PolicyDocument)
    read_document.check(_contradictions(read_document))
    document = read_document.value
    # Not the document itself: written down again, as recordings are, it would be no policy.
    return Policy(**{name: getattr(document, name) for name in Policy.__struct_fields__})


def lint_warnings(text: str, source: str) -> tuple[str, ...]:
    """Return the warnings of a policy that is accepted, also about settings that do nothing."""
    document = read(text, source, PolicyDocument)
    return (*_without_effect(document.value, document.places), *document.value.warnings)


def _without_effect(policy: Policy, written: Container[str]) -> Iterator[str]:
    """Return which settings do nothing, as what they belong to is off. `written`: paths of settings."""
    settings = policy.daemon_sets
    names = [f"daemonSets.{one.encode_name}" for one in msgspec.structs.fields(DaemonSets)]
    single, multiple = "daemonSets.single_max_deviation_percent", "daemonSets.multiple_max_victims"
    strategy = f"the strategy is {settings.preemption_victim_pods_selection_strategy}"
    switches = (
        (not settings.enabled, "daemonSets.enabled is not true", names),
        (settings.enabled and strategy.endswith(" multiple"), strategy, [single]),
        (settings.enabled and strategy.endswith(" single"), strategy, [multiple]),
        (policy.disruption_budgets == "soft", "disruptionBudgets is soft", ["hardBudgetNamespaces"]),
        (policy.mode == "off", "mode is off", ["namespaceModes"]),
        (
            policy.lost_work.rank == "off" and "lostWork" not in policy.groups.objective,
            "lostWork.rank is off and groups.objective does not name lostWork",
            ["lostWork.longest", "lostWork.restart"],
        ),
    )
    for off, why, paths in switches:
        idle = [path for path in paths if off and path in written and path != "daemonSets.enabled"]
        if idle:
            yield f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect while {why}"


def _in_vain(limits: PolicyLimits) -> Iterator[str]:
    """What an order may have, and is never let go for."""
    for name, most in (
        ("victimsPerMinute", limits.victims_per_minute),
        ("victimsPerNamespaceAndMinute", limits.victims_per_namespace_and_minute),
    ):
        if most is not None and most < limits.victims_per_order:
            yield (
                f"limits.{name} ({most}) is below victimsPerOrder ({limits.victims_per_order}): an order "
                f"with more victims is never carried out; write victimsPerOrder: {most}"
            )


def _contradictions(document: Document[PolicyDocument]) -> Iterator[Problem]:
    """What is wrong although each value by itself is right."""
    policy = document.value
    yield from rule_problems(document, policy.preemption)
    if policy.disruption_budgets == "hard" and not policy.hard_budget_namespaces:
        yield document.problem(
            "disruptionBudgets",
            "does not say in which namespaces budgets are hard",
            'list them in hardBudgetNamespaces, ["*"] for all: whoever may create budgets in one of them may '
            "keep its pods from ever being evicted",
        )
    objective = policy.groups.objective
    if twice := sorted({term for term in objective if objective.count(term) > 1}):
        yield document.problem(
            "groups.objective", f"has {', '.join(twice)} more than once", "name each term once, in its place"
        )
    settings = policy.daemon_sets
    beyond = [one for one in settings.beyond_own_namespace if not in_namespaces(one, settings.namespaces)]
    if beyond and "daemonSets.beyond_own_namespace" in document.places:
        yield document.problem(
            "daemonSets.beyond_own_namespace",
            f"names {', '.join(beyond)}, which daemonSets.namespaces does not",
            "add it to daemonSets.namespaces, or take it out here",
        )
    if policy.hard_budget_namespaces and "disruptionBudgets" not in document.places:
        yield document.problem(
            "hardBudgetNamespaces",
            "has no effect without disruptionBudgets: hard",
            "write disruptionBudgets: hard, or take the list out",
        )
