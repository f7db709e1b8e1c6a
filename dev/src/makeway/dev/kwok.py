"""KWOK plays the kubelets: the stages nodes and pods go through are KWOK's Stage objects, in kwok.yaml.

A node is Ready at once and keeps a Lease. A bound pod runs at once. A deleted pod leaves at once, since its
process ends the moment it is asked; the annotation `TERMINATION` makes it behave worse.
"""

from pathlib import Path

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

STAGES = Path(__file__).with_name("kwok.yaml")

_LEASE_SECONDS = 40
_NODE_ADDRESS = "127.0.0.1"


def program(site: Site) -> Program:
    """KWOK itself, managing every node."""
    port = site.ports["kwok"]
    return Program(
        name="kwok",
        argv=(
            str(site.built["kwok"]),
            f"--kubeconfig={site.kubeconfig('kwok')}",
            f"--config={STAGES}",
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
