"""What a pod asks of a node, counted as kube-scheduler counts it.

Sources: component-helpers `resource.PodRequests` as NodeInfo and NodeResourcesFit call it in 1.37:
container and pod-level in-place resize status counts for pods on a node, and not for the pod that
is being scheduled. 1.36 and 1.35 count a pod otherwise while it is resized: container by container.
KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-1287 and KEP-5419 (in-place resize).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from makeway.core.k8s.objects import Container, ContainerStatus, Pod, Quantity
from makeway.core.k8s.quantity import parse
from makeway.core.k8s.resources import CPU, MEMORY, PODS, column_value, is_counted
from makeway.core.recent import BoundedBytes

Exact = dict[str, int]
"""Amounts by resource name, in billionths."""

_REMEMBERED_BYTES = 8 * 2**20
"""How much is remembered of different sets of requests. A cluster has some thousands of up to 1 kB; the
author of a pod may write a thousand times as much."""

_BESIDES = 512
"""Bytes that a set takes besides those by which it is compared."""


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
        self._known = BoundedBytes[bytes, Mapping[str, int]](_REMEMBERED_BYTES)

    def of(self, pod: Pod, *, placed: bool) -> Mapping[str, int]:
        """Return what `pod_requests` does. Raises QuantityError."""
        spec, status, told = pod.spec, pod.status, None
        if placed:
            of_containers = status.container_statuses, status.init_container_statuses
            told = *of_containers, status.allocated_resources, status.resources, is_resize_infeasible(pod)
        asked = _encode((told, spec.containers, spec.init_containers, spec.overhead, spec.resources))
        known = self._known.get(asked)
        if known is None:
            known = self._known.remember(asked, pod_requests(pod, placed=placed), len(asked) + _BESIDES)
        return known


_encode = msgspec.json.Encoder().encode


def _of_containers(pod: Pod, *, placed: bool) -> Exact:
    """Take the most of asked, allocated and running, each of the whole pod; the infeasible is not asked."""
    infeasible = placed and is_resize_infeasible(pod)
    statuses = _statuses(pod) if placed else {}
    if not (statuses or infeasible or (placed and pod.status.resources)):
        return _summed(pod, _spec)
    allocated, running = _of_status(pod)
    if allocated is None or running is None:

        def asked(container: Container) -> Exact:
            return {} if infeasible else _spec(container)

        def is_allocated(container: Container) -> Exact:
            status = statuses.get(container.name)
            amounts = None if status is None else status.allocated_resources
            return asked(container) if amounts is None else _exact(amounts)

        def runs(container: Container) -> Exact:
            status = statuses.get(container.name)
            amounts = None if status is None or status.resources is None else status.resources.requests
            return is_allocated(container) if amounts is None else _exact(amounts)

        allocated, running = _summed(pod, is_allocated), _summed(pod, runs)
    most = {} if infeasible else _summed(pod, _spec)
    _raise_to(most, running)
    _raise_to(most, allocated)
    return most


def _of_status(pod: Pod) -> tuple[Exact | None, Exact | None]:
    """Return what is allocated to the whole pod and runs; None where the status does not tell both."""
    allocated, resources = pod.status.allocated_resources, pod.status.resources
    if allocated is None or resources is None or resources.requests is None:
        return None, None
    return _exact(allocated), _exact(resources.requests)


def _summed(pod: Pod, of: Callable[[Container], Exact]) -> Exact:
    """Sum the containers and sidecars; raise that to what any init container needs at its turn."""
    total: Exact = {}
    for container in pod.spec.containers:
        _add(total, of(container))
    sidecars: Exact = {}
    initial: Exact = {}
    for container in pod.spec.init_containers or ():
        own = dict(of(container))
        if container.restart_policy == "Always":
            _add(total, own)
            _add(sidecars, own)
            _raise_to(initial, sidecars)
        else:
            _add(own, sidecars)
            _raise_to(initial, own)
    _raise_to(total, initial)
    return total


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """Return the statuses that report resources, by container name; the first of a name counts."""
    status = pod.status
    both = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return {
        one.name: one
        for one in reversed(both)
        if one.resources is not None or one.allocated_resources is not None
    }


def _apply_pod_level(exact: Exact, pod: Pod, *, placed: bool) -> None:
    """Put the pod's own requests in place of its containers', where a pod may have its own."""
    own = pod.spec.resources.requests if pod.spec.resources is not None else None
    supported = {name: amount for name, amount in (own or {}).items() if _is_pod_level(name)}
    if not supported:
        return
    running = pod.status.resources
    if not placed or running is None:
        exact.update(_exact(supported))
        return
    most = {} if is_resize_infeasible(pod) else _exact(own)
    _raise_to(most, _exact(running.requests))
    _raise_to(most, _exact(pod.status.allocated_resources))
    exact.update({name: amount for name, amount in most.items() if _is_pod_level(name)})


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
