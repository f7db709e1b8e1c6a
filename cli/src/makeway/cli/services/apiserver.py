"""`makeway apiserver`: answer tenants' questions about their own pods."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import REGISTRY

from makeway.cli.apiserver.answering import Answerer
from makeway.cli.apiserver.limits import TurnLimits
from makeway.cli.apiserver.server import (
    AskServer,
    FrontProxyChanged,
    listening,
    read_front_proxy,
    renew_forever,
    tls_context,
)
from makeway.cli.services.service import ServiceOptions, service
from makeway.runtime.http import serve
from makeway.runtime.kube import Api
from makeway.runtime.process import run_until_signalled

app = typer.Typer(add_completion=False)

_PANEL = "Questions"


def _file(option: str, help_: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        option,
        envvar=f"MAKEWAY_{option.strip('-').upper().replace('-', '_')}",
        metavar="FILE",
        help=help_,
        rich_help_panel=_PANEL,
    )
    return found


@app.command()
@service("apiserver", listen=":9469")
async def apiserver(
    shared: ServiceOptions,
    *,
    tls_cert: Annotated[Path, _file("--tls-cert", "Serving certificate (PEM), renewed without a restart.")],
    tls_key: Annotated[Path, _file("--tls-key", "Key of that certificate (PEM).")],
    secure_listen: Annotated[
        str,
        typer.Option(
            "--secure-listen",
            envvar="MAKEWAY_SECURE_LISTEN",
            metavar="HOST:PORT",
            help="Where kube-apiserver passes questions on.",
            rich_help_panel=_PANEL,
        ),
    ] = ":8443",
) -> int:
    """Answer why, simulate and queues to tenants, as the aggregated API ask.makeway.dev.

    Takes connections of kube-apiserver alone, asks it whether the user may get the pods of the namespace, and
    names no pod of another one. Changes nothing. Needs the rights of charts/makeway/rbac/apiserver.yaml, and
    NATS as the user viewer. Ends with 0 when told to stop, with 1 when it cannot start or kube-apiserver is
    known by another certificate, to be restarted.
    """
    async with contextlib.AsyncExitStack() as closing:
        kube = shared.kube
        api = await Api.connect(
            kubeconfig=str(kube.kubeconfig) if kube.kubeconfig else None,
            context=kube.context,
            user_agent="makeway/apiserver",
        )
        closing.push_async_callback(api.close)
        proxy = await read_front_proxy(api)
        context = tls_context(proxy, tls_cert, tls_key)
        server = AskServer.of(api, proxy, Answerer(_environment(shared)), REGISTRY, TurnLimits())
        runner = await listening(server, secure_listen, context)
        closing.push_async_callback(runner.cleanup)
        health = await serve(
            shared.listen.listen, ready=dict[str, str], live=dict[str, str], registry=REGISTRY
        )
        closing.push_async_callback(health.close)
        return await run_until_signalled(
            renew_forever(api, proxy, context, tls_cert, tls_key), expected=(FrontProxyChanged,)
        )


def _environment(shared: ServiceOptions) -> Mapping[str, str]:
    """Return how the commands that answer find everything: as this process was told."""
    nats, kube = shared.nats, shared.kube
    told = {
        "MAKEWAY_NATS_URL": nats.url,
        "MAKEWAY_NATS_CREDS": nats.creds,
        "MAKEWAY_NATS_NKEY": nats.nkey,
        "MAKEWAY_NATS_TLS_CA": nats.tls_ca,
        "MAKEWAY_NATS_TLS_CERT": nats.tls_cert,
        "MAKEWAY_NATS_TLS_KEY": nats.tls_key,
        "MAKEWAY_SUBJECT_PREFIX": nats.subject_prefix,
        "MAKEWAY_KUBECONFIG": kube.kubeconfig,
        "MAKEWAY_CONTEXT": kube.context,
        "MAKEWAY_NAMESPACE": shared.config.namespace,
    }
    return {name: str(value) for name, value in told.items() if value}
