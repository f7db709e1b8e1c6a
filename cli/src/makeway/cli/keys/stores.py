"""Where keys are kept: private ones in a Secret a part, public ones in a ConfigMap."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

import msgspec

from makeway.bus.signing.keys import MAX_PUBLIC_KEYS, PublicKeys, SigningKey, SigningKind
from makeway.core.k8s.objects import Metadata
from makeway.core.k8s.times import api_time
from makeway.runtime.key_ring import CONFIGMAP
from makeway.runtime.kube import MERGE_PATCH, Api, ApiError

PLANNER: Final = "makeway-signing-planner"
SECRETS: Final[Mapping[SigningKind, str]] = {
    SigningKind.ORDER: PLANNER,
    SigningKind.CONTROL: PLANNER,
    SigningKind.OUTCOME: "makeway-signing-evictor",
}
"""The Secret of the part that signs a kind. No part sees another's."""

PUBLISHED_AT: Final = "makeway.dev/keys-published-at"
"""Annotation of the ConfigMap: when the last public key was added."""

OUTSIDE: Final = "makeway.dev/private-keys-outside"
"""Annotation of the ConfigMap: "true" where the private keys are kept in no Secret."""

READ_WITHIN: Final = timedelta(minutes=15)
"""How long after its key was followed by another a message may still be read."""

_END: Final = "-----END PUBLIC KEY-----"
_LABELS: Final = {"app.kubernetes.io/name": "makeway", "app.kubernetes.io/part-of": "makeway"}


class _Stored(msgspec.Struct):
    """A Secret or a ConfigMap."""

    metadata: Metadata
    data: dict[str, str] | None = None


@dataclass(frozen=True)
class KindKeys:
    """The keys of one kind as they are stored.

    current: the private key in use; None where there is none. public: in PEM, by key id. unreadable: which
    entry is no key, and why; empty where all can be read.
    """

    kind: SigningKind
    current: SigningKey | None = None
    public: Mapping[str, str] = field(default_factory=dict)
    unreadable: str = ""

    @property
    def complete(self) -> bool:
        """Whether what is signed verifies."""
        return self.current is not None and self.current.key_id in self.public

    @property
    def absent(self) -> bool:
        """Whether nothing of the kind is there, as of a part that does not run."""
        return self.current is None and not self.public and not self.unreadable

    @property
    def in_use(self) -> dict[str, str]:
        """The public key of the key in use; none where it does not count."""
        return {
            key_id: pem
            for key_id, pem in self.public.items()
            if self.current is not None and key_id == self.current.key_id
        }

    def refuses_another(self) -> str:
        """Return why no second public key may be published; empty where one may."""
        if self.current is None:
            return f"{self.kind}: there is no private key; see makeway keys new --replace"
        if not self.complete:
            return (
                f"{self.kind}: key {self.current.key_id} is in use and not among the public keys; "
                "see makeway keys new --replace"
            )
        if len(self.public) >= MAX_PUBLIC_KEYS:
            return (
                f"{self.kind}: there are {len(self.public)} public keys already; "
                "end the rotation before with makeway keys rotate --finish"
            )
        return ""


class StoredKeys:
    """The keys of an installation. A write fails (409) where its object has changed since it was read.

    What reads or writes raises ApiError and ApiUnavailable; what writes also ValueError where the namespace
    does not exist.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._namespace = namespace
        self._core = api.core
        self._call = api.call
        self._seen: dict[str, Metadata] = {}

    @property
    def published_at(self) -> datetime | None:
        """When the last public key was added, as far as that is noted."""
        try:
            return datetime.fromisoformat(self._noted[PUBLISHED_AT])
        except (KeyError, ValueError):
            return None

    @property
    def outside(self) -> bool:
        """Whether it is noted that the private keys are kept in no Secret."""
        return self._noted.get(OUTSIDE) == "true"

    @property
    def _noted(self) -> Mapping[str, str]:
        return (self._seen[CONFIGMAP].annotations if CONFIGMAP in self._seen else None) or {}

    async def read(self) -> list[KindKeys] | None:
        """Return the keys of all kinds; None where there are none, and no ConfigMap of them."""
        stored = await self._get(self._core.read_namespaced_config_map, CONFIGMAP)
        data = {
            name: await self._get(self._core.read_namespaced_secret, name)
            for name in dict.fromkeys(SECRETS.values())
        }
        keys = [self._of_kind(kind, data[SECRETS[kind]], stored) for kind in SigningKind]
        return keys if CONFIGMAP in self._seen or not all(one.absent for one in keys) else None

    async def publish(self, changed: Mapping[SigningKind, Mapping[str, str]], now: datetime | None) -> None:
        """Store the public keys of some kinds. `now`: None where none is added."""
        if not changed:
            return
        manifest = configmap(self._namespace, changed, now)
        await self._put(
            manifest, self._core.create_namespaced_config_map, self._core.patch_namespaced_config_map
        )

    async def put(self, fresh: Mapping[SigningKind, SigningKey]) -> None:
        """Store private keys in use."""
        for manifest in secrets(self._namespace, fresh):
            await self._put(manifest, self._core.create_namespaced_secret, self._core.patch_namespaced_secret)

    async def _put(
        self,
        manifest: dict[str, Any],
        create: Callable[..., Awaitable[Any]],
        patch: Callable[..., Awaitable[Any]],
    ) -> None:
        name = manifest["metadata"]["name"]
        try:
            if (seen := self._seen.get(name)) is None:
                answer = await self._call(create, self._namespace, manifest)
            else:
                noted = manifest["metadata"].get("annotations", {})
                metadata = {"resourceVersion": seen.resource_version, "annotations": noted}
                body = {"metadata": metadata, "data": manifest["data"]}
                answer = await self._call(patch, name, self._namespace, body, _content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise ValueError(f"there is no namespace {self._namespace}") from error
            raise
        self._seen[name] = msgspec.json.decode(answer, type=_Stored).metadata

    async def _get(self, read: Callable[..., Awaitable[Any]], name: str) -> dict[str, str]:
        try:
            found = msgspec.json.decode(await self._call(read, name, self._namespace), type=_Stored)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise
        self._seen[name] = found.metadata
        return found.data or {}

    def _of_kind(self, kind: SigningKind, secret: Mapping[str, str], stored: Mapping[str, str]) -> KindKeys:
        name, current, public, trouble = f"{kind}.pem", None, dict[str, str](), []
        try:
            if name in secret:
                current = SigningKey.from_pem(b64decode(secret[name], validate=True))
        except ValueError as error:
            trouble = [f"Secret {self._namespace}/{SECRETS[kind]}: {name}: {error}"]
        try:
            public = by_key_id({name: stored.get(name, "")}, f"ConfigMap {self._namespace}/{CONFIGMAP}")[kind]
        except ValueError as error:
            trouble.append(str(error))
        return KindKeys(kind, current, public, "; ".join(trouble))


def unreadable(found: Iterable[KindKeys]) -> tuple[()] | tuple[str, str]:
    """Return which entries are no keys, and what to do; empty where all can be read. Pure."""
    broken = [one for one in found if one.unreadable]
    if not broken:
        return ()
    kinds = "".join(f" --kind {one.kind}" for one in broken)
    remedy = f"restore what was there, or make new keys with makeway keys new --replace{kinds}"
    return "; ".join(one.unreadable for one in broken), remedy


def by_key_id(data: Mapping[str, str], source: str) -> dict[SigningKind, dict[str, str]]:
    """Return the public keys in PEM by kind and key id, in their order. Pure.

    Raises:
        ValueError: an entry that is no key, or too many of them.
    """
    try:
        PublicKeys.parse(data)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    found: dict[SigningKind, dict[str, str]] = {}
    for kind in SigningKind:
        blocks = [one.strip() for one in data.get(f"{kind}.pem", "").split(_END)]
        pems = [f"{one}\n{_END}\n" for one in blocks if one]
        found[kind] = {next(iter(PublicKeys.parse({f"{kind}.pem": pem}).by_kind[kind])): pem for pem in pems}
    return found


def secrets(namespace: str, keys: Mapping[SigningKind, SigningKey]) -> list[dict[str, Any]]:
    """Return the manifests of the Secrets that hold private keys. Pure."""
    data: dict[str, dict[str, str]] = {}
    for kind, key in keys.items():
        data.setdefault(SECRETS[kind], {})[f"{kind}.pem"] = b64encode(key.to_pem()).decode("ascii")
    return [
        {**_manifest("Secret", namespace, name), "type": "Opaque", "data": held}
        for name, held in data.items()
    ]


def configmap(
    namespace: str, keys: Mapping[SigningKind, Mapping[str, str]], now: datetime | None
) -> dict[str, Any]:
    """Return the manifest of the public keys' ConfigMap; `now`: as of `StoredKeys.publish`. Pure."""
    manifest = _manifest("ConfigMap", namespace, CONFIGMAP)
    if now is not None:
        manifest["metadata"]["annotations"] = {PUBLISHED_AT: api_time(now)}
    return {**manifest, "data": {f"{kind}.pem": "".join(of_kind.values()) for kind, of_kind in keys.items()}}


def _manifest(kind: str, namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": dict(_LABELS)}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
