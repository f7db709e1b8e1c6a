"""Making the Secrets of an installation, and making again what is lost: for `makeway streams`."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import structlog

from makeway.cli.keys.making import AUTHORITY, Data, SecretContents, WantedSecrets, contents, login, lost
from makeway.cli.keys.stores import PUBLISHED_AT, SECRETS
from makeway.core.k8s.times import api_time
from makeway.runtime.key_ring import CONFIGMAP
from makeway.runtime.kube import MERGE_PATCH, Api, ApiError, ApiUnavailable
from makeway.runtime.settings import NatsSettings

MADE_AGAIN: Final = "makeway.dev/made-again"
"""Annotation: when a Secret was made that others of the installation had outlived."""
UNREADABLE: Final = "makeway.dev/unreadable"
"""Annotation: why a Secret cannot be read. It goes when the Secret can be."""
MANAGED_BY: Final = "makeway"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
LABELS: Final = {
    "app.kubernetes.io/name": "makeway",
    "app.kubernetes.io/part-of": "makeway",
    MANAGED_BY_LABEL: MANAGED_BY,
}

_KEPT_BY_HELM: Final = {"helm.sh/resource-policy": "keep"}
"""Annotation of what is made: else Helm deletes it where a release before had rendered one of its name."""

_NOTE: Final = 200
"""Characters of an annotation."""

_LOOK_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 2.0
_USER: Final = "streams"

_log = structlog.get_logger()


@dataclass
class SecretsKeeper:
    """Keeps what is wanted there. A write fails (409) where the object has changed since it was read."""

    api: Api
    wanted: WantedSecrets
    _found: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        if changed := {name: pem for name, pem in made.public.items() if pem != found.public.get(name)}:
            try:
                await self._publish(changed, now)
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
                await self._write(name, made.secrets.get(name), notes)
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
        core, public, data = self.api.core, Data(), {}
        unreadable = {}
        if self.wanted.signs:
            try:
                public = await self._read(core.read_namespaced_config_map, CONFIGMAP) or {}
            except ApiError as error:
                unreadable[CONFIGMAP] = str(error)
        for name in self.wanted.names:
            try:
                found = await self._read(core.read_namespaced_secret, name)
                if found is not None:
                    data[name] = {key: b64decode(value).decode() for key, value in found.items()}
            except (ApiError, ValueError) as error:
                unreadable[name] = str(error)
        labels = {name: self._found[name]["metadata"].get("labels") or {} for name in data}
        own = {name for name, one in labels.items() if one.get(MANAGED_BY_LABEL) == MANAGED_BY}
        return SecretContents(data, public, unreadable, frozenset(own))

    async def _publish(self, changed: Data, now: datetime) -> None:
        core, namespace = self.api.core, self.wanted.namespace
        metadata: dict[str, Any] = {"annotations": {PUBLISHED_AT: api_time(now)}}
        if (found := self._found.get(CONFIGMAP)) is not None:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
            patch = {"metadata": metadata, "data": changed}
            write = core.patch_namespaced_config_map
            await self.api.call(write, CONFIGMAP, namespace, patch, _content_type=MERGE_PATCH)
        else:
            metadata |= {"name": CONFIGMAP, "namespace": namespace, "labels": LABELS}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": changed}
            await self.api.call(core.create_namespaced_config_map, namespace, body)
        _log.info("keys_published", kinds=sorted(changed))

    async def _read(self, operation: Any, name: str) -> Data | None:
        self._found.pop(name, None)
        try:
            body = await self.api.call(operation, name, self.wanted.namespace)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        self._found[name] = found = msgspec.json.decode(body, type=dict[str, Any])
        return dict(found.get("data") or {})

    async def _write(self, name: str, data: Data | None, notes: Mapping[str, str]) -> None:
        """Store a Secret where it is another, or has other notes. `data`: None leaves what it holds.

        None is made that would hold nothing: pods wait for it.
        """
        core, namespace, found = self.api.core, self.wanted.namespace, self._found.get(name)
        coded = {key: b64encode(text.encode()).decode("ascii") for key, text in (data or {}).items()}
        if found is not None:
            metadata, held = found["metadata"], found.get("data") or {}
            before = metadata.get("annotations") or {}
            after = {**{key: text for key, text in before.items() if key != UNREADABLE}, **notes}
            coded = held if data is None else coded
            if (coded, after) != (held, before):
                body = {**found, "data": coded, "metadata": {**metadata, "annotations": after}}
                await self.api.call(core.replace_namespaced_secret, name, namespace, body)
                _log.info("secret_completed", name=name)
        elif data:
            annotations = {**_KEPT_BY_HELM, **notes}
            metadata = {"name": name, "namespace": namespace, "labels": LABELS, "annotations": annotations}
            kind = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
            await self.api.call(
                core.create_namespaced_secret, namespace, {**kind, "metadata": metadata, "data": coded}
            )
            _log.info("secret_made", name=name)


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
