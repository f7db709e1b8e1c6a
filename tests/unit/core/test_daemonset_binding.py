"""Which pods count as bound to one node by their DaemonSet."""

from typing import Any

import msgspec
import pytest

from makeway.core.daemonset.binding import bound_node
from makeway.core.k8s.objects import Pod

OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "ds", "controller": True}
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}


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


@pytest.mark.parametrize(
    "owner", [None, {**OWNER, "kind": "ReplicaSet"}, {**OWNER, "controller": False}], ids=str
)
def test_a_pod_that_no_daemonset_controls_is_not_bound_by_one(owner: dict[str, Any] | None) -> None:
    assert bound_node(pod(TERM, owner=owner)) == ""


@pytest.mark.parametrize(
    "terms",
    [
        (),
        ({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]},),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]},),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1", "node-2"]}]},),
        (TERM, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}),
        (TERM, {}),
    ],
    ids=["no term", "a label", "not in", "two nodes", "another node too", "an empty term too"],
)
def test_a_pod_that_may_run_elsewhere_is_not_bound(terms: tuple[dict[str, Any], ...]) -> None:
    assert bound_node(pod(*terms)) == ""


def test_a_daemonset_pod_without_any_affinity_is_not_bound() -> None:
    owners = {"name": "logs-x", "ownerReferences": [OWNER]}

    assert bound_node(msgspec.convert({"metadata": owners, "spec": {}}, Pod)) == ""
