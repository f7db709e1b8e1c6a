"""Who goes for a pod that its DaemonSet has bound to a node: by pod and policy as they are now."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from makeway.bus.messages import Outcome
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.objects import (
    Affinity,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    Pod,
)
from makeway.core.k8s.selector import Requirement, Selector
from makeway.core.policy.document import DaemonSets, Policy, Protection
from unit.evictor.building import NODE, NOW, a_pod, changed, make_order, make_victim, preemptor_pod
from unit.evictor.test_service import World

ON = Policy(daemon_sets=DaemonSets(enabled=True, namespaces=("*",), beyond_own_namespace=("*",)))
CRITICAL = 2_000_000_000


def owned(pod: Pod) -> Pod:
    owner = OwnerReference(
        api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs-uid", controller=True
    )
    return changed(pod, "metadata", owner_references=(owner,))


def bound(priority: int = 1000, node: str = NODE) -> Pod:
    field = LabelSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    terms = (NodeSelectorTerm(match_fields=(field,)),)
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))
    return owned(changed(preemptor_pod().priority(priority).build(), "spec", affinity=affinity))


def logs(pod: Pod, **other: Any) -> DaemonSetOwner:
    """The DaemonSet that a pod claims."""
    proof = {"namespace": pod.metadata.namespace, "name": "logs", "uid": "logs-uid", "selector": Selector(())}
    return DaemonSetOwner(**{**proof, **other})


async def evicted_for(
    preemptor: Pod,
    victim: Pod,
    policy: Policy = ON,
    *,
    daemonsets: Iterable[DaemonSetOwner] | None = None,
    lately: int = 0,
) -> Outcome:
    """Carry out an order; unless told otherwise, what the pods say of DaemonSets is true.

    `lately`: so many pods were evicted just now.
    """
    world = World(victim)
    world.evictor.parts.caps.count({"default": lately}, NOW)
    world.cluster.pods["urgent"] = preemptor
    true = (logs(preemptor), logs(victim))
    world.cluster.daemonsets = {
        (one.namespace, "logs"): one for one in (true if daemonsets is None else daemonsets)
    }
    world.policy = policy
    outcome = await world.carry_out(make_order(make_victim("a", rule="daemonset-single")))
    assert (world.cluster.deletes() == ["a"]) == (outcome.result == "succeeded")
    return outcome


async def test_a_daemonset_that_is_proven_is_held_by_no_default_cap() -> None:
    victim = a_pod("a").priority(1000).build()

    assert (await evicted_for(bound(), victim, lately=1000)).result == "succeeded"


@pytest.mark.parametrize(
    ("preemptor", "policy", "rule"),
    [
        (bound(), Policy(), "daemonset-not-proven"),
        (owned(preemptor_pod().build()), ON, "daemonset-not-proven"),
        (bound(node="node-b"), ON, "daemonset-not-proven"),
        (bound(999), ON, "higher-priority"),
        (
            bound(),
            Policy(daemon_sets=ON.daemon_sets, protection=Protection(minimum_priority=1000)),
            "protected-priority",
        ),
    ],
    ids=["the policy is off", "not bound", "bound elsewhere", "of lower priority", "protected"],
)
async def test_a_pod_of_equal_priority_stays_unless_preemptor_and_policy_both_allow_it(
    preemptor: Pod, policy: Policy, rule: str
) -> None:
    outcome = await evicted_for(preemptor, a_pod("a").priority(1000).build(), policy)

    assert (outcome.result, outcome.victims[0].reason) == ("refused", rule)


async def test_a_pod_of_any_daemonset_stays_though_its_priority_is_lower() -> None:
    outcome = await evicted_for(bound(), owned(a_pod("a").priority(0).build()))

    assert (outcome.result, outcome.victims[0].reason) == ("refused", "daemonset-pod")


async def test_a_system_critical_pod_goes_only_for_one_of_higher_priority() -> None:
    equal = await evicted_for(bound(CRITICAL), a_pod("a").priority(CRITICAL).build())
    higher = await evicted_for(bound(CRITICAL + 1000), a_pod("a").priority(CRITICAL).build())

    assert (equal.result, equal.victims[0].reason) == ("refused", "system-critical")
    assert higher.result == "succeeded"


OTHER_LABELS = Selector((Requirement("app", "In", frozenset({"x"})),))


@pytest.mark.parametrize(
    "daemonsets",
    [
        [],
        [logs(bound(), uid="another")],
        [logs(bound(), selector=OTHER_LABELS)],
        [logs(bound(), namespace="elsewhere")],
    ],
    ids=["no DaemonSet", "another UID", "other labels", "another namespace"],
)
async def test_a_forged_owner_evicts_no_pod_of_equal_priority(daemonsets: list[DaemonSetOwner]) -> None:
    outcome = await evicted_for(bound(), a_pod("a").priority(1000).build(), daemonsets=daemonsets)

    assert (outcome.result, outcome.victims[0].reason) == ("refused", "daemonset-not-proven")


async def test_a_forged_owner_keeps_no_pod() -> None:
    victim = owned(a_pod("a").priority(0).build())
    forged = changed(
        victim,
        "metadata",
        owner_references=tuple(
            msgspec.structs.replace(owner, uid="forged") for owner in victim.metadata.owner_references or ()
        ),
    )

    assert (await evicted_for(bound(), forged)).result == "succeeded"


@pytest.mark.parametrize(
    ("settings", "result"),
    [
        (DaemonSets(enabled=True), "daemonset-not-proven"),
        (DaemonSets(enabled=True, namespaces=("*",), beyond_own_namespace=()), "daemonset-other-namespace"),
        (DaemonSets(enabled=True, namespaces=("*",), beyond_own_namespace=("*",)), "succeeded"),
    ],
    ids=["not listed", "its own namespace alone", "beyond its namespace"],
)
async def test_the_policy_says_whose_daemonsets_displace_equals(settings: DaemonSets, result: str) -> None:
    victim = changed(a_pod("a").priority(1000).build(), "metadata", namespace="tenant-b")

    outcome = await evicted_for(bound(), victim, Policy(daemon_sets=settings))

    assert result in (outcome.result, outcome.victims[0].reason)
