"""What makeway needs beside an API server: nats-server, the streams, planner and evictor."""

import json
import sys
from pathlib import Path
from typing import Final

from makeway.dev.options import EVICTOR, LIFTED_RATES, PLANNER, STREAMS
from makeway.dev.ports import Ports
from makeway.dev.probes import http_ok
from makeway.dev.process_set import ProcessSet
from makeway.dev.processes import Program
from stored_policy import store_policy

_MAKEWAY: Final = Path(sys.executable).parent / "makeway"
_START_SECONDS: Final = 120.0
_POLICY: Final = {
    "apiVersion": "makeway.dev/v1",
    "kind": "Policy",
    "mode": "enforce",
    "limits": dict(LIFTED_RATES),
}


class Services:
    """The services of one API server; they run until `stop`.

    Raises:
        DevError: one does not start.
    """

    def __init__(self, nats_server: Path, directory: Path) -> None:
        """Start them; `directory` has the API server's kubeconfig, and gets their logs."""
        self._ports, self._processes = Ports(), ProcessSet(directory)
        port = self._ports.take()
        self.nats_url = f"nats://127.0.0.1:{port}"
        try:
            self._processes.start(_nats(nats_server, directory, port)).wait_ready()
            self._processes.start(_streams(self.nats_url))
            store_policy(directory / "kubeconfig", _POLICY)
            services = [
                self._processes.start(_service(name, directory, self.nats_url, self._ports.take()))
                for name in (PLANNER, EVICTOR)
            ]
            for service in services:
                service.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all of them."""
        self._processes.stop()
        self._ports.release()


def _nats(program: Path, directory: Path, port: int) -> Program:
    configuration = directory / "nats.conf"
    store = json.dumps(str(directory / "nats"))
    configuration.write_text(f"listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store} }}\n")

    def ready() -> str:
        log = (directory / "logs" / "nats.log").read_text()
        return "" if "Server is ready" in log else "nats-server is not ready yet"

    return Program(name="nats", argv=(str(program), f"--config={configuration}"), ready=ready, base=True)


def _streams(nats_url: str) -> Program:
    argv = (str(_MAKEWAY), STREAMS, "--keep", f"--nats-url={nats_url}")
    return Program(name=STREAMS, argv=argv, ready=lambda: "")


def _service(name: str, directory: Path, nats_url: str, port: int) -> Program:
    address = f"127.0.0.1:{port}"
    # The tests' schedulers run without leader election, so a counter on NATS fences their orders.
    fence = ("--scheduler-fence=kv/default-scheduler",) if name == EVICTOR else ()
    return Program(
        name=name,
        argv=(
            str(_MAKEWAY),
            name,
            f"--nats-url={nats_url}",
            f"--kubeconfig={directory / 'kubeconfig'}",
            f"--listen={address}",
            "--mode=enforce",
            "--log-format=json",
            *fence,
        ),
        ready=http_ok(f"http://{address}/readyz"),
        ready_seconds=_START_SECONDS,
    )
