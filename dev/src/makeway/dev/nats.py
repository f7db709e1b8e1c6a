"""nats-server with JetStream on loopback, its store in the cluster's directory."""

from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.site import Site

_CONFIGURATION = """\
server_name: makeway-dev
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor_port}
jetstream {{
  store_dir: {store}
  max_memory_store: 256MB
  max_file_store: 3GB
}}
"""


def program(site: Site) -> Program:
    """Ready when JetStream is."""
    port, monitor_port = site.ports["nats"], site.ports["nats-monitor"]
    configuration = site.config("nats.conf")
    configuration.write_text(
        _CONFIGURATION.format(store=f'"{site.directory / "nats"}"', port=port, monitor_port=monitor_port)
    )
    return Program(
        name="nats",
        argv=(str(site.built["nats-server"]), f"--config={configuration}"),
        ready=http_ok(f"http://127.0.0.1:{monitor_port}/healthz?js-enabled-only=true"),
    )
