"""The commands that run a service: the options they share, and how each of them starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import typer
import uvloop

from makeway.bus.errors import BusError
from makeway.bus.exporting import exporting
from makeway.cli.errors import fail, needed
from makeway.cli.shared_options import parameters, taken, with_options
from makeway.runtime import logs
from makeway.runtime.kube import ApiError, ApiUnavailable, ConfigurationError
from makeway.runtime.process import identity
from makeway.runtime.settings import (
    ConfigSettings,
    KubeSettings,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    NatsSettings,
    OtlpEndpointOption,
    ServiceSettings,
    SignatureSettings,
)

_NATS, _CONFIG, _SIGNATURES = "nats_", "config_", "signatures_"
"""Before the names of options in a signature, where a command has options of its own."""


@dataclass(frozen=True, kw_only=True)
class _Process:
    listen: ListenOption
    otlp_endpoint: OtlpEndpointOption = ""
    log_format: LogFormatOption = "json"
    log_level: LogLevelOption = "info"


def _started(component: str, options: dict[str, Any]) -> ServiceSettings:
    """Set up logging, and put the shared options together. What is taken here every service has."""
    me, process = identity(), taken(_Process, options)
    logs.configure(process.log_format, process.log_level, component, me)
    return ServiceSettings(
        identity=me,
        nats=taken(NatsSettings, options, _NATS),
        kube=taken(KubeSettings, options),
        listen=process.listen,
        config=taken(ConfigSettings, options, _CONFIG),
        signatures=taken(SignatureSettings, options, _SIGNATURES),
        otlp_endpoint=process.otlp_endpoint,
    )


Run = Callable[..., Coroutine[Any, Any, int]]


def service(component: str, *, listen: str, traces: bool = False) -> Callable[[Run], Callable[..., None]]:
    """Make a command of a coroutine function that takes a `ServiceSettings` and the command's own options.

    `listen`: the default of `--listen`. `traces`: it may be told to send traces. The command ends with what
    the coroutine returns, or with 1 and one line on stderr where the service cannot start.
    """

    def command(run: Run) -> Callable[..., None]:
        process = [
            one.replace(default=listen) if one.name == "listen" else one
            for one in parameters(_Process)
            if traces or one.name != "otlp_endpoint"
        ]

        def start(**options: Any) -> None:
            started = _started(component, options)
            tracing_to = exporting(
                started.otlp_endpoint, service=f"makeway-{component}", instance=started.identity
            )
            try:
                with tracing_to, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    code = runner.run(run(started, **options))
            except ModuleNotFoundError as error:
                fail(needed(error, "--otlp-endpoint"))
            except (ConfigurationError, ApiError, ApiUnavailable, BusError, ValueError, OSError) as error:
                fail(str(error))
            raise typer.Exit(code)

        shared = (
            *parameters(NatsSettings, _NATS),
            *parameters(ConfigSettings, _CONFIG),
            *parameters(SignatureSettings, _SIGNATURES),
            *parameters(KubeSettings),
            *process,
        )
        return with_options(start, run, shared)

    return command
