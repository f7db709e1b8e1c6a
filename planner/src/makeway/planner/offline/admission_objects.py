"""RuntimeClasses, LimitRanges and ResourceQuotas: what they add to a new pod, and what they refuse.

Sources: the admission plugins RuntimeClass, LimitRanger and ResourceQuota of kube-apiserver 1.37, and
SetDefaults_LimitRangeItem of core/v1. Of a LimitRange the defaults are taken, not the bounds; of a
ResourceQuota what is counted of pods, by the status that its controller has written. Pure but for the usage,
which grows with each pod that is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from makeway.core.k8s.objects import Metadata, Pod, Quantity, ResourceRequirements, View
from makeway.core.k8s.quantity import parse
from makeway.core.k8s.requests import pod_requests
from makeway.core.k8s.resources import CPU, MEMORY, PODS, column_value
from makeway.core.queues.amounts import text_of
from makeway.planner.snapshot.records import PodRecord

_COMPUTE: Final = (CPU, MEMORY, "ephemeral-storage")
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COUNTED: Final = (PODS, "count/pods")


class Overhead(View, frozen=True):
    """overhead of a RuntimeClass."""

    pod_fixed: dict[str, Quantity] | None = None


class Scheduling(View, frozen=True):
    """scheduling of a RuntimeClass."""

    node_selector: dict[str, str] | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None


class RuntimeClass(View, frozen=True):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: Metadata
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class LimitRangeItem(View, frozen=True):
    """spec.limits[] of a LimitRange."""

    type: str = ""
    default: dict[str, Quantity] | None = None
    default_request: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None
    min: dict[str, Quantity] | None = None
    max_limit_request_ratio: dict[str, Quantity] | None = None


class LimitRangeSpec(View, frozen=True):
    """spec of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(View, frozen=True):
    """v1.LimitRange."""

    metadata: Metadata
    spec: LimitRangeSpec = LimitRangeSpec()


class ScopedSelector(View, frozen=True):
    """spec.scopeSelector.matchExpressions[] of a ResourceQuota."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(View, frozen=True):
    """spec.scopeSelector of a ResourceQuota."""

    match_expressions: tuple[ScopedSelector, ...] | None = None


class ResourceQuotaSpec(View, frozen=True):
    """spec of a ResourceQuota."""

    hard: dict[str, Quantity] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(View, frozen=True):
    """status of a ResourceQuota."""

    used: dict[str, Quantity] | None = None


class ResourceQuota(View, frozen=True):
    """v1.ResourceQuota."""

    metadata: Metadata
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


AdmissionObject = RuntimeClass | LimitRange | ResourceQuota


class NotAdmitted(ValueError):  # noqa: N818 - it is the API server's answer
    """The API server would refuse the pod; the message is as the server words it."""


class AdmissionObjects:
    """Those of a cluster, by name. Of each quota what is used grows with the pods admitted."""

    def __init__(self) -> None:
        self.runtime_classes: dict[str, RuntimeClass] = {}
        self._limit_ranges: dict[tuple[str, str], LimitRange] = {}
        self._quotas: dict[tuple[str, str], ResourceQuota] = {}
        self._hard: dict[tuple[str, str], dict[str, int]] = {}
        self._used: dict[tuple[str, str], dict[str, int]] = {}

    def put(self, item: AdmissionObject) -> None:
        """Take one. Raises QuantityError."""
        key = item.metadata.namespace, item.metadata.name
        match item:
            case RuntimeClass():
                self.runtime_classes[item.metadata.name] = item
            case LimitRange():
                self._limit_ranges[key] = item
            case ResourceQuota():
                used, hard = item.status.used or {}, item.spec.hard or {}
                self._used[key] = {name: _amount(name, amount) for name, amount in used.items()}
                self._hard[key] = {
                    name: _amount(name, amount) for name, amount in hard.items() if _is_of_pods(name)
                }
                self._quotas[key] = item

    def complete(self, spec: dict[str, Any], namespace: str) -> Iterator[str]:
        """Add to a pod's spec what classes and limit ranges add; yield what is not judged of them."""
        name = spec.get("runtimeClassName")
        known = self.runtime_classes.get(name) if name else None
        if known is not None:
            _run_by(spec, known)
        elif name:
            yield f"not judged: overhead and nodes of RuntimeClass {name}, which is not known"
        for key in sorted(key for key in self._limit_ranges if key[0] == namespace):
            for item in self._limit_ranges[key].spec.limits or ():
                if item.type == "Container":
                    _default(spec, item)
                if item.max or item.min or item.max_limit_request_ratio:
                    yield f"not judged: min and max of LimitRange {key[0]}/{key[1]}"

    def charge(self, pod: Pod, raw: Mapping[str, Any]) -> Iterator[str]:
        """Count a pod in the quotas of its namespace; yield what is not judged of them.

        Raises NotAdmitted, and counts it in none, where it is beyond one; QuantityError.
        """
        meta = pod.metadata
        usage = _usage(pod)
        charged: list[tuple[dict[str, int], str, int]] = []
        for key in sorted(key for key in self._quotas if key[0] == meta.namespace):
            quota = self._quotas[key]
            hard = self._hard[key]
            covers = _covers(quota, pod, raw)
            if not hard or covers is False:
                continue
            if covers is None or quota.status.used is None:
                why = "its scopes" if covers is None else "which has no status"
                yield f"not judged: ResourceQuota {key[0]}/{key[1]}, {why}"
                continue
            self._check(quota, hard, usage, pod)
            charged += [(self._used[key], name, usage.get(name, 0)) for name in hard]
        for used, name, amount in charged:
            used[name] = used.get(name, 0) + amount

    def release(self, pod: PodRecord) -> None:
        """Take off the quotas what a pod that leaves has asked for; quotas with scopes keep it."""
        for key, quota in self._quotas.items():
            if key[0] != pod.namespace or quota.spec.scopes or quota.spec.scope_selector:
                continue
            used = self._used[key]
            for name, amount in _named(pod.requests).items():
                if name in used:
                    used[name] = max(0, used[name] - amount)

    def _check(
        self, quota: ResourceQuota, hard: Mapping[str, int], usage: Mapping[str, int], pod: Pod
    ) -> None:
        meta, used = quota.metadata, self._used[quota.metadata.namespace, quota.metadata.name]
        if missing := _not_said(hard, pod):
            raise NotAdmitted(
                f'pods "{pod.metadata.name}" is forbidden: failed quota: {meta.name}: must specify {missing}'
            )
        beyond = [
            name
            for name, most in sorted(hard.items())
            if usage.get(name, 0) > 0 and used.get(name, 0) + usage[name] > most
        ]
        if beyond:
            requested, taken, limited = (
                ",".join(f"{name}={text_of(_resource(name), amounts.get(name, 0))}" for name in beyond)
                for amounts in (usage, used, hard)
            )
            raise NotAdmitted(
                f'pods "{pod.metadata.name}" is forbidden: exceeded quota: {meta.name}, '
                f"requested: {requested}, used: {taken}, limited: {limited}"
            )


def _run_by(spec: dict[str, Any], known: RuntimeClass) -> None:
    """Add overhead, node selector and tolerations of a RuntimeClass."""
    if known.overhead is not None and known.overhead.pod_fixed and not spec.get("overhead"):
        spec["overhead"] = dict(known.overhead.pod_fixed)
    scheduling = known.scheduling or Scheduling()
    if scheduling.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling.node_selector}
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in scheduling.tolerations or () if one not in tolerations]
    if tolerations:
        spec["tolerations"] = tolerations


def _default(spec: dict[str, Any], item: LimitRangeItem) -> None:
    """Give containers the limits and requests that a LimitRange has for those that name none."""
    limits = {**(item.max or {}), **(item.default or {})}
    requests = {**(item.min or {}), **limits, **(item.default_request or {})}
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        own = container.get("resources") or {}
        container["resources"] = {
            **own,
            "limits": {**limits, **(own.get("limits") or {})},
            "requests": {**requests, **(own.get("requests") or {})},
        }


def _is_of_pods(name: str) -> bool:
    """Report whether a quota's resource is counted of pods: not of claims, Services and the like."""
    if name in _COUNTED or name in _COMPUTE:
        return True
    return _resource(name) not in (name, "storage")


def _usage(pod: Pod) -> dict[str, int]:
    """Return what a pod counts by the names that quotas have, in columns."""
    limits = pod_requests(_limits_as_requests(pod), placed=False)
    return {
        **_named(pod_requests(pod, placed=False)),
        **{f"{_LIMITS}{name}": amount for name, amount in limits.items() if name != PODS},
    }


def _named(requests: Mapping[str, int]) -> dict[str, int]:
    named = {f"{_REQUESTS}{name}": amount for name, amount in requests.items() if name != PODS}
    return {**{name: requests[name] for name in _COMPUTE if name in requests}, **named} | dict.fromkeys(
        _COUNTED, 1
    )


def _limits_as_requests(pod: Pod) -> Pod:
    def turned(resources: ResourceRequirements | None) -> ResourceRequirements:
        return ResourceRequirements(requests=resources.limits if resources is not None else None)

    replace = msgspec.structs.replace
    spec = pod.spec
    containers, initial = (
        tuple(replace(one, resources=turned(one.resources)) for one in some or ())
        for some in (spec.containers, spec.init_containers)
    )
    changed = replace(
        spec, containers=containers, init_containers=initial, resources=turned(spec.resources), overhead=None
    )
    return replace(pod, spec=changed)


def _not_said(hard: Mapping[str, int], pod: Pod) -> str:
    """Return which of cpu and memory containers leave open though a quota counts them, as the server does."""
    told = []
    for name in sorted(hard):
        of = _resource(name)
        if of not in (CPU, MEMORY):
            continue
        wanted = "limits" if name.startswith(_LIMITS) else "requests"
        lacking = [
            one.name
            for one in (*(pod.spec.init_containers or ()), *pod.spec.containers)
            if of not in (getattr(one.resources, wanted, None) or {})
        ]
        whole = getattr(pod.spec.resources, wanted, None) or {}
        if lacking and of not in whole:
            told.append(f"{name} for: {','.join(lacking)}")
    return "; ".join(told)


def _covers(quota: ResourceQuota, pod: Pod, raw: Mapping[str, Any]) -> bool | None:
    """Report whether a quota's scopes select a pod; None where one is not known here."""
    selector = quota.spec.scope_selector or ScopeSelector()
    asked = [ScopedSelector(scope_name=one, operator="Exists") for one in quota.spec.scopes or ()]
    selected = [_selects(one, pod, raw) for one in (*asked, *(selector.match_expressions or ()))]
    if False in selected:
        return False
    return None if None in selected else True


def _selects(one: ScopedSelector, pod: Pod, raw: Mapping[str, Any]) -> bool | None:
    match one.scope_name:
        case "Terminating" | "NotTerminating":
            ends = (raw.get("spec") or {}).get("activeDeadlineSeconds") is not None
            return ends == (one.scope_name == "Terminating")
        case "BestEffort" | "NotBestEffort":
            asks = len(_usage(pod)) > len(_COUNTED)
            return asks == (one.scope_name == "NotBestEffort")
        case "PriorityClass":
            name = pod.spec.priority_class_name or ""
            listed = name in (one.values or ())
            by_operator = {"In": listed, "NotIn": not listed, "Exists": bool(name), "DoesNotExist": not name}
            return by_operator.get(one.operator)
    return None


def _resource(name: str) -> str:
    """Return the resource that a quota's name is about."""
    return name.removeprefix(_REQUESTS).removeprefix(_LIMITS)


def _amount(name: str, amount: Quantity) -> int:
    return column_value(_resource(name), parse(amount))
