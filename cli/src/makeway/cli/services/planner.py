"""`makeway planner`: say which pods would make room for a pod."""

from __future__ import annotations

from typing import Annotated

import typer

from makeway.cli.services.service import service
from makeway.core.policy.mode import Mode
from makeway.planner.service.process import run
from makeway.runtime.lease import LeaseSettings
from makeway.runtime.settings import ServiceSettings, option

app = typer.Typer(add_completion=False)

LEASE_NAME = "makeway-planner"


@app.command()
@service("planner", listen=":9464", traces=True)
async def planner(
    shared: ServiceSettings,
    *,
    leader_elect: Annotated[
        bool,
        option(
            "--leader-elect/--no-leader-elect",
            "Answer only while holding the Lease makeway-planner; for more than one replica.",
        ),
    ] = False,
    lease_namespace: Annotated[
        str, option("--lease-namespace", "Where that Lease is.", metavar="NAMESPACE")
    ] = "makeway-system",
    mode: Annotated[
        Mode, option("--mode", "The most that plugin and evictors do; the policy may allow less.")
    ] = "enforce",
    record: Annotated[
        bool,
        option(
            "--record/--no-record",
            "Keep what the leading planner sees, for makeway replay: at most 256 MiB, for a day.",
        ),
    ] = True,
) -> int:
    """Say which pods would make room for a pod, and tell plugin and evictors the mode and limits in force.

    Reads the cluster; writes nothing in it but Events about the configuration. Needs the rights of
    charts/makeway/rbac/planner.yaml. Ends with 0 when told to stop, with 1 when it cannot start or has lost
    what it needs, to be restarted.
    """
    return await run(
        shared,
        mode=mode,
        lease=LeaseSettings(namespace=lease_namespace, name=LEASE_NAME) if leader_elect else None,
        record=record,
    )
