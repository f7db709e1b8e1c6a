"""Where keys are kept: private ones in a Secret a part, public ones in a ConfigMap."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.core.k8s.objects import ConfigMap, Metadata
from makeway.core.k8s.times import api_time
from makeway.runtime.kube import MERGE_PATCH, Api, ApiError

CONFIGMAP: Final = "makeway-keys"
SECRETS: Final[Mapping[SigningKind, str]] = {
    SigningKind.ORDER: "makeway-signing-planner",
    SigningKind.CONTROL: "makeway-signing-planner",
    SigningKind.OUTCOME: "makeway-signing-evictor",
}
"""The Secret of the part that signs a kind. No part sees another's."""

_MADE: Final = "makeway.dev/made-"
_END: Final = "-----END PUBLIC KEY-----"
_LABELS: Final = {"app.kubernetes.io/name": "makeway", "app.kubernetes.io/part-of": "makeway"}


class _Secret(msgspec.Struct):
    metadata: Metadata
    data: dict[str, str] | None = None


class SecretKeys:
    """Private keys in a Secret. A write fails (409) where the Secret has changed since it was read."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace, self._name = namespace, name
        self._metadata: Metadata | None = None

    async def read(self, kind: SigningKind) -> SigningKey | None:
        """Return the key in use of a kind; None where there is none."""
        found = await self._get()
        self._metadata = None if found is None else found.metadata
        return self._key({} if found is None else found.data or {}, f"{kind}.pem")

    async def put(self, kind: SigningKind, key: SigningKey) -> None:
        """Store the key in use of a kind."""
        data = {f"{kind}.pem": encoded(key)}
        if self._metadata is None:
            answer = await created(self._api, secret(self._namespace, self._name, data))
        else:
            patch = {"metadata": {"resourceVersion": self._metadata.resource_version}, "data": data}
            write, where = self._api.core.patch_namespaced_secret, (self._name, self._namespace)
            answer = await self._api.call(write, *where, patch, _content_type=MERGE_PATCH)
        self._metadata = msgspec.json.decode(answer, type=_Secret).metadata

    def _key(self, data: Mapping[str, str], name: str) -> SigningKey | None:
        if name not in data:
            return None
        try:
            return SigningKey.from_pem(b64decode(data[name], validate=True))
        except (Base64Error, ValueError) as error:
            raise ValueError(f"Secret {self._namespace}/{self._name}: {name}: {error}") from error

    async def _get(self) -> _Secret | None:
        try:
            read = self._api.core.read_namespaced_secret
            body = await self._api.call(read, self._name, self._namespace)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return msgspec.json.decode(body, type=_Secret)


@dataclass(frozen=True)
class PublicState:
    """ConfigMap `makeway-keys` as it is. `version`: empty where there is none. `made`: by key id."""

    by_kind: Mapping[SigningKind, Mapping[str, str]] = field(default_factory=dict)
    version: str = ""
    made: Mapping[str, datetime] = field(default_factory=dict)
    created_at: datetime | None = None

    def made_at(self, key_id: str) -> datetime | None:
        """Return when a key was made: as noted, else not after the ConfigMap was."""
        return self.made.get(key_id, self.created_at)


async def public_state(api: Api, namespace: str) -> PublicState:
    """Read the public keys. Raises ApiError, ApiUnavailable, and ValueError where they cannot be read."""
    try:
        body = await api.call(api.core.read_namespaced_config_map, CONFIGMAP, namespace)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return PublicState()
        raise
    found = msgspec.json.decode(body, type=ConfigMap)
    try:
        by_kind = by_key_id(found.data or {})
    except ValueError as error:
        raise ValueError(f"ConfigMap {namespace}/{CONFIGMAP}: {error}") from error
    annotations = (found.metadata.annotations or {}).items()
    noted = {name.removeprefix(_MADE): _time(value) for name, value in annotations if name.startswith(_MADE)}
    return PublicState(
        by_kind,
        found.metadata.resource_version,
        {key_id: made for key_id, made in noted.items() if made is not None},
        found.metadata.creation_timestamp,
    )


async def put_public(
    api: Api,
    namespace: str,
    before: PublicState,
    changed: Mapping[SigningKind, Mapping[str, str]],
    now: datetime,
) -> None:
    """Store the public keys of some kinds; fails (409) where the ConfigMap has changed since `before`."""
    known = {one for keys in before.by_kind.values() for one in keys}
    kept = {one for keys in ({**before.by_kind, **changed}).values() for one in keys}
    notes: dict[str, str | None] = {f"{_MADE}{one}": api_time(now) for one in sorted(kept - known)}
    data = {f"{kind}.pem": "".join(keys.values()) for kind, keys in changed.items()}
    if not before.version:
        manifest = configmap(namespace, changed, now)
        await created(api, manifest)
        return
    notes |= {f"{_MADE}{one}": None for one in before.made if one not in kept}
    patch = {"metadata": {"resourceVersion": before.version, "annotations": notes}, "data": data}
    write = api.core.patch_namespaced_config_map
    await api.call(write, CONFIGMAP, namespace, patch, _content_type=MERGE_PATCH)


def by_key_id(data: Mapping[str, str]) -> dict[SigningKind, dict[str, str]]:
    """Return the public keys in PEM by kind and key id, in their order. Pure.

    Raises:
        ValueError: an entry that is no key, or too many of them.
    """
    PublicKeys.parse(data)
    found: dict[SigningKind, dict[str, str]] = {}
    for kind in SigningKind:
        blocks = [one.strip() for one in data.get(f"{kind}.pem", "").split(_END)]
        pems = [f"{one}\n{_END}\n" for one in blocks if one]
        found[kind] = {next(iter(PublicKeys.parse({f"{kind}.pem": pem}).by_kind[kind])): pem for pem in pems}
    return found


def secret(namespace: str, name: str, data: Mapping[str, str]) -> dict[str, Any]:
    """Return a Secret's manifest. Pure."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(_LABELS)},
        "type": "Opaque",
        "data": dict(data),
    }


def configmap(namespace: str, keys: Mapping[SigningKind, Mapping[str, str]], now: datetime) -> dict[str, Any]:
    """Return the manifest of the public keys' ConfigMap. Pure."""
    made = {f"{_MADE}{one}": api_time(now) for of_kind in keys.values() for one in of_kind}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGMAP, "namespace": namespace, "labels": dict(_LABELS), "annotations": made},
        "data": {f"{kind}.pem": "".join(of_kind.values()) for kind, of_kind in keys.items()},
    }


def encoded(key: SigningKey) -> str:
    """Return a private key as a Secret holds it."""
    return b64encode(key.to_pem()).decode("ascii")


async def created(api: Api, manifest: dict[str, Any]) -> bytes:
    """Create a Secret or a ConfigMap.

    Raises:
        ApiError, ApiUnavailable: it was not created, or that is not known.
        ValueError: its namespace does not exist.
    """
    namespace = manifest["metadata"]["namespace"]
    is_secret = manifest["kind"] == "Secret"
    create = api.core.create_namespaced_secret if is_secret else api.core.create_namespaced_config_map
    try:
        return await api.call(create, namespace, manifest)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise ValueError(f"there is no namespace {namespace}") from error
        raise


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
