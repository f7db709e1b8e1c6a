"""The options by which a command that serves, or sets up, reaches NATS."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from makeway.cli.shared_options import with_options
from makeway.runtime.settings import (
    NatsCredsOption,
    NatsNkeyOption,
    NatsPasswordFileOption,
    NatsSettings,
    NatsTlsCaOption,
    NatsTlsCertOption,
    NatsTlsKeyOption,
    NatsUrlOption,
    NatsUserOption,
    SubjectPrefixOption,
)

_DEFAULT = NatsSettings()


def nats_settings(
    *,
    nats_url: NatsUrlOption = _DEFAULT.url,
    nats_creds: NatsCredsOption = _DEFAULT.creds,
    nats_nkey: NatsNkeyOption = _DEFAULT.nkey,
    nats_user: NatsUserOption = _DEFAULT.user,
    nats_password_file: NatsPasswordFileOption = _DEFAULT.password_file,
    nats_tls_ca: NatsTlsCaOption = _DEFAULT.tls_ca,
    nats_tls_cert: NatsTlsCertOption = _DEFAULT.tls_cert,
    nats_tls_key: NatsTlsKeyOption = _DEFAULT.tls_key,
    subject_prefix: SubjectPrefixOption = _DEFAULT.subject_prefix,
) -> NatsSettings:
    """Return the options put together."""
    return NatsSettings(
        url=nats_url,
        creds=nats_creds,
        nkey=nats_nkey,
        user=nats_user,
        password_file=nats_password_file,
        tls_ca=nats_tls_ca,
        tls_cert=nats_tls_cert,
        tls_key=nats_tls_key,
        subject_prefix=subject_prefix,
    )


NATS_PARAMETERS = tuple(inspect.signature(nats_settings, eval_str=True).parameters.values())
"""The options as a command's signature has them."""


def taken_nats(options: dict[str, Any]) -> NatsSettings:
    """Take these options out of all that a command was called with."""
    return nats_settings(**{one.name: options.pop(one.name) for one in NATS_PARAMETERS})


def with_nats(run: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes a `NatsSettings` and the command's own options."""

    def start(**options: Any) -> None:
        run(taken_nats(options), **options)

    return with_options(start, run, NATS_PARAMETERS)
