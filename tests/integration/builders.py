"""Build nodes and pods in a test's own words: `make_pod("a").priority("high").cpu("2")`."""

from datetime import UTC, datetime, timedelta
from typing import Any, Self

from makeway.core.k8s.objects import Pod
from makeway.dev.kwok import STARTED, TERMINATION

NEVER_PREEMPTS = "never"
"""The one class whose pods evict nobody."""

PRIORITY_CLASSES = {"neg": -100, "low": 0, "mid": 100, "high": 1000, NEVER_PREEMPTS: 1000}
"""Names and values of the classes every cluster of the tests has."""

_FIRST_START = datetime(2026, 1, 1, tzinfo=UTC)

Manifest = dict[str, Any]


class NodeBuilder:
    """A node; 110 pods, 4 CPUs and 16 GiB unless told otherwise."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._size: dict[str, str] = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        self._labels: dict[str, str] = {"type": "kwok"}
        self._taints: list[dict[str, str]] = []

    def cpu(self, quantity: str | int) -> Self:
        """Set its CPUs."""
        return self.resource("cpu", quantity)

    def memory(self, quantity: str | int) -> Self:
        """Set its memory."""
        return self.resource("memory", quantity)

    def pods(self, count: int) -> Self:
        """Set how many pods it holds."""
        return self.resource("pods", count)

    def resource(self, name: str, quantity: str | int) -> Self:
        """Set any resource, extended ones too."""
        self._size[name] = str(quantity)
        return self

    def label(self, key: str, value: str) -> Self:
        """Add a label."""
        self._labels[key] = value
        return self

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        """Add a taint."""
        self._taints.append({"key": key, "value": value, "effect": effect})
        return self

    def build(self, name: str) -> Manifest:
        """As a manifest, under this name."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **self._labels}},
            "spec": {"taints": self._taints},
            "status": {"allocatable": self._size, "capacity": self._size},
        }


class PodBuilder:
    """A pod with one container and no requests; its grace period is 1 s unless told otherwise."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = ""
        """The node it is put on, without the scheduler."""
        self._metadata: Manifest = {"name": name, "labels": {}, "annotations": {}}
        self._requests: dict[str, str] = {}
        self._spec: Manifest = {"terminationGracePeriodSeconds": 1}

    def priority(self, class_name: str) -> Self:
        """Set its PriorityClass; see PRIORITY_CLASSES."""
        return self.spec(priorityClassName=class_name)

    def cpu(self, quantity: str | int) -> Self:
        """Request CPU."""
        return self.resource("cpu", quantity)

    def memory(self, quantity: str | int) -> Self:
        """Request memory."""
        return self.resource("memory", quantity)

    def resource(self, name: str, quantity: str | int) -> Self:
        """Request any resource; an extended one is its own limit."""
        self._requests[name] = str(quantity)
        return self

    def on(self, node: str) -> Self:
        """Put it on a node of the test directly, without the scheduler."""
        self.node = node
        return self

    def started(self, seconds: int) -> Self:
        """Let it report that it started so many seconds after a fixed time long ago."""
        return self.annotation(STARTED, f"{_FIRST_START + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}")

    def leaves(self, how: str) -> Self:
        """How it ends when deleted: `kwok.AFTER_GRACE`, `AS_KUBELET` or `NEVER`; else at once."""
        return self.annotation(TERMINATION, how)

    def grace(self, seconds: int) -> Self:
        """Set its grace period."""
        return self.spec(terminationGracePeriodSeconds=seconds)

    def label(self, key: str, value: str) -> Self:
        """Add a label."""
        self._metadata["labels"][key] = value
        return self

    def annotation(self, key: str, value: str) -> Self:
        """Add an annotation."""
        self._metadata["annotations"][key] = value
        return self

    def finalizer(self, name: str) -> Self:
        """Add a finalizer: it stays terminating until somebody takes that away."""
        self._metadata.setdefault("finalizers", []).append(name)
        return self

    def owned_by(self, *owners: Pod) -> Self:
        """Name other pods as its owners."""
        self._metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
            for pod in owners
        ]
        return self

    def anti_affinity(self, key: str, value: str, topology: str = "kubernetes.io/hostname") -> Self:
        """Refuse to share a topology domain with pods that have this label."""
        term = {"labelSelector": {"matchLabels": {key: value}}, "topologyKey": topology}
        return self.spec(
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        )

    def spread(self, key: str, value: str, topology: str, max_skew: int = 1) -> Self:
        """Add a hard topology spread constraint over pods that have this label."""
        self._spec.setdefault("topologySpreadConstraints", []).append(
            {
                "maxSkew": max_skew,
                "topologyKey": topology,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {key: value}},
            }
        )
        return self

    def spec(self, **fields: Any) -> Self:
        """Set fields of the spec, as the API names them."""
        self._spec.update(fields)
        return self

    def build(self) -> Manifest:
        """As a manifest, without namespace and node."""
        resources: Manifest = {"requests": self._requests}
        if extended := {name: value for name, value in self._requests.items() if "/" in name}:
            resources["limits"] = extended
        container = {"name": "main", "image": "example.com/none:1", "resources": resources}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self._metadata,
            "spec": {"containers": [container], **self._spec},
        }


def make_node(name: str) -> NodeBuilder:
    """Begin a node."""
    return NodeBuilder(name)


def make_pod(name: str) -> PodBuilder:
    """Begin a pod."""
    return PodBuilder(name)
