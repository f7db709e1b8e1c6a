"""Who may be evicted for a quota at all."""

import pytest

from makeway.core.policy.document import Protection
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.quota_exemption import quota_exemption_of
from narrowing import there

PROTECTION = Protection(
    namespaces=("kube-system",), minimum_priority=1_000_000, never_evict_namespaces=("shop",)
)


@pytest.mark.parametrize(
    ("rule", "victim"),
    [
        ("daemonset-pod", PodFacts(namespace="shop", daemon=True)),
        ("mirror-pod", PodFacts(namespace="shop", mirror=True)),
        ("protected-namespace", PodFacts(namespace="kube-system")),
        ("protected-priority", PodFacts(namespace="shop", priority=1_000_000)),
        ("never-evict", PodFacts(namespace="shop", never_evict=True)),
    ],
)
def test_a_pod_protected_from_all_is_protected_from_quotas(rule: str, victim: PodFacts) -> None:
    exemption = there(quota_exemption_of(victim, PROTECTION))

    assert exemption.rule == rule
    assert exemption.detail


@pytest.mark.parametrize(
    "victim",
    [
        PodFacts(namespace="shop", priority=999_999, priority_class="tolerating", opted_out=True),
        PodFacts(namespace="elsewhere", never_evict=True),
    ],
)
def test_what_only_ranks_a_pod_or_is_not_honoured_there_keeps_no_pod(victim: PodFacts) -> None:
    assert quota_exemption_of(victim, PROTECTION) is None


def test_a_system_critical_pod_goes_for_no_quota_even_without_any_policy() -> None:
    exemption = there(quota_exemption_of(PodFacts(namespace="shop", priority=2_000_000_000), Protection()))

    assert exemption.rule == "system-critical"
