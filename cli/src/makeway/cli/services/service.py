"""The commands that run a service: the options they share, and how each of them starts and ends."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import typer

from makeway.bus.errors import BusError
from makeway.bus.exporting import exporting
from makeway.cli.errors import fail
from makeway.cli.extras import needed
from makeway.cli.nats_options import NATS_PARAMETERS, taken_nats
from makeway.cli.shared_options import with_options
from makeway.runtime import logs
from makeway.runtime.kube import ApiError, ApiUnavailable, ConfigurationError
from makeway.runtime.process import identity
from makeway.runtime.settings import (
    ConfigNamespaceOption,
    ConfigSettings,
    ContextOption,
    KeysConfigMapOption,
    KubeconfigOption,
    KubeSettings,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    NatsSettings,
    OtlpEndpointOption,
    PolicyConfigMapOption,
    PolicyFileOption,
    ServiceSettings,
    SignatureSettings,
    SignaturesOption,
    SigningKeysOption,
)

_CONFIG = ConfigSettings()
_SIGNATURES = SignatureSettings()


def _shared(
    *,
    config_namespace: ConfigNamespaceOption = _CONFIG.namespace,
    policy_configmap: PolicyConfigMapOption = _CONFIG.policy_configmap,
    policy_file: PolicyFileOption = _CONFIG.policy_file,
    signatures: SignaturesOption = _SIGNATURES.mode,
    signing_keys: SigningKeysOption = None,
    keys_configmap: KeysConfigMapOption = _SIGNATURES.keys_configmap,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    listen: ListenOption,
    otlp_endpoint: OtlpEndpointOption = "",
    log_format: LogFormatOption = "json",
    log_level: LogLevelOption = "info",
    component: str,
    nats: NatsSettings,
) -> ServiceSettings:
    """Set up logging, and put the shared options together. What is declared here every service has."""
    me = identity()
    logs.configure(log_format, log_level, component, me)
    return ServiceSettings(
        identity=me,
        nats=nats,
        kube=KubeSettings(kubeconfig=kubeconfig, context=context),
        listen=listen,
        config=ConfigSettings(
            namespace=config_namespace, policy_configmap=policy_configmap, policy_file=policy_file
        ),
        signatures=SignatureSettings(
            mode=signatures, signing_keys=signing_keys, keys_configmap=keys_configmap
        ),
        otlp_endpoint=otlp_endpoint,
    )


Run = Callable[..., Coroutine[Any, Any, int]]


def service(component: str, *, listen: str, traces: bool = False) -> Callable[[Run], Callable[..., None]]:
    """Make a command of a coroutine function that takes a `ServiceSettings` and the command's own options.

    `listen`: the default of `--listen`. `traces`: it may be told to send traces. The command ends with what
    the coroutine returns, or with 1 and one line on stderr where the service cannot start.
    """
    shared = inspect.signature(_shared, eval_str=True).parameters

    def command(run: Run) -> Callable[..., None]:
        common = [
            one.replace(default=listen) if name == "listen" else one
            for name, one in shared.items()
            if name not in ("component", "nats") and (traces or name != "otlp_endpoint")
        ]

        def start(**options: Any) -> None:
            nats = taken_nats(options)
            said = {one.name: options.pop(one.name) for one in common}
            started = _shared(component=component, nats=nats, **said)
            tracing_to = exporting(
                started.otlp_endpoint, service=f"makeway-{component}", instance=started.identity
            )
            try:
                with tracing_to:
                    code = asyncio.run(run(started, **options))
            except ModuleNotFoundError as error:
                fail(needed(error, "--otlp-endpoint"))
            except (ConfigurationError, ApiError, ApiUnavailable, BusError, ValueError, OSError) as error:
                fail(str(error))
            raise typer.Exit(code)

        return with_options(start, run, [*NATS_PARAMETERS, *common])

    return command
