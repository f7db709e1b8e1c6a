"""Which pods a daemonset pod may displace at all.

Planner and evictor ask this in place of `lower-priority`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.document import Policy
from makeway.core.policy.rules import (
    RECLAIM,
    PreemptionPair,
    PreemptorFacts,
    Rule,
    Verdict,
    rules_in_force,
    victim_rules,
)
from makeway.core.policy.toleration_record import NO_RECORD, TolerationRecord

DAEMONSET_SINGLE: Final = "daemonset-single"
DAEMONSET_MULTIPLE: Final = "daemonset-multiple"
"""The rules that victims of the simple preemptor are chosen by, each with its strategy's name."""

DAEMONSET_NOT_PROVEN: Final = "daemonset-not-proven"
"""The rule that keeps a pod of equal priority: the order was written for a DaemonSet's pod that may displace
it, and by now no DaemonSet proves the preemptor, or the policy does not let it."""

KEEPS_EQUALS: Final = {
    DAEMONSET_SINGLE: DAEMONSET_NOT_PROVEN,
    DAEMONSET_MULTIPLE: DAEMONSET_NOT_PROVEN,
    RECLAIM: RECLAIM,
}
"""The rule that keeps a pod of equal priority, by the one that let it go when its order was written."""

DAEMONSET_POD: Final = "daemonset-pod"
HIGHER_PRIORITY: Final = "higher-priority"
OTHER_NAMESPACE: Final = "daemonset-other-namespace"
MAY_GO: Final = "daemonset"


def displaceable(pair: PreemptionPair) -> Verdict:
    """Allow pods of at most the preemptor's priority that belong to no DaemonSet.

    Equal priorities may go, as in YuniKorn: a DaemonSet's pod can run nowhere else.
    """
    if pair.victim.daemon:
        return Verdict(False, DAEMONSET_POD, "it belongs to a DaemonSet")
    victim, preemptor = pair.victim.priority, pair.preemptor.priority
    if victim > preemptor:
        return Verdict(False, HIGHER_PRIORITY, f"{victim} > {preemptor}")
    return Verdict(True, MAY_GO, f"{victim} <= {preemptor}")


def displaceable_at_home(pair: PreemptionPair) -> Verdict:
    """Allow what `displaceable` does; in other namespaces, only pods of lower priority."""
    verdict = displaceable(pair)
    victim, preemptor = pair.victim, pair.preemptor
    if not verdict.removable or victim.namespace == preemptor.namespace:
        return verdict
    if victim.priority >= preemptor.priority:
        return Verdict(
            False,
            OTHER_NAMESPACE,
            f"{victim.priority} >= {preemptor.priority}, and it is not in the DaemonSet's namespace",
        )
    return verdict


def rules_for(
    preemptor: PreemptorFacts,
    node: str,
    policy: Policy,
    classes: Mapping[str, PriorityClass],
    record: TolerationRecord = NO_RECORD,
    *,
    own_namespace: str = "",
) -> tuple[Rule, ...]:
    """Return the rules by which pods of a node may go for a preemptor, in the order in which they are asked.

    Those of the simple preemptor where the policy turns it on for the pod's namespace and the pod is bound to
    this very node, else those of ordinary preemption. `node`: empty for a victim that goes wherever it runs.
    `own_namespace`: makeway's, empty where not known.
    """
    settings = policy.daemon_sets
    bound_here = bool(node) and preemptor.daemonset_node == node
    if not bound_here or not settings.may_preempt(preemptor.namespace, own_namespace):
        return rules_in_force(policy, classes, record)
    beyond = settings.reaches_beyond(preemptor.namespace, own_namespace)
    return (displaceable if beyond else displaceable_at_home, *victim_rules(policy, classes, record))
