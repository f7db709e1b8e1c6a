"""nats-server with JetStream on loopback, its store in the cluster's directory: one, or a NATS cluster."""

from makeway.dev.options import NATS
from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.site import Site, nats_servers

_CONFIGURATION = """\
server_name: makeway-dev-{name}
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor_port}
jetstream {{
  store_dir: {store}
  max_memory_store: 256MB
  max_file_store: 3GB
}}
"""

_CLUSTER = """\
cluster {{
  name: makeway-dev
  listen: 127.0.0.1:{port}
  routes: [{routes}]
  {advertise}
}}
"""


def programs(site: Site) -> list[Program]:
    """Return the servers, `nats`, `nats-2`, ...; each is ready when its JetStream is."""
    return [_program(site, name) for name in nats_servers(site.options)]


def _program(site: Site, name: str) -> Program:
    port, monitor_port = site.ports[name], site.ports[f"{name}-monitor"]
    text = _CONFIGURATION.format(
        name=name, store=f'"{site.directory / name}"', port=port, monitor_port=monitor_port
    )
    if site.options.nats_servers > 1:
        routes = ", ".join(
            f"nats://127.0.0.1:{site.ports[f'{other}-route']}" for other in nats_servers(site.options)
        )
        # Clients keep to the lines that they were given, where those may be cut.
        advertise = "no_advertise: true" if site.lines else ""
        text += _CLUSTER.format(port=site.ports[f"{name}-route"], routes=routes, advertise=advertise)
    configuration = site.config("nats.conf" if name == NATS else f"{name}.conf")
    configuration.write_text(text)
    return Program(
        name=name,
        argv=(str(site.built["nats-server"]), f"--config={configuration}"),
        ready=http_ok(f"http://127.0.0.1:{monitor_port}/healthz?js-enabled-only=true"),
    )
