"""Making the Secrets of an installation, and making again what is lost: for `makeway streams`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import structlog

from makeway.cli.keys.making import AUTHORITY, SecretContents, WantedSecrets, contents, login, lost
from makeway.cli.keys.stores import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    PUBLISHED_AT,
    SECRETS,
    UNREADABLE,
    Data,
    KeyStore,
)
from makeway.core.k8s.times import api_time
from makeway.runtime.key_ring import CONFIGMAP
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.settings import NatsSettings

MADE_AGAIN: Final = "makeway.dev/made-again"
"""Annotation: when a Secret was made that others of the installation had outlived."""

_NOTE: Final = 200
"""Characters of an annotation."""

_LOOK_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 2.0
_USER: Final = "streams"

_log = structlog.get_logger()


@dataclass
class SecretsKeeper:
    """Keeps what is wanted there. A write fails (409) where the object has changed since it was read."""

    store: KeyStore
    wanted: WantedSecrets
    _told: dict[str, str] = field(default_factory=dict)

    async def begin(self) -> SecretContents:
        """Make what is missing, again and again until the keeper's own login is there."""
        while True:
            made = await self._attempt()
            if made is not None and (not self.wanted.users or login(_USER) in made.secrets):
                return made
            await asyncio.sleep(_RETRY_SECONDS)

    async def keep(self, found: Callable[[SecretContents], object]) -> NoReturn:
        """Look every 10 s, and make what is missing; `found` is called with all that is there then."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if (made := await self._attempt()) is not None:
                found(made)

    async def _attempt(self) -> SecretContents | None:
        try:
            return await self.ensure(datetime.now(UTC))
        except ApiUnavailable as error:
            _log.warning("secrets_awaited", error=str(error))
            return None

    async def ensure(self, now: datetime) -> SecretContents:
        """Make what is missing once. What cannot be read or written is named and left; the rest is made.

        Raises:
            ApiUnavailable: the API server does not answer.
        """
        found = await self._read_all()
        made = contents(self.wanted, found, now)
        refused: dict[str, str] = {}
        # Public keys first: what a part signs with counts from its first message on.
        if changed := [name for name, pem in made.public.items() if pem != found.public.get(name)]:
            try:
                await self.store.write(CONFIGMAP, made.public, {PUBLISHED_AT: api_time(now)})
                _log.info("keys_published", kinds=sorted(changed))
            except ApiError as error:
                refused[CONFIGMAP] = str(error)
        lost_ones = lost(self.wanted, found)
        left = set(SECRETS.values()) if CONFIGMAP in refused else set()
        for name in self.wanted.names:
            if name in left:
                continue
            notes = {UNREADABLE: made.unreadable[name][:_NOTE]} if name in made.unreadable else {}
            notes |= {MADE_AGAIN: api_time(now)} if name in lost_ones else {}
            try:
                if await self.store.write(name, made.secrets.get(name), notes):
                    _log.info("secret_written", name=name)
            except ApiError as error:
                refused[name] = str(error)
                if name == AUTHORITY and name in made.secrets:
                    # The next look issues by another one: nothing is stored of what this one has issued.
                    left |= set(self.wanted.issued)
        self._tell({**refused, **made.unreadable})
        return replace(made, secrets=_stored(made.secrets, found.secrets, left | set(refused)))

    def _tell(self, trouble: Mapping[str, str]) -> None:
        """Log what is wrong where that is something else than at the last look."""
        for name, why in trouble.items():
            if why != self._told.get(name):
                _log.warning("secret_left", name=name, error=why)
        self._told = dict(trouble)

    async def _read_all(self) -> SecretContents:
        data: dict[str, Data] = {}
        unreadable: dict[str, str] = {}
        own: set[str] = set()
        for name in (*((CONFIGMAP,) if self.wanted.signs else ()), *self.wanted.names):
            try:
                if (found := await self.store.read(name)) is not None:
                    data[name] = found
            except (ApiError, ValueError) as error:
                unreadable[name] = str(error)
            else:
                if self.store.noted(name, "labels").get(MANAGED_BY_LABEL) == MANAGED_BY:
                    own.add(name)
        public = data.pop(CONFIGMAP, {})
        return SecretContents(data, public, unreadable, frozenset(own))


def _stored(made: Mapping[str, Data], found: Mapping[str, Data], left: Container[str]) -> dict[str, Data]:
    """Return what the Secrets hold, of which some were left as they were found. Pure."""
    known = {name: found.get(name, {}) if name in left else data for name, data in made.items()}
    return {name: data for name, data in known.items() if data}


def written_login(nats: NatsSettings, made: SecretContents, directory: Path) -> NatsSettings:
    """Write the streams' own login into a directory, and return the settings that use it.

    Certificates that are configured are used in place of those that are made.
    """
    data = made.secrets.get(login(_USER))
    if data is None:
        return nats
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {name: directory / name for name in ("password", "ca.crt", "tls.crt", "tls.key") if name in data}
    for name, path in files.items():
        path.touch(mode=0o600)
        if path.read_text() != data[name]:
            path.write_text(data[name])
    return replace(
        nats,
        user=_USER,
        password_file=files["password"],
        tls_ca=nats.tls_ca or files.get("ca.crt"),
        tls_cert=nats.tls_cert or files.get("tls.crt"),
        tls_key=nats.tls_key or files.get("tls.key"),
    )
