"""Which pods count as bound to one node by their DaemonSet."""

from typing import Any

import msgspec
import pytest

from makeway.core.daemonset.binding import bound_node
from makeway.core.k8s.objects import Pod

OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "ds", "controller": True}
TERM: dict[str, Any] = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}


def pod(*terms: dict[str, Any], owner: dict[str, Any] | None = OWNER) -> Pod:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return msgspec.convert(
        {
            "metadata": {"name": "logs-x", "ownerReferences": [owner] if owner else None},
            "spec": {"affinity": {"nodeAffinity": affinity}},
        },
        Pod,
    )


def test_a_pod_as_the_daemonset_controller_writes_it_is_bound_to_its_node() -> None:
    assert bound_node(pod(TERM)) == "node-1"


def test_further_conditions_do_not_widen_a_term() -> None:
    other = {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}
    narrower = {"matchFields": [*TERM["matchFields"], other], "matchExpressions": [{"key": "zone"}]}

    assert bound_node(pod(narrower, TERM)) == "node-1"


def by_name(operator: str, *nodes: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": nodes}]}


HOSTNAME = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}
UNBOUND = {
    "no owner": pod(TERM, owner=None),
    "another owner": pod(TERM, owner={**OWNER, "kind": "ReplicaSet"}),
    "an owner that does not control it": pod(TERM, owner={**OWNER, "controller": False}),
    "no term": pod(),
    "a label": pod(HOSTNAME),
    "not in": pod(by_name("NotIn", "node-1")),
    "two nodes": pod(by_name("In", "node-1", "node-2")),
    "another node too": pod(TERM, by_name("In", "node-2")),
    "an empty term too": pod(TERM, {}),
    "no affinity": msgspec.convert(
        {"metadata": {"name": "logs-x", "ownerReferences": [OWNER]}, "spec": {}}, Pod
    ),
}


@pytest.mark.parametrize("found", UNBOUND.values(), ids=UNBOUND)
def test_a_pod_of_no_daemonset_or_that_may_run_elsewhere_is_not_bound(found: Pod) -> None:
    assert bound_node(found) == ""
