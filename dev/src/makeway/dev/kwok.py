"""KWOK plays the kubelets: the stages nodes and pods go through, written as KWOK's Stage objects.

A node is Ready at once and keeps a Lease. A bound pod runs at once. A deleted pod leaves at once, since its
process ends the moment it is asked; the annotation `TERMINATION` makes it behave worse.
"""

from typing import Any

import yaml

from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.site import Site

TERMINATION = "dev.makeway.dev/termination"
"""Pod annotation: how its containers answer to the end of the pod."""
AFTER_GRACE = "after-grace"
"""They use up the whole grace period."""
AS_KUBELET = "as-kubelet"
"""They end at once, and the pod is Failed before it leaves, as a kubelet does it: Jobs count that."""
NEVER = "never"
"""They never end: the kubelet is gone, or a volume hangs."""
STARTED = "dev.makeway.dev/started"
"""Pod annotation: the start time it reports, RFC 3339; the present where it is not given."""

_LEASE_SECONDS = 40
_NODE_ADDRESS = "127.0.0.1"

_NODE_READY = """
{{ $now := Now }}
{{ $since := or .metadata.creationTimestamp $now }}
phase: Running
addresses:
- address: {{ NodeIP | Quote }}
  type: InternalIP
- address: {{ .metadata.name | Quote }}
  type: Hostname
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $since | Quote }}
{{ end }}
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: kwok
  kernelVersion: kwok
  kubeProxyVersion: kwok
  kubeletVersion: kwok
  machineID: ""
  operatingSystem: linux
  osImage: ""
  systemUUID: ""
"""

_POD_RUNS = """
{{ $now := Now }}
phase: Running
startTime: {{ or (index (or .metadata.annotations dict) "dev.makeway.dev/started") $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ $meta := .metadata }}
{{ $hostNetwork := or .spec.hostNetwork false }}
podIP: {{ PodIPWith .spec.nodeName $hostNetwork $meta.uid $meta.name $meta.namespace | Quote }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- type: {{ $type | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
{{ range .spec.readinessGates }}
- type: {{ .conditionType | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  state:
  {{ if eq .restartPolicy "Always" }}
    running:
      startedAt: {{ $now | Quote }}
  {{ else }}
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
  {{ end }}
{{ end }}
"""

_POD_FAILED = """
{{ $now := Now }}
phase: Failed
containerStatuses:
{{ range .status.containerStatuses }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: 137
      reason: Error
      finishedAt: {{ $now | Quote }}
{{ end }}
"""

_DELETED = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
_NOT_DELETED = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_ENDED = ["Failed", "Succeeded"]
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'


def stages() -> list[dict[str, Any]]:
    """Return the stages.

    At most one matches an object at any time, since KWOK would choose among several by chance.
    """
    termination = f'.metadata.annotations["{TERMINATION}"]'
    return [
        _stage(
            "node-ready",
            "Node",
            [{"key": _READY, "operator": "NotIn", "values": ["True"]}],
            {"statusTemplate": _NODE_READY},
        ),
        _stage(
            "pod-runs",
            "Pod",
            [_NOT_DELETED, {"key": ".status.phase", "operator": "In", "values": ["Pending"]}],
            {"statusTemplate": _POD_RUNS},
        ),
        _stage(
            "pod-leaves-at-once",
            "Pod",
            [_DELETED, {"key": termination, "operator": "DoesNotExist"}],
            {"delete": True},
        ),
        _stage(
            "pod-fails-as-it-is-deleted",
            "Pod",
            [
                _DELETED,
                {"key": termination, "operator": "In", "values": [AS_KUBELET]},
                {"key": ".status.phase", "operator": "NotIn", "values": _ENDED},
            ],
            {"statusTemplate": _POD_FAILED},
        ),
        _stage(
            "pod-leaves-once-it-has-failed",
            "Pod",
            [
                _DELETED,
                {"key": termination, "operator": "In", "values": [AS_KUBELET]},
                {"key": ".status.phase", "operator": "In", "values": _ENDED},
            ],
            {"delete": True},
        ),
        _stage(
            "pod-leaves-after-its-grace",
            "Pod",
            [_DELETED, {"key": termination, "operator": "In", "values": [AFTER_GRACE]}],
            {"delete": True},
            # deletionTimestamp is the time of the request plus the grace period.
            delay={"durationFrom": {"expressionFrom": ".metadata.deletionTimestamp"}},
        ),
    ]


def program(site: Site) -> Program:
    """KWOK itself, managing every node."""
    configuration = site.config("kwok.yaml")
    configuration.write_text(yaml.safe_dump_all(stages(), sort_keys=False))
    port = site.ports["kwok"]
    return Program(
        name="kwok",
        argv=(
            str(site.built["kwok"]),
            f"--kubeconfig={site.kubeconfig('kwok')}",
            f"--config={configuration}",
            "--manage-all-nodes",
            f"--node-ip={_NODE_ADDRESS}",
            f"--node-lease-duration-seconds={_LEASE_SECONDS}",
            f"--server-address=127.0.0.1:{port}",
            f"--tls-cert-file={site.serving.certificate}",
            f"--tls-private-key-file={site.serving.key}",
        ),
        ready=http_ok(f"http://127.0.0.1:{port}/healthz"),
        restart=True,
    )


def _stage(
    name: str,
    kind: str,
    expressions: list[dict[str, Any]],
    next_stage: dict[str, Any],
    delay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": expressions},
        "next": next_stage,
    }
    if delay is not None:
        spec["delay"] = delay
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}
