"""How a command reaches an installation of makeway: the options all such commands share, and how each ends.

A new command needs three things from here and `makeway.cli.output`:

    app = typer.Typer(add_completion=False)

    @app.command()
    @connected
    async def why(
        installation: Installation,          # made from the shared options, which `connected` adds
        pod: Annotated[str, typer.Argument(help="...")],
        *,
        namespace: NamespaceOption = "",
        output: OutputOption = "text",
    ) -> int | None:
        \"\"\"One sentence; then what it shows, and what exit code 1 means.\"\"\"
        printer = Printer(output)
        async with installation.bus() as bus, installation.api() as api:
            ...

It returns its exit code, 0 if None. Where nothing could be reached, or did not let us in, `connected` ends
the command with exit code 3 and one line on stderr; other `BusError`, `ApiError` and `ValueError` with 1. It
may call `makeway.cli.errors.fail` at any time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any

import typer

from makeway.bus.client import Bus
from makeway.bus.errors import BusAway, BusError, BusUnavailable, ConnectionLost
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.nats.user_key import key_login
from makeway.bus.subjects import Subjects
from makeway.cli.connect import nats as connect_nats
from makeway.cli.connect.context import context_namespace
from makeway.cli.connect.nats import Endpoint, NatsAddress
from makeway.cli.errors import INTERRUPTED, UNREACHABLE, fail
from makeway.cli.shared_options import parameters, taken, with_options
from makeway.runtime import logs
from makeway.runtime.kube import Api, ApiError, ApiUnavailable, ConfigurationError
from makeway.runtime.process import identity
from makeway.runtime.settings import (
    ContextOption,
    KubeconfigOption,
    NatsCredsOption,
    NatsNkeyOption,
    NatsTlsCaOption,
    NatsTlsCertOption,
    NatsTlsKeyOption,
    nats_tls,
    option,
)

_PANEL = "NATS"
_CONNECT_SECONDS = 5.0
_LOGIN_REMEDY = "; log in again, or give --context or --kubeconfig: a token or certificate may have expired"
_API_REMEDY = "; does the API server run, and is --context the one that you mean?"

DEFAULT_MAKEWAY_NAMESPACE = "makeway-system"


def complete_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer namespaces to a shell."""
    from makeway.cli.connect import completion  # noqa: PLC0415 - it stands on this module

    return completion.namespaces(ctx, incomplete)


NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Namespace of the pod. Default: the context's.",
        autocompletion=complete_namespaces,
    ),
]
"""For a command that names a pod; `Installation.namespace` has the default."""

OnlyNamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Only what concerns pods of this namespace, as preemptor or victim. Default: all.",
        autocompletion=complete_namespaces,
    ),
]
"""For a command that lists."""

NatsUrlOption = Annotated[
    str | None,
    option(
        "--nats-url",
        "NATS server, or several. Default: as the installation says.",
        _PANEL,
        metavar="URL[,URL]",
    ),
]
SubjectPrefixOption = Annotated[
    str | None,
    option(
        "--subject-prefix",
        "First part of every subject. Default: as the installation says, else makeway.",
        _PANEL,
        metavar="PREFIX",
    ),
]
MakewayNamespaceOption = Annotated[
    str,
    option(
        "--makeway-namespace",
        "Namespace in which makeway is installed.",
        "Kubernetes",
        metavar="NS",
        autocompletion=complete_namespaces,
    ),
]


class MayNotRead(ApiError):  # noqa: N818 - it says what the user may not
    """The user may not read where NATS is, or how to log in."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An installation of makeway, and how to reach it; nothing is, before `api` or `bus` is entered.

    `name`: of the command, for NATS and the audit log. `makeway_namespace`: where ConfigMaps and services
    are. `nats_url`, `subject_prefix`: None where the installation is asked.
    """

    name: str
    kubeconfig: KubeconfigOption = None
    context: ContextOption = None
    makeway_namespace: MakewayNamespaceOption = DEFAULT_MAKEWAY_NAMESPACE
    nats_url: NatsUrlOption = None
    nats_creds: NatsCredsOption = None
    nats_nkey: NatsNkeyOption = None
    nats_tls_ca: NatsTlsCaOption = None
    nats_tls_cert: NatsTlsCertOption = None
    nats_tls_key: NatsTlsKeyOption = None
    subject_prefix: SubjectPrefixOption = None

    @asynccontextmanager
    async def api(self) -> AsyncIterator[Api]:
        """Connect to the API server.

        Raises:
            ConfigurationError: no usable kubeconfig.
        """
        api = await Api.connect(
            kubeconfig=str(self.kubeconfig) if self.kubeconfig else None,
            context=self.context,
            user_agent=f"makeway/{self.name}",
        )
        try:
            yield api
        finally:
            await api.close()

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[Bus]:
        """Connect to NATS, wherever the installation says that it is.

        Raises:
            BusUnavailable: no server answered, or none let us in.
            MayNotRead: the user may not read where NATS is.
            ConfigurationError, ApiError, ApiUnavailable: the installation cannot be asked where NATS is.
            ValueError: files for TLS that cannot be used.
        """
        address = await self.address()
        async with connect_nats.reachable(address.url, self.kubeconfig, self.context) as way:
            bus = await self._open(way, address)
            try:
                yield bus
            except BusUnavailable as error:
                # A denied publish or subscription shows as a time-out; the connection knows better.
                denied = bus.healthy()
                raise BusUnavailable(f"{error}; NATS says: {denied}" if denied else str(error)) from error
            finally:
                await bus.close()

    async def _open(self, way: Endpoint, address: NatsAddress) -> Bus:
        try:
            if not way.tls_hostname:
                # Whoever forwards a port takes every connection, and may end with one that is closed at once.
                await connect_nats.must_answer(way.url)
            return await Bus.connect(
                way.url,
                name=f"{self.name}/{identity()}",
                prefix=address.prefix,
                login=key_login(self.nats_creds, self.nats_nkey) or address.login,
                tls=nats_tls(self.nats_tls_ca, self.nats_tls_cert, self.nats_tls_key) or address.tls,
                tls_hostname=way.tls_hostname,
                timings=ConnectionTimings(connect=_CONNECT_SECONDS),
            )
        except BusUnavailable as error:
            if "does not admit this client" in str(error):
                raise BusUnavailable(f"no permission: {error}") from error
            first = f"{address.trouble}; " if address.trouble else ""
            raise type(error)(f"{first}{error} ({address.origin})") from error

    async def address(self) -> NatsAddress:
        """Where NATS is, and under which prefix: as the options say, else as the installation, else as usual.

        Raises:
            MayNotRead: the user may not read it.
            ConfigurationError, ApiError, ApiUnavailable: the installation cannot be asked.
        """
        if self.nats_url is not None:
            return NatsAddress(self.nats_url, self.subject_prefix or connect_nats.USUAL.prefix, "--nats-url")
        try:
            async with self.api() as api:
                found = await connect_nats.installed(
                    api,
                    self.makeway_namespace,
                    reads_login=not (self.nats_creds or self.nats_nkey),
                    reads_tls=not (self.nats_tls_ca or self.nats_tls_cert),
                )
        except ConfigurationError as error:
            if self.kubeconfig or self.context or os.environ.get("KUBECONFIG"):
                raise
            found = replace(connect_nats.USUAL, trouble=str(error))
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            raise MayNotRead(error.status, error.reason, error.message) from error
        return replace(found, prefix=self.subject_prefix or found.prefix)

    def namespace(self, given: str = "") -> str:
        """The namespace of a pod that was named: as given, else the context's, else default.

        Raises:
            ConfigurationError: no usable kubeconfig.
        """
        return given or context_namespace(self.kubeconfig, self.context)


def _installation(name: str, options: dict[str, Any]) -> Installation:
    """Take the shared options out of a command's. What `Installation` has every command that connects has."""
    found = taken(Installation, options, name=name)
    if found.subject_prefix is not None:
        try:
            Subjects(found.subject_prefix)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--subject-prefix") from error
    return replace(found, nats_url=found.nats_url or None)


def installation_of(options: Mapping[str, Any]) -> Installation:
    """Put together what a command line says so far, for completion; what it does not say is as by default."""
    given = {name: value for name, value in options.items() if value is not None}
    return _installation("completion", given)


Run = Callable[..., Coroutine[Any, Any, int | None]]


def connected(run: Run) -> Callable[..., None]:
    """Make a command of a coroutine function that takes an `Installation` and the command's own options."""
    name = run.__name__.rstrip("_").replace("_", "-")

    def start(**options: Any) -> None:
        installation = _installation(name, options)
        logs.configure("text", "error", name, identity())
        raise typer.Exit(ended(run(installation, **options)) or 0)

    return with_options(start, run, parameters(Installation))


def ended(running: Coroutine[Any, Any, int | None]) -> int | None:
    """Run it to its end; what it raises ends the command as documented."""
    try:
        return asyncio.run(running)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except ApiUnavailable as error:
        configured = isinstance(error.__cause__, ConfigurationError)
        fail(f"{error}{'' if configured else _API_REMEDY}", UNREACHABLE)
    except BusAway as error:
        fail(f"{error}; does NATS run? `makeway check` says what does", UNREACHABLE)
    except (ConfigurationError, BusUnavailable, ConnectionLost) as error:
        fail(str(error), UNREACHABLE)
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            fail(f"the API server does not know who you are: {error.message}{_LOGIN_REMEDY}", UNREACHABLE)
        if error.status == HTTPStatus.FORBIDDEN:
            other = ", or give --nats-url and a login" if isinstance(error, MayNotRead) else ""
            fail(f"no permission: {error.message}; ask an administrator{other}", UNREACHABLE)
        fail(str(error))
    except (BusError, ValueError) as error:
        fail(str(error))
