"""Which pods a daemonset pod may displace at all.

Planner and evictor ask this in place of `lower-priority`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.document import Policy
from makeway.core.policy.rules import (
    PreemptionPair,
    PreemptorFacts,
    Rule,
    Verdict,
    rules_in_force,
    victim_rules,
)

DAEMONSET_SINGLE: Final = "daemonset-single"
DAEMONSET_MULTIPLE: Final = "daemonset-multiple"
"""The rules that victims of the simple preemptor are chosen by, each with its strategy's name."""

DAEMONSET_POD: Final = "daemonset-pod"
HIGHER_PRIORITY: Final = "higher-priority"
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


def rules_for(
    preemptor: PreemptorFacts, node: str, policy: Policy, classes: Mapping[str, PriorityClass]
) -> tuple[Rule, ...]:
    """Return the rules by which pods of a node may go for a preemptor, in the order in which they are asked.

    Those of the simple preemptor where the policy turns it on and the pod is bound to this very node,
    else those of ordinary preemption.
    """
    if policy.daemon_sets.enabled and preemptor.daemonset_node == node:
        return (displaceable, *victim_rules(policy, classes))
    return rules_in_force(policy, classes)
