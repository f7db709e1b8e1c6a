"""Host ports. Source: kube-scheduler's GetHostPorts and HostPortInfo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from makeway.core.k8s.objects import Pod

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - what Kubernetes takes for "every address"; nothing is bound here


class HostPort(NamedTuple):
    """One port of the node that a pod takes."""

    address: str
    protocol: str
    port: int


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers and sidecars, each once, in order."""
    sidecars = [one for one in pod.spec.init_containers or () if one.restart_policy == "Always"]
    if not any(container.ports for container in (*sidecars, *pod.spec.containers)):
        return ()
    found = {
        HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*sidecars, *pod.spec.containers)
        for port in container.ports or ()
        if port.host_port and port.host_port > 0
    }
    return tuple(sorted(found))


def conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Report whether two pods cannot share a node: a port twice on one address, or on one and on all."""
    taken = tuple(taken)
    return any(
        one.port == other.port
        and one.protocol == other.protocol
        and (ANY_ADDRESS in (one.address, other.address) or one.address == other.address)
        for one in wanted
        for other in taken
    )
