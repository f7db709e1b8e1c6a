"""`makeway evictor`: carry out eviction orders, or roll them back."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from makeway.bus.errors import BusError
from makeway.cli.errors import fail
from makeway.core.mode import Mode
from makeway.evictor.process import run
from makeway.runtime import logs
from makeway.runtime.kube import ApiError, ApiUnavailable, ConfigurationError
from makeway.runtime.process import identity
from makeway.runtime.settings import (
    ContextOption,
    HttpSettings,
    KubeconfigOption,
    KubeSettings,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    NatsCredsOption,
    NatsSettings,
    NatsUrlOption,
    StreamReplicasOption,
    SubjectPrefixOption,
)

app = typer.Typer(add_completion=False)

_NATS = NatsSettings()


@app.command()
def evictor(
    *,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            envvar="MAKEWAY_MODE",
            help="enforce carries orders out; off and observe refuse each order without an effect.",
        ),
    ] = "enforce",
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            envvar="MAKEWAY_CONCURRENCY",
            min=1,
            max=64,
            help="Orders under way at once. They mostly wait for the API server.",
        ),
    ] = 16,
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
    stream_replicas: StreamReplicasOption = _NATS.replicas,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    listen: ListenOption = ":9465",
    log_format: LogFormatOption = "json",
    log_level: LogLevelOption = "info",
) -> None:
    """Carry out eviction orders: re-check, mark, delete, retry; or roll back. Any number may run.

    Needs the rights of charts/makeway/rbac/evictor.yaml. Ends with 0 when told to stop, with 1 when
    it cannot start or has lost what it needs, to be restarted.
    """
    me = identity()
    logs.configure(log_format, log_level, "evictor", me)
    try:
        code = asyncio.run(
            run(
                nats=NatsSettings(
                    url=nats_url, creds=nats_creds, subject_prefix=subject_prefix, replicas=stream_replicas
                ),
                kube=KubeSettings(kubeconfig=kubeconfig, context=context),
                listen=HttpSettings(listen=listen),
                mode=mode,
                concurrency=concurrency,
                identity=me,
            )
        )
    except (ConfigurationError, ApiError, ApiUnavailable, BusError, ValueError, OSError) as error:
        fail(str(error))
    raise typer.Exit(code)
