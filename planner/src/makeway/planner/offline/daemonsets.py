"""The pods that a DaemonSet's controller would make, one for each node that it selects. Pure.

Source: pkg/controller/daemon (NodeShouldRunDaemonPod) and its util (AddOrUpdateDaemonPodTolerations,
ReplaceDaemonSetPodNodeNameNodeAffinity) of kube-controller-manager 1.36.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from makeway.core.k8s.nodes import keeps_out, required_nodes
from makeway.core.k8s.objects import Pod
from makeway.planner.snapshot.records import NodeRecord

_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Taints that the controller lets its pods tolerate, by key and effect."""

_ON_THE_HOST: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")
"""The same for pods on the host's network."""


def pods_of_daemonset(
    meta: dict[str, Any], template: dict[str, Any], uid: str, nodes: Iterable[NodeRecord]
) -> Iterator[dict[str, Any]]:
    """Return a pod for each node, in the order of their names, as if none of them were there yet.

    `meta`: the DaemonSet's metadata, with a name; `uid`: its own or one that stands in. Raises
    msgspec.MsgspecError where the template is no pod's.
    """
    pod = copy.deepcopy(template)
    spec = pod["spec"] = dict(pod.get("spec") or {})
    taints = (*_TOLERATED, _ON_THE_HOST) if spec.get("hostNetwork") else _TOLERATED
    spec["tolerations"] = [
        *(spec.get("tolerations") or ()),
        *({"key": key, "operator": "Exists", "effect": effect} for key, effect in taints),
    ]
    view = msgspec.convert(pod, Pod)
    wanted, tolerations = required_nodes(view), view.spec.tolerations or ()
    for node in sorted(nodes, key=lambda one: one.name):
        named = spec.get("nodeName") in (None, "", node.name)
        if named and wanted.match(node.name, node.labels) and not keeps_out(node.taints, tolerations):
            yield _bound(pod, meta, uid, node.name)


def _bound(pod: dict[str, Any], meta: dict[str, Any], uid: str, node: str) -> dict[str, Any]:
    """Return the pod for one node: the required node affinity names it, and nothing else."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = pod["spec"].get("affinity") or {}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": meta["name"],
        "uid": uid,
        "controller": True,
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {
        **pod,
        "metadata": {
            **(pod.get("metadata") or {}),
            "name": f"{meta['name']}-{node}",
            "namespace": meta.get("namespace"),
            "ownerReferences": [owner],
        },
        "spec": {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}},
    }
