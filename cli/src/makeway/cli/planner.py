"""`makeway planner`: say which pods would make room for a pod."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from makeway.bus.errors import BusError
from makeway.cli.errors import fail
from makeway.core.mode import Mode
from makeway.planner.process import run
from makeway.runtime import logs
from makeway.runtime.kube import ApiError, ApiUnavailable, ConfigurationError
from makeway.runtime.lease import LeaseSettings
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

LEASE_NAME = "makeway-planner"

_NATS = NatsSettings()


@app.command()
def planner(
    *,
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            envvar="MAKEWAY_LEADER_ELECT",
            help="Answer only while holding the Lease makeway-planner; for more than one replica.",
        ),
    ] = False,
    lease_namespace: Annotated[
        str,
        typer.Option(
            "--lease-namespace",
            envvar="MAKEWAY_LEASE_NAMESPACE",
            metavar="NAMESPACE",
            help="Where that Lease is.",
        ),
    ] = "makeway-system",
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            envvar="MAKEWAY_MODE",
            help="Plans are the same in every mode: the planner changes nothing. Logged at the start.",
        ),
    ] = "enforce",
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
    stream_replicas: StreamReplicasOption = _NATS.replicas,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    listen: ListenOption = ":9464",
    log_format: LogFormatOption = "json",
    log_level: LogLevelOption = "info",
) -> None:
    """Say which pods would make room for a pod. Reads the cluster, changes nothing in it.

    Needs the rights of charts/makeway/rbac/planner.yaml. Ends with 0 when told to stop, with 1 when
    it cannot start or has lost what it needs, to be restarted.
    """
    me = identity()
    logs.configure(log_format, log_level, "planner", me)
    try:
        code = asyncio.run(
            run(
                nats=NatsSettings(
                    url=nats_url, creds=nats_creds, subject_prefix=subject_prefix, replicas=stream_replicas
                ),
                kube=KubeSettings(kubeconfig=kubeconfig, context=context),
                listen=HttpSettings(listen=listen),
                mode=mode,
                lease=LeaseSettings(namespace=lease_namespace, name=LEASE_NAME) if leader_elect else None,
                identity=me,
            )
        )
    except (ConfigurationError, ApiError, ApiUnavailable, BusError, ValueError, OSError) as error:
        fail(str(error))
    raise typer.Exit(code)
