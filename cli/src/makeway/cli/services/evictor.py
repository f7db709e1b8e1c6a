"""`makeway evictor`: carry out eviction orders, or roll them back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from makeway.cli.services.service import ServiceOptions, service
from makeway.core.policy.mode import Mode
from makeway.evictor.judge.fences import NOMINATOR_FENCES, PLANNER_FENCES, SCHEDULER_FENCES, Fences
from makeway.evictor.process import run
from makeway.runtime.settings import ConfigSettings, QueuesConfigMapOption, QueuesFileOption

_CONFIG: Final = ConfigSettings()

app = typer.Typer(add_completion=False)


@app.command()
@service("evictor", listen=":9465", traces=True)
async def evictor(
    shared: ServiceOptions,
    *,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            envvar="MAKEWAY_MODE",
            help="The most that it does; the policy may allow less. enforce carries orders out; off "
            "and observe refuse each order without an effect.",
        ),
    ] = "enforce",
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            envvar="MAKEWAY_CONCURRENCY",
            min=1,
            max=64,
            help="Orders that work at once; those that wait to try again do not count.",
        ),
    ] = 32,
    scheduler_fence: Annotated[
        list[str],
        typer.Option(
            "--scheduler-fence",
            envvar="MAKEWAY_SCHEDULER_FENCE",
            metavar="FENCE",
            help="What fences the orders of a scheduler, repeatable: lease/NAMESPACE/NAME, or kv/PROFILE "
            "where it runs without leader election. Orders that name another are refused.",
        ),
    ] = list(SCHEDULER_FENCES),  # noqa: B006 - typer copies it
    planner_fence: Annotated[
        list[str],
        typer.Option(
            "--planner-fence",
            envvar="MAKEWAY_PLANNER_FENCE",
            metavar="FENCE",
            help="What fences the planner's orders for quotas, as --scheduler-fence; kv/makeway-planner "
            "where it runs without leader election.",
        ),
    ] = list(PLANNER_FENCES),  # noqa: B006
    nominator_fence: Annotated[
        list[str],
        typer.Option(
            "--nominator-fence",
            envvar="MAKEWAY_NOMINATOR_FENCE",
            metavar="FENCE",
            help="What fences a nominator's orders, as --scheduler-fence.",
        ),
    ] = list(NOMINATOR_FENCES),  # noqa: B006
    queues_configmap: QueuesConfigMapOption = _CONFIG.queues_configmap,
    queues_file: QueuesFileOption = _CONFIG.queues_file,
) -> int:
    """Carry out eviction orders: re-check, mark, delete, retry; or roll back. Any number may run.

    Needs the rights of charts/makeway/rbac/evictor.yaml. Ends with 0 when told to stop, with 1 when
    it cannot start or has lost what it needs, to be restarted.
    """
    return await run(
        nats=shared.nats,
        kube=shared.kube,
        listen=shared.listen,
        config=replace(shared.config, queues_configmap=queues_configmap, queues_file=queues_file),
        signatures=shared.signatures,
        mode=mode,
        concurrency=concurrency,
        fences=Fences.of(scheduler_fence, planner_fence, nominator_fence),
        identity=shared.identity,
    )
