"""Where the parts of a running cluster are to be found: what an owner writes down and others read."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from makeway.dev.errors import DevError

_FILE = "cluster.json"
_PROGRAMS = str(Path(sys.executable).parent)
"""Where `makeway` is, for a shell that has not activated its environment."""


@dataclass(frozen=True)
class ClusterInfo:
    """Addresses and paths of one cluster; they stay the same when a component is restarted."""

    name: str
    directory: Path
    server: str
    """https URL of the API server."""
    kubeconfig: Path
    """The administrator's."""
    kubeconfigs: dict[str, Path]
    """Those of the components, by `planner`, `evictor`, `scheduler`."""
    nats_url: str
    nats_monitor_url: str
    planner_url: str
    """http URL of the planner's /metrics, /healthz and /readyz."""
    evictor_url: str
    """The same of the evictor."""
    scheduler_url: str
    """https URL of the scheduler's /metrics, /healthz and /readyz; its certificate is the cluster's own."""
    audit_log: Path
    logs: Path
    """Directory with one file a component."""
    binaries: Path
    """Directory to put on PATH: kubectl and the others."""
    owner: int
    """Process id of the owner; when it dies, so does the cluster."""
    fault_proxy_url: str = ""
    """http URL of the fault proxy's control port, where the cluster has one."""
    toxiproxy_url: str = ""
    """http URL of toxiproxy's own API, where the cluster has one."""

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator and give its output.

        Raises:
            DevError: it failed; the text has what it said.
        """
        command = [str(self.binaries / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise DevError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def environment(self) -> dict[str, str]:
        """What a shell needs to work with the cluster; makeway's commands find NATS by the API server."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "NATS_URL": self.nats_url,
            "PATH": os.pathsep.join((str(self.binaries), os.environ.get("PATH", ""), _PROGRAMS)),
        }

    def exports(self) -> str:
        """The environment as lines a shell can evaluate."""
        values = {**self.environment(), "PATH": None}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items() if value is not None]
        return "\n".join(
            [*lines, f'export PATH={shlex.quote(str(self.binaries))}:"$PATH":{shlex.quote(_PROGRAMS)}']
        )

    def write(self) -> None:
        """Write it into the cluster's directory, whole or not at all."""
        temporary = self.directory / f".{_FILE}"
        temporary.write_text(json.dumps(asdict(self), default=str, indent=2))
        temporary.replace(self.directory / _FILE)


def read_info(directory: Path) -> ClusterInfo | None:
    """Read what the owner wrote; None where there is no cluster."""
    try:
        values: dict[str, Any] = json.loads((directory / _FILE).read_text())
    except FileNotFoundError:
        return None
    paths = {key: Path(values[key]) for key in ("directory", "kubeconfig", "audit_log", "logs", "binaries")}
    kubeconfigs = {name: Path(path) for name, path in values["kubeconfigs"].items()}
    return ClusterInfo(**{**values, **paths, "kubeconfigs": kubeconfigs})
