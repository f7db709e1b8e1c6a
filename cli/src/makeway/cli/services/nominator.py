"""`makeway nominator`: preempt for pods beside a scheduler that runs no plugin."""

from __future__ import annotations

from typing import Annotated

import typer

from makeway.cli.services.service import service
from makeway.core.policy.mode import Mode
from makeway.nominator.process import Verify, run
from makeway.runtime.lease import LeaseSettings
from makeway.runtime.settings import ServiceSettings, option

app = typer.Typer(add_completion=False)

LEASE_NAME = "makeway-nominator"


@app.command()
@service("nominator", listen=":9467", traces=True)
async def nominator(
    shared: ServiceSettings,
    *,
    lease_namespace: Annotated[
        str,
        option(
            "--lease-namespace",
            "Where the Lease makeway-nominator is, which fences its orders.",
            metavar="NAMESPACE",
        ),
    ] = "makeway-system",
    mode: Annotated[Mode, option("--mode", "The most that it does; the policy may allow less.")] = "enforce",
    verify: Annotated[
        Verify,
        option(
            "--verify",
            "Who verifies plans by a scheduler's filters: none, or a shadow (makeway-scheduler shadow).",
        ),
    ] = "none",
) -> int:
    """Make room for pods whose PriorityClass is opted in, beside a scheduler that runs no plugin.

    A class is opted in by the annotation makeway.dev/preemption=external and preemptionPolicy Never. Any
    number may run; the holder of the Lease works. Needs the rights of charts/makeway/rbac/nominator.yaml.
    Ends with 0 when told to stop, with 1 when it cannot start or has lost what it needs, to be restarted.
    """
    return await run(
        shared,
        mode=mode,
        verify=verify,
        lease=LeaseSettings(namespace=lease_namespace, name=LEASE_NAME),
    )
