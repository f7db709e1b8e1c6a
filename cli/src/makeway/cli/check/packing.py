"""What `makeway check` says of how scarce resources are filled: a hint where spreading keeps pods waiting.

kube-scheduler takes the emptiest node (NodeResourcesFit, LeastAllocated) where no profile says otherwise. So
what is free of a scarce resource is left in pieces, and a pod that asks for several waits, or preempts, where
as many are free. Where that is not certain nothing is said: no ConfigMap has the scheduler's configuration,
other plugins or extenders score too, something may not be read, or there is too much of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from makeway.cli.check import scheduler
from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import MoreError, listed, paged
from makeway.core.k8s.nodes import keeps_out, required_nodes
from makeway.core.k8s.objects import ConfigMap, Node, Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.requests import pod_requests
from makeway.core.k8s.resources import allocatable, is_extended
from makeway.core.text import counted, first_few
from makeway.runtime.kube import Api, ApiError, ApiUnavailable
from makeway.runtime.pages import UnreadableObject

NAME: Final = "scheduler packing"

MOST_WAITING: Final = 2000
MOST_NODES: Final = 2000
MOST_PODS: Final = 20_000
"""Objects that are read, in pages; where there are more nothing is said."""

_SHOWN: Final = 3
_FIT: Final = "NodeResourcesFit"
_SPREADS: Final = "LeastAllocated"
_KNOWN: Final = frozenset(
    {
        _FIT,
        "DefaultPreemption",
        "DynamicResources",
        "ImageLocality",
        "InterPodAffinity",
        "MakeWay",
        "MakeWayQueues",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "PodTopologySpread",
        "TaintToleration",
        "VolumeBinding",
    }
)
"""Plugins that pack nothing, whatever their weight. One that is not among them may."""

_NO_NODE: Final = re.compile(r"0/\d+ nodes are available: (.*?)\.(?: |$)", re.DOTALL)
_REASON: Final = re.compile(
    r"\d+ (?:Insufficient (?P<resource>\S+)"
    r"|node\(s\) (?:had untolerated taint.*|didn't match Pod's node affinity/selector|were unschedulable))"
)
"""Why nodes will not do, where that is known here too; see FitError in kube-scheduler's types.go."""

_WAITING: Final = "spec.nodeName=,status.phase=Pending"
_PLACED: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

T = TypeVar("T")
Waiting = tuple[Pod, str, int]
"""A pod that waits for several of an extended resource: of which, and for how many."""


async def packing_result(at: CheckedCluster) -> Sequence[CheckResult]:
    """Read what waits, and only where something does what is free. Nothing may fail for a hint."""
    try:
        maps = await listed(at.api, f"/api/v1/namespaces/{at.namespace}/configmaps", ConfigMap)
        found = [one for each in maps for _, one in scheduler.configurations(each.data or {})]
        profiles = spreading(found)
        if not profiles:
            return ()
        asked = await _read(at.api, "/api/v1/pods", Pod, MOST_WAITING, fieldSelector=_WAITING)
        waiting = [one for one in waiting_for_several(asked) if _profile_of(one[0]) in profiles]
        if not waiting:
            return ()
        nodes = await _read(at.api, "/api/v1/nodes", Node, MOST_NODES)
        placed = await _read(at.api, "/api/v1/pods", Pod, MOST_PODS, fieldSelector=_PLACED)
        return list(judge(waiting, nodes, placed))
    except (ApiError, ApiUnavailable, MoreError, QuantityError):
        return ()


def spreading(configurations: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the profiles that certainly score by LeastAllocated alone, by name. Pure."""
    found: Counter[str] = Counter()
    packing: set[str] = set()
    for one in configurations:
        for profile in one.get("profiles") or ():
            if isinstance(profile, dict):
                name = str(profile.get("schedulerName") or "default-scheduler")
                found[name] += 1
                if one.get("extenders") or not _spreads(profile):
                    packing.add(name)
    return {name for name, times in found.items() if times == 1} - packing


def _spreads(profile: Mapping[str, Any]) -> bool:
    for point in ("multiPoint", "preScore", "score"):
        if not _KNOWN.issuperset(scheduler.enabled(profile, point)):
            return False
        if {_FIT, "*"} & scheduler.disabled(profile, point):
            return False
    config = profile.get("pluginConfig") or ()
    args = [one.get("args") for one in config if isinstance(one, dict) and one.get("name") == _FIT]
    strategies = [one.get("scoringStrategy") or {} for one in args if isinstance(one, dict)]
    return len(strategies) == len(args) and all(
        isinstance(one, dict) and one.get("type", _SPREADS) == _SPREADS for one in strategies
    )


def waiting_for_several(pods: Iterable[Pod]) -> Iterator[Waiting]:
    """Return pods that wait for several of a resource, as kube-scheduler says, and for nothing else. Pure.

    One that asks for a single one finds a node wherever one is free. Raises QuantityError.
    """
    for pod in pods:
        told = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
        if told is None or told.reason != "Unschedulable":
            continue
        lacked = _lacked(told.message or "")
        for resource, amount in pod_requests(pod, placed=False).items():
            if amount > 1 and resource in lacked and is_extended(resource):
                yield pod, resource, amount


def _lacked(message: str) -> set[str]:
    """Return the resources that nodes lack; none where anything else that is not known here is in the way."""
    found = _NO_NODE.match(message)
    reasons = [_REASON.fullmatch(one) for one in found[1].split(", ")] if found else []
    if None in reasons:
        return set()
    return {one["resource"] for one in reasons if one is not None and one["resource"]}


def judge(waiting: Iterable[Waiting], nodes: Sequence[Node], placed: Iterable[Pod]) -> Iterator[CheckResult]:
    """Say which resources are free in pieces that are too small. Pure. O(waiting * nodes).

    Raises QuantityError.
    """
    free = {node.metadata.name: Counter(allocatable(node.status.allocatable)) for node in nodes}
    for pod in placed:
        if (there := free.get(pod.spec.node_name or "")) is not None:
            there.subtract(pod_requests(pod, placed=True))
    kept: dict[tuple[str, str], list[str]] = {}
    for pod, resource, amount in waiting:
        pieces = [free[node.metadata.name][resource] for node in nodes if _takes(node, pod)]
        if max(pieces, default=0) < amount <= sum(piece for piece in pieces if piece > 0):
            kept.setdefault((_profile_of(pod), resource), []).append(
                f"{pod.metadata.namespace}/{pod.metadata.name} ({amount})"
            )
    for (profile, resource), names in sorted(kept.items()):
        yield CheckResult(
            NAME,
            "warning",
            f"profile {profile} spreads pods by {_SPREADS}: {counted(len(names), 'pod')} waiting for "
            f"{resource}, of which as much is free, on several nodes: {first_few(names, _SHOWN)}",
            f"pack {resource}: MostAllocated or RequestedToCapacityRatio as scoringStrategy of {_FIT}",
        )


def _takes(node: Node, pod: Pod) -> bool:
    """Report whether a pod may run on a node, if there is room."""
    name, labels = node.metadata.name, node.metadata.labels or {}
    return (
        not node.spec.unschedulable
        and not keeps_out(node.spec.taints or (), pod.spec.tolerations or ())
        and required_nodes(pod).match(name, labels)
    )


def _profile_of(pod: Pod) -> str:
    return pod.spec.scheduler_name or "default-scheduler"


async def _read(api: Api, path: str, kind: type[T], most: int, **query: str) -> list[T]:
    """Read a list. Raises MoreError also where an object cannot be read; ApiError, ApiUnavailable."""
    found = list[T]()
    async for one in paged(api, path, kind, most, query=query):
        if isinstance(one, UnreadableObject):
            raise MoreError
        found.append(one)
    return found
