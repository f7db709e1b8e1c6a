"""What a pod asks of a node, counted as kube-scheduler counts it.

Sources: component-helpers `resource.PodRequests` as NodeInfo and NodeResourcesFit call it in 1.36:
container and pod-level in-place resize status counts for pods on a node, and not for the pod that
is being scheduled. KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-1287 (in-place resize).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from makeway.core.k8s.objects import (
    Container,
    ContainerStatus,
    Pod,
    PodStatus,
    Quantity,
    ResourceRequirements,
)
from makeway.core.k8s.quantity import parse
from makeway.core.k8s.resources import CPU, MEMORY, PODS, column_value, is_counted

Exact = dict[str, int]
"""Amounts by resource name, in billionths."""

_REMEMBERED = 65536
"""Different sets of requests that are remembered; a cluster has far fewer."""


def pod_requests(pod: Pod, *, placed: bool) -> Mapping[str, int]:
    """Return what the pod takes from a node, by column: milli-CPU, bytes, units, and one of `pods`.

    `placed`: the pod is on a node (or counted as if it were), so what the kubelet has allocated
    during an in-place resize counts; for the pod that looks for a node it does not. Amounts are
    summed exactly and rounded up once. Zero amounts are left out. Raises QuantityError.
    """
    exact = _of_containers(pod, placed=placed)
    _apply_pod_level(exact, pod, placed=placed)
    _add(exact, _exact(pod.spec.overhead))
    columns = {name: column_value(name, amount) for name, amount in exact.items() if is_counted(name)}
    requests = {name: amount for name, amount in columns.items() if amount != 0}
    requests[PODS] = 1
    return requests


class KnownRequests:
    """The requests of many pods: those that ask for the same are counted once and share the answer."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Mapping[str, int]] = {}

    def of(self, pod: Pod, *, placed: bool) -> Mapping[str, int]:
        """Return what `pod_requests` does. Raises QuantityError."""
        spec, status = pod.spec, pod.status
        asked = (
            placed,
            tuple([_asked(container) for container in spec.containers]),
            tuple([_asked(container) for container in spec.init_containers]) if spec.init_containers else (),
            tuple(spec.overhead.items()) if spec.overhead else (),
            _amounts(spec.resources),
            _reported(pod) if placed and _reports(status) else (),
        )
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[asked] = pod_requests(pod, placed=placed)
        return known


def _asked(container: Container) -> Hashable:
    """Return all of a container that its requests depend on."""
    return container.name, container.restart_policy, _amounts(container.resources)


def _amounts(resources: ResourceRequirements | None) -> Hashable:
    return tuple(resources.requests.items()) if resources is not None and resources.requests else ()


def _reports(status: PodStatus) -> bool:
    return bool(status.container_statuses or status.init_container_statuses or status.resources)


def _reported(pod: Pod) -> Hashable:
    """Return all of a pod's status that its requests depend on."""
    status = pod.status
    of_containers = [
        (name, _amounts(one.resources), tuple((one.allocated_resources or {}).items()))
        for name, one in _statuses(pod).items()
    ]
    of_pod = status.resources is not None, _amounts(status.resources)
    return (
        tuple(of_containers),
        of_pod,
        tuple((status.allocated_resources or {}).items()),
        is_resize_infeasible(pod),
    )


def _of_containers(pod: Pod, *, placed: bool) -> Exact:
    """Sum the containers and sidecars; raise that to what any init container needs at its turn."""
    statuses = _statuses(pod) if placed else {}
    infeasible = bool(statuses) and is_resize_infeasible(pod)
    total: Exact = {}
    for container in pod.spec.containers:
        _add(total, _effective(container, statuses.get(container.name), infeasible))
    sidecars: Exact = {}
    initial: Exact = {}
    for container in pod.spec.init_containers or ():
        if container.restart_policy == "Always":
            own = _effective(container, statuses.get(container.name), infeasible)
            _add(total, own)
            _add(sidecars, own)
            _raise_to(initial, sidecars)
        else:
            own = _spec(container)
            _add(own, sidecars)
            _raise_to(initial, own)
    _raise_to(total, initial)
    return total


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """Return the statuses that report resources, by container name."""
    status = pod.status
    both: Iterable[ContainerStatus] = (
        *(status.container_statuses or ()),
        *(status.init_container_statuses or ()),
    )
    return {one.name: one for one in both if one.resources is not None}


def _effective(container: Container, status: ContainerStatus | None, infeasible: bool) -> Exact:
    """Take the most of asked, running and allocated; what is asked infeasibly does not count."""
    if status is None or status.resources is None:
        return _spec(container)
    most = {} if infeasible else _spec(container)
    _raise_to(most, _exact(status.resources.requests))
    _raise_to(most, _exact(status.allocated_resources))
    return most


def _apply_pod_level(exact: Exact, pod: Pod, *, placed: bool) -> None:
    """Put the pod's own requests in place of its containers', where a pod may have its own."""
    own = pod.spec.resources.requests if pod.spec.resources is not None else None
    supported = {name: amount for name, amount in (own or {}).items() if _is_pod_level(name)}
    if not supported:
        return
    asked = _exact(supported)
    running = pod.status.resources
    if placed and running is not None:
        most = {} if is_resize_infeasible(pod) else dict(asked)
        _raise_to(most, _exact(running.requests))
        _raise_to(most, _exact(pod.status.allocated_resources))
        asked = {name: most.get(name, 0) for name in asked}
    exact.update(asked)


def _is_pod_level(name: str) -> bool:
    return name in {CPU, MEMORY} or name.startswith("hugepages-")


def is_resize_infeasible(pod: Pod) -> bool:
    """Report whether the kubelet has found that a resize asked for can never be given."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _spec(container: Container) -> Exact:
    return _exact(container.resources.requests) if container.resources is not None else {}


def _exact(amounts: Mapping[str, Quantity] | None) -> Exact:
    return {name: parse(amount) for name, amount in (amounts or {}).items()}


def _add(total: Exact, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Exact, least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if name not in total or amount > total[name]:
            total[name] = amount
