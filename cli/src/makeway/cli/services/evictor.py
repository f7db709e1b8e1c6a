"""`makeway evictor`: carry out eviction orders, or roll them back."""

from __future__ import annotations

from typing import Annotated

import typer

from makeway.cli.services.service import service
from makeway.core.policy.mode import Mode
from makeway.evictor.judge.fences import NOMINATOR_FENCES, PLANNER_FENCES, SCHEDULER_FENCES, Fences
from makeway.evictor.process import run
from makeway.runtime.settings import ServiceSettings, option

app = typer.Typer(add_completion=False)


@app.command()
@service("evictor", listen=":9465", traces=True)
async def evictor(
    shared: ServiceSettings,
    *,
    mode: Annotated[
        Mode,
        option(
            "--mode",
            "The most that it does; the policy may allow less. enforce carries orders out; off "
            "and observe refuse each order without an effect.",
        ),
    ] = "enforce",
    concurrency: Annotated[
        int,
        option(
            "--concurrency",
            "Orders that work at once; those that wait to try again do not count.",
            min=1,
            max=64,
        ),
    ] = 32,
    scheduler_fence: Annotated[
        list[str],
        option(
            "--scheduler-fence",
            "What fences the orders of a scheduler, repeatable: lease/NAMESPACE/NAME, or kv/PROFILE "
            "where it runs without leader election. Orders that name another are refused.",
            metavar="FENCE",
        ),
    ] = list(SCHEDULER_FENCES),  # noqa: B006 - typer copies it
    planner_fence: Annotated[
        list[str],
        option(
            "--planner-fence",
            "What fences the planner's orders for quotas, as --scheduler-fence; kv/makeway-planner "
            "where it runs without leader election.",
            metavar="FENCE",
        ),
    ] = list(PLANNER_FENCES),  # noqa: B006
    nominator_fence: Annotated[
        list[str],
        option(
            "--nominator-fence",
            "What fences a nominator's orders, as --scheduler-fence.",
            metavar="FENCE",
        ),
    ] = list(NOMINATOR_FENCES),  # noqa: B006
) -> int:
    """Carry out eviction orders: re-check, mark, delete, retry; or roll back. Any number may run.

    Needs the rights of charts/makeway/rbac/evictor.yaml. Ends with 0 when told to stop, with 1 when
    it cannot start or has lost what it needs, to be restarted.
    """
    return await run(
        shared,
        mode=mode,
        concurrency=concurrency,
        fences=Fences.of(scheduler_fence, planner_fence, nominator_fence),
    )
