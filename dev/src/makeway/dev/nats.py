"""nats-server with JetStream on loopback, its store in the cluster's directory: one, or a NATS cluster."""

import json
from dataclasses import replace
from typing import Any

from makeway.bus.subjects import Subjects
from makeway.dev.nats_identities import DEVELOPER, NatsIdentities
from makeway.dev.nats_permissions import ACCOUNT, permissions, server_accounts, server_permissions
from makeway.dev.options import NATS, PLANNER, SCHEDULER
from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.site import NATS_PASSWORD, Site, nats_servers

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

_ACCOUNTS = """\
accounts: {accounts}
no_auth_user: {developer}
"""

_TLS = """\
tls {{
  cert_file: "{certificate}"
  key_file: "{key}"
  ca_file: "{authority}"
  verify: true
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
    text += _ACCOUNTS.format(
        accounts=json.dumps(accounts(Subjects(site.options.subject_prefix), site.nats_identities)),
        developer=DEVELOPER,
    )
    if known := site.nats_identities:
        text += _TLS.format(
            certificate=known.server.certificate, key=known.server.key, authority=known.authority
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
        base=True,
    )


def accounts(subjects: Subjects, known: NatsIdentities | None) -> dict[str, Any]:
    """Return the chart's accounts and permissions, and the developer beside the parts.

    Planner and scheduler may count their starts besides: here they also run without leader election.
    """
    counting = dict.fromkeys((PLANNER, SCHEDULER), (f"$KV.{subjects.epochs_bucket}.>",))
    users: dict[str, dict[str, Any]] = {
        name: {
            **({"nkey": known.logins[name].public} if known else {"user": name, "password": NATS_PASSWORD}),
            "permissions": server_permissions(
                replace(given, publish=(*given.publish, *counting.get(name, ())))
            ),
        }
        for name, given in permissions(subjects).items()
    }
    users[DEVELOPER] = {"user": DEVELOPER, "password": NATS_PASSWORD}
    accounts = server_accounts(subjects, users)
    # What a viewer's or a consumer's login asks, the developer may ask by the same subjects.
    accounts[ACCOUNT]["mappings"] = {f"{subjects.viewers_api}.>": "$JS.API.>"}
    return accounts
