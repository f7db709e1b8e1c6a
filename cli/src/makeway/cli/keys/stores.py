"""Where keys are kept: private ones in a Secret a part, public ones in a ConfigMap."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from makeway.bus.signing.keys import MAX_PUBLIC_KEYS, PublicKeys, SigningKey, SigningKind
from makeway.core.k8s.times import api_time
from makeway.runtime.key_ring import CONFIGMAP
from makeway.runtime.kube import MERGE_PATCH, Api, read_object

Data: TypeAlias = dict[str, str]
"""What a Secret or the ConfigMap holds, decoded."""

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
UNREADABLE: Final = "makeway.dev/unreadable"
"""Annotation: why a Secret cannot be read. It goes when the Secret can be."""

READ_WITHIN: Final = timedelta(minutes=15)
"""How long after its key was followed by another a message may still be read."""

MANAGED_BY: Final = "makeway"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
LABELS: Final = {
    "app.kubernetes.io/name": "makeway",
    "app.kubernetes.io/part-of": "makeway",
    MANAGED_BY_LABEL: MANAGED_BY,
}

_KEPT_BY_HELM: Final = {"helm.sh/resource-policy": "keep"}
"""Annotation of what is made: else Helm deletes it where a release before had rendered one of its name."""

_END: Final = "-----END PUBLIC KEY-----"


@dataclass
class KeyStore:
    """Secrets, and the ConfigMap of public keys. A write fails (409) where one has changed since it was read.

    What reads or writes raises ApiError and ApiUnavailable.
    """

    api: Api
    namespace: str
    _found: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def read(self, name: str) -> Data | None:
        """Return what is stored by a name; None where nothing is. Raises ValueError where it is no text."""
        self._found.pop(name, None)
        kind = "configmaps" if name == CONFIGMAP else "secrets"
        body = await read_object(self.api, f"/api/v1/namespaces/{self.namespace}/{kind}/{name}")
        if body is None:
            return None
        self._found[name] = msgspec.json.decode(body, type=dict[str, Any])
        return self.data(name, "strict")

    def holds(self, name: str) -> bool:
        """Report whether there was such an object when it was read."""
        return name in self._found

    def data(self, name: str, no_text: str = "replace") -> Data:
        """Return what was read; empty where nothing was there. `no_text`: as `errors` of bytes.decode."""
        held = self._found.get(name, {}).get("data") or {}
        return {
            key: text if name == CONFIGMAP else b64decode(text).decode(errors=no_text)
            for key, text in held.items()
        }

    def noted(self, name: str, what: str = "annotations") -> Mapping[str, str]:
        """Return the annotations, or the labels, of what was read."""
        return self._found.get(name, {}).get("metadata", {}).get(what) or {}

    async def write(self, name: str, data: Data | None, notes: Mapping[str, str]) -> bool:
        """Store an object where it is another, or has other notes; report whether it was written.

        `data`: None leaves what it holds. None is made that would hold nothing: pods wait for it.
        """
        core, found = self.api.core, self._found.get(name)
        if found is None:
            if not data:
                return False
            create = core.create_namespaced_config_map if name == CONFIGMAP else core.create_namespaced_secret
            answer = await self.api.call(create, self.namespace, manifest(self.namespace, name, data, notes))
        else:
            before, held = self.noted(name), found.get("data") or {}
            after = {**{key: text for key, text in before.items() if key != UNREADABLE}, **notes}
            coded = held if data is None else _coded(name, data)
            if (coded, after) == (held, before):
                return False
            metadata = {**found["metadata"], "annotations": after}
            body = {**found, "data": coded, "metadata": metadata}
            if name == CONFIGMAP:
                patch = core.patch_namespaced_config_map
                answer = await self.api.call(patch, name, self.namespace, body, _content_type=MERGE_PATCH)
            else:
                answer = await self.api.call(core.replace_namespaced_secret, name, self.namespace, body)
        self._found[name] = msgspec.json.decode(answer, type=dict[str, Any])
        return True

    async def put(self, keys: Mapping[SigningKind, SigningKey]) -> None:
        """Store private keys in use."""
        for name in dict.fromkeys(SECRETS[kind] for kind in keys):
            await self.write(name, {**self.data(name), **private(name, keys)}, {})

    async def publish(self, changed: Mapping[SigningKind, Iterable[str]], now: datetime | None) -> None:
        """Store the public keys, in PEM, of some kinds. `now`: None where none is added."""
        public = {f"{kind}.pem": "".join(pems) for kind, pems in changed.items()}
        notes = {} if now is None else {PUBLISHED_AT: api_time(now)}
        await self.write(CONFIGMAP, {**self.data(CONFIGMAP), **public}, notes)

    async def kinds(self) -> list[KindKeys]:
        """Read the keys of all kinds."""
        for name in (CONFIGMAP, *dict.fromkeys(SECRETS.values())):
            with suppress(ValueError):  # what is no text is no key, and named as that
                await self.read(name)
        return [self._of_kind(kind) for kind in SigningKind]

    def _of_kind(self, kind: SigningKind) -> KindKeys:
        name, current, public, trouble = f"{kind}.pem", None, dict[str, str](), []
        secret = self.data(SECRETS[kind])
        try:
            if name in secret:
                current = SigningKey.from_pem(secret[name].encode())
        except ValueError as error:
            trouble = [f"Secret {self.namespace}/{SECRETS[kind]}: {name}: {error}"]
        try:
            stored = {name: self.data(CONFIGMAP).get(name, "")}
            public = by_key_id(stored, f"ConfigMap {self.namespace}/{CONFIGMAP}")[kind]
        except ValueError as error:
            trouble.append(str(error))
        return KindKeys(kind, current, public, "; ".join(trouble))


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

    def refuses_another(self) -> str:
        """Return why no second public key may be published; empty where one may."""
        if self.current is None or not self.complete:
            return f"{self.kind}: no private key goes with the public ones; see makeway keys new --replace"
        if len(self.public) >= MAX_PUBLIC_KEYS:
            return (
                f"{self.kind}: there are {len(self.public)} public keys already; "
                "end the rotation before with makeway keys rotate --finish"
            )
        return ""


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


def private(name: str, keys: Mapping[SigningKind, SigningKey]) -> Data:
    """Return what a Secret holds of some keys. Pure."""
    return {f"{kind}.pem": key.to_pem().decode() for kind, key in keys.items() if SECRETS[kind] == name}


def manifest(namespace: str, name: str, data: Data, notes: Mapping[str, str]) -> dict[str, Any]:
    """Return a Secret, or the ConfigMap of public keys, as it is made. Pure."""
    metadata = {"name": name, "namespace": namespace, "labels": dict(LABELS)}
    if name == CONFIGMAP:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "annotations": dict(notes)},
            "data": data,
        }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {**metadata, "annotations": {**_KEPT_BY_HELM, **notes}},
        "data": _coded(name, data),
    }


def _coded(name: str, data: Data) -> Data:
    if name == CONFIGMAP:
        return data
    return {key: b64encode(text.encode()).decode("ascii") for key, text in data.items()}
