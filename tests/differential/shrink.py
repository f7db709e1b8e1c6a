"""Make a disagreement small: drop objects and fields as long as the two still differ in the same way."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

Cluster = dict[str, Any]
Differs = Callable[[Cluster], bool]
"""Whether the two still differ; asks both anew. A cluster that kube-scheduler's code cannot read does not."""

_LISTS = ("nodes", "pods", "budgets", "claims", "volumes", "namespaces")
_POD_FIELDS = (
    ("spec", "affinity"),
    ("spec", "topologySpreadConstraints"),
    ("spec", "tolerations"),
    ("spec", "nodeSelector"),
    ("spec", "initContainers"),
    ("spec", "overhead"),
    ("spec", "resources"),
    ("spec", "volumes"),
    ("metadata", "labels"),
    ("metadata", "deletionTimestamp"),
    ("status", "conditions"),
    ("status", "containerStatuses"),
    ("status", "initContainerStatuses"),
    ("status", "nominatedNodeName"),
    ("status", "startTime"),
)
_NODE_FIELDS = (("metadata", "labels"), ("spec", "taints"), ("spec", "unschedulable"))


def shrink(cluster: Cluster, differs: Differs) -> Cluster:
    """Give a smaller cluster that differs in the same way; no single thing more can be left out of it.

    O(objects · log) questions at first, then one a field; seconds for a large cluster.
    """
    while True:
        smaller = cluster
        for name in _LISTS:
            smaller = _fewer(smaller, name, differs)
        for candidate in _simpler(smaller):
            changed = candidate(smaller)
            if changed is not None and differs(changed):
                smaller = changed
        if smaller == cluster:
            return cluster
        cluster = smaller


def _fewer(cluster: Cluster, name: str, differs: Differs) -> Cluster:
    """Leave out as many objects of one list as possible, in halves, quarters, and so on."""
    size = max(1, len(cluster.get(name) or ()) // 2)
    while True:
        start = 0
        while start < len(cluster.get(name) or ()):
            candidate = _without(cluster, name, start, size)
            if len(candidate[name]) < len(cluster[name]) and differs(candidate):
                cluster = candidate
            else:
                start += size
        if size == 1:
            return cluster
        size //= 2


def _without(cluster: Cluster, name: str, start: int, size: int) -> Cluster:
    """Leave out some objects, and with a node what is on it. The preemptor stays."""
    kept = {**cluster, name: cluster[name][:start] + cluster[name][start + size :]}
    if name == "nodes":
        gone = {node["metadata"]["name"] for node in cluster[name][start : start + size]}
        assumed = cluster.get("assumed") or {}
        kept["pods"] = [
            pod
            for pod in cluster["pods"]
            if pod["spec"].get("nodeName", assumed.get(pod["metadata"]["uid"])) not in gone
        ]
    elif name == "pods":
        uid = cluster["preemptor"]["metadata"]["uid"]
        if all(pod["metadata"]["uid"] != uid for pod in kept["pods"]):
            kept["pods"] = [*kept["pods"], cluster["preemptor"]]
    uids = {pod["metadata"]["uid"] for pod in kept["pods"]}
    kept["assumed"] = {uid: node for uid, node in (cluster.get("assumed") or {}).items() if uid in uids}
    return kept


def _simpler(cluster: Cluster) -> Iterator[Callable[[Cluster], Cluster | None]]:
    """Give the ways to leave one field out of one object."""
    for index in range(len(cluster["pods"])):
        for path in _POD_FIELDS:
            yield lambda given, index=index, path=path: _cut(given, "pods", index, path)  # type: ignore[misc]
        for resource in ("cpu", "memory", "ephemeral-storage"):
            yield lambda given, index=index, name=resource: _unasked(given, index, name)  # type: ignore[misc]
    for index in range(len(cluster["nodes"])):
        for path in _NODE_FIELDS:
            yield lambda given, index=index, path=path: _cut(given, "nodes", index, path)  # type: ignore[misc]


def _cut(cluster: Cluster, name: str, index: int, path: tuple[str, str]) -> Cluster | None:
    outer, inner = path
    if inner not in cluster[name][index].get(outer, {}):
        return None
    changed = copy.deepcopy(cluster)
    del changed[name][index][outer][inner]
    return _same_preemptor(changed)


def _unasked(cluster: Cluster, index: int, resource: str) -> Cluster | None:
    requests = cluster["pods"][index]["spec"]["containers"][0]["resources"].get("requests") or {}
    if resource not in requests:
        return None
    changed = copy.deepcopy(cluster)
    del changed["pods"][index]["spec"]["containers"][0]["resources"]["requests"][resource]
    return _same_preemptor(changed)


def _same_preemptor(cluster: Cluster) -> Cluster:
    """The preemptor stands among the pods, too; both are one object."""
    uid = cluster["preemptor"]["metadata"]["uid"]
    cluster["preemptor"] = next(pod for pod in cluster["pods"] if pod["metadata"]["uid"] == uid)
    return cluster
