"""A pod as the API server would store it: namespace, identity, priority and the defaults a plan looks at.

Sources: the admission plugins Priority and DefaultTolerationSeconds, core/v1's SetDefaults_Pod, and the pod
strategy's mutatePodAffinity; what limit ranges and runtime classes add is in `admission_objects`. Webhooks
are not known here: where there is a cluster, its API server is asked instead. Pure.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from makeway.core.k8s.objects import Pod, PriorityClass
from makeway.core.k8s.resources import CPU, MEMORY
from makeway.core.k8s.unmodelled import unmodelled
from makeway.planner.offline.admission_objects import AdmissionObjects, complete
from makeway.planner.offline.manifests import Manifest, ManifestError

DEFAULT_SCHEDULER: Final = "default-scheduler"
BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The PriorityClasses that every API server has, for dumps without them."""

_NAMES: Final = uuid.UUID("6f1c2f52-5a53-4b7e-9b0e-2d1f6f0c9a11")
_HUGEPAGES: Final = "hugepages-"
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod that was let in.

    `raw`: the v1.Pod in JSON, as a plan request carries it. `gates`: names of its scheduling gates.
    """

    raw: bytes
    pod: Pod
    gates: tuple[str, ...]
    warnings: tuple[str, ...]


def stand_in_uid(namespace: str, name: str) -> str:
    """Set a UID on an object that has none, the same for the same name."""
    return str(uuid.uuid5(_NAMES, f"{namespace}/{name}"))


def admit(
    manifest: Manifest,
    classes: Mapping[str, PriorityClass],
    objects: AdmissionObjects,
    *,
    namespace: str,
    source: str,
) -> Admitted:
    """Fill in what the API server would. `namespace`: where the manifest names none.

    Raises ManifestError where the API server would refuse the pod, as far as that is looked at.
    """
    pod = copy.deepcopy(manifest)
    meta, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        raise ManifestError(f"{source}: a pod's metadata and spec must be objects")
    meta["namespace"] = meta.get("namespace") or namespace
    where = f"{source}: pod {meta['namespace']}/{meta.get('name') or '?'}"
    if not meta.get("name"):
        raise ManifestError(f"{where}: it has no metadata.name")
    if not spec.get("containers"):
        raise ManifestError(f"{where}: it has no spec.containers")
    meta["uid"] = meta.get("uid") or stand_in_uid(meta["namespace"], meta["name"])
    spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
    warnings: list[str] = []
    try:
        _prioritise(spec, classes, where, warnings)
        _default_requests(spec)
        warnings += complete(spec, meta["namespace"], objects)
        _tolerate(spec)
        _merge_label_keys(spec, meta.get("labels") or {})
        raw = msgspec.json.encode(pod)
        view = msgspec.json.decode(raw, type=Pod)
        unmodelled(raw)  # which is told later; what it cannot read the API server would refuse
        gates = tuple(str(gate.get("name", "?")) for gate in spec.get("schedulingGates") or ())
    except (msgspec.MsgspecError, TypeError, AttributeError) as error:
        raise ManifestError(f"{where}: {error}") from error
    return Admitted(raw, view, gates, tuple(warnings))


def _prioritise(
    spec: dict[str, Any], classes: Mapping[str, PriorityClass], where: str, warnings: list[str]
) -> None:
    """Resolve the PriorityClass, or the cluster's default one, to a number."""
    name, told = spec.get("priorityClassName"), spec.get("priority")
    chosen = classes.get(name) if name else global_default(classes)
    if name and chosen is None:
        value = BUILT_IN.get(name, told)
        if value is None:
            known = ", ".join(sorted(classes)) or "none"
            raise ManifestError(f"{where}: there is no PriorityClass {name}; there are: {known}")
        if name not in BUILT_IN:
            warnings.append(f"there is no PriorityClass {name}; its spec.priority {told} is taken as it is")
    elif chosen is None:
        value = told or 0
    else:
        value = chosen.value
    if told is not None and told != value:
        if name:
            raise ManifestError(
                f"{where}: spec.priority is {told}, and PriorityClass {name} says {value}; leave one out"
            )
        value = told
    if told and not name:
        warnings.append(f"spec.priority {told} is taken as it is, though no priorityClassName says so")
    elif not name and chosen is not None:
        spec["priorityClassName"] = chosen.metadata.name
    spec["priority"] = value
    if chosen is not None and chosen.preemption_policy and not spec.get("preemptionPolicy"):
        spec["preemptionPolicy"] = chosen.preemption_policy


def global_default(classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """Return the class of those that name none: of several defaults the one of lowest value, as upstream."""
    defaults = [one for one in classes.values() if one.global_default]
    return min(defaults, key=lambda one: (one.value, one.metadata.name)) if defaults else None


def _default_requests(spec: dict[str, Any]) -> None:
    """A limit without a request asks for as much; on the host's network every port is a host port."""
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        if limits:
            container["resources"] = {**resources, "requests": {**limits, **requests}}
        for port in container.get("ports") or ():
            if spec.get("hostNetwork") and not port.get("hostPort"):
                port["hostPort"] = port.get("containerPort")
    _default_pod_requests(spec)


def _default_pod_requests(spec: dict[str, Any]) -> None:
    """Let a limit of the whole pod ask for as much, but for cpu and memory that a container asks for."""
    resources = spec.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    asked = {name for one in containers for name in (one.get("resources") or {}).get("requests") or ()}
    added = {
        name: limit
        for name, limit in limits.items()
        if name.startswith(_HUGEPAGES) or (name in (CPU, MEMORY) and name not in asked)
    }
    if added:
        spec["resources"] = {**resources, "requests": {**added, **requests}}


def _tolerate(spec: dict[str, Any]) -> None:
    """Every pod stays a while on a node that is not ready."""
    tolerations = list(spec.get("tolerations") or ())
    for key in _NOT_READY:
        if not any(
            one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute"})
    spec["tolerations"] = tolerations


def _merge_label_keys(spec: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Merge matchLabelKeys and mismatchLabelKeys of required pod (anti-)affinity into its selectors.

    A term without a selector matches no pod and is left as it is, and so is a key that the pod does not have.
    """
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            selector = term.get("labelSelector")
            if selector is None:
                continue
            expressions = [
                {"key": key, "operator": operator, "values": [labels[key]]}
                for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
                for key in term.get(keys) or ()
                if key in labels
            ]
            if expressions:
                selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *expressions]
