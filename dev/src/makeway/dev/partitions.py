"""Toxiproxy between each of makeway's processes and what it talks to, so that tests may cut the lines.

Every process gets lines of its own, to the API server (or the fault proxy in front of it) and to each
nats-server, so that a leader may be cut off while its replica is not. They are cut and slowed by toxiproxy's
own HTTP API: https://github.com/Shopify/toxiproxy.
"""

from __future__ import annotations

import json

from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.site import API_LINE, Site


def line_name(process: str, end: str) -> str:
    """Return the name of one line: `evictor-2/api`, `planner/nats-3`."""
    return f"{process}/{end}".replace("/", "_")


def program(site: Site) -> Program:
    """Toxiproxy with every line open."""
    lines = [
        {
            "name": line_name(process, end),
            "listen": f"127.0.0.1:{port}",
            "upstream": _upstream(site, process, end),
            "enabled": True,
        }
        for (process, end), port in site.lines.items()
    ]
    file = site.config("toxiproxy.json")
    file.write_text(json.dumps(lines, indent=2))
    port = site.ports["toxiproxy"]
    return Program(
        name="toxiproxy",
        argv=(str(site.built["toxiproxy"]), "-host=127.0.0.1", f"-port={port}", f"-config={file}"),
        ready=http_ok(f"http://127.0.0.1:{port}/version"),
        base=True,
    )


def _upstream(site: Site, process: str, end: str) -> str:
    if end == API_LINE:
        account = process.partition("-")[0]
        return site.server_for(account).removeprefix("https://")
    return f"127.0.0.1:{site.ports[end]}"
