"""Reading the keys of signatures: private ones from mounted files, public ones from ConfigMap `makeway-keys`.

Both are read again every `POLL_SECONDS`: a kubelet swaps mounted files, and the ConfigMap is one object, got
by name. What was good last counts until something good takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn, Protocol

import msgspec
import structlog

from makeway.bus import metrics
from makeway.bus.signatures import Signatures
from makeway.bus.signing import PublicKeys, SigningKey, SigningKind
from makeway.core.k8s.objects import ConfigMap
from makeway.runtime.kube import ApiError, ApiUnavailable

POLL_SECONDS: Final = 5.0
"""Between two reads: how long after a change the old keys count."""

_READ_SECONDS: Final = 5.0

_log = structlog.get_logger()

_decode = msgspec.json.Decoder(ConfigMap).decode


class KeysMissingError(Exception):
    """Signatures are required, and there are no keys yet; its text says which."""


class KeysApi(Protocol):
    """What is used of `makeway.runtime.kube.Api`."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, timeout_seconds: float = 10.0
    ) -> bytes:
        """Send a request; raises ApiError or ApiUnavailable."""


class KeyRing:
    """Keeps the keys of one process's `Signatures`.

    `kinds`: what it signs. `directory`: of its private keys, `<kind>.pem` each; None where it signs nothing.
    `configmap`: of the public keys, in `namespace`.
    """

    def __init__(
        self,
        api: KeysApi,
        signatures: Signatures,
        *,
        kinds: Sequence[SigningKind],
        directory: Path | None,
        namespace: str,
        configmap: str,
    ) -> None:
        self._api = api
        self._signatures = signatures
        self._kinds = kinds
        self._directory = directory
        self._where = f"ConfigMap {namespace}/{configmap}"
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{configmap}"
        self._files: dict[SigningKind, bytes] = {}
        self._trouble: dict[str, str] = {}
        self._read = False

    def unhealthy(self) -> str:
        """Return what is wrong with the keys; empty where nothing is."""
        unknown = self._signatures.unknown_keys() if self._read else []
        others = [f"{self._where} does not hold the key that this process signs with: {', '.join(unknown)}"]
        return "; ".join([*filter(None, self._trouble.values()), *(others if unknown else [])])

    async def read_first(self) -> None:
        """Read all keys.

        Raises:
            KeysMissingError: signatures are required, and a key is missing or cannot be read.
        """
        await self._poll()
        if self._signatures.mode != "require":
            return
        missing = [str(kind) for kind in self._kinds if kind not in self._signatures.signing]
        if missing and self._directory is None:
            raise KeysMissingError(f"--signing-keys is not set, and {', '.join(missing)} must be signed")
        if missing or not self._read:
            raise KeysMissingError(self.unhealthy())

    async def keep_forever(self) -> NoReturn:
        """Read them again and again, until the process ends."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._poll()

    async def _poll(self) -> None:
        if self._directory is not None:
            for kind in self._kinds:
                self._note(str(kind), self._poll_file(kind, self._directory / f"{kind}.pem"))
        if self._signatures.mode != "off":
            self._note("public", await self._poll_configmap())

    def _note(self, what: str, trouble: str) -> None:
        if trouble and trouble != self._trouble.get(what):
            _log.warning("keys_unreadable", error=trouble)
        self._trouble[what] = trouble

    def _poll_file(self, kind: SigningKind, file: Path) -> str:
        """Take a private key where it has changed; return what is wrong with it."""
        try:
            content = file.read_bytes()
            if content == self._files.get(kind):
                return ""
            key = SigningKey.from_pem(content)
        except (OSError, ValueError) as error:
            return f"{file}: {error}"
        before = self._signatures.signing.get(kind)
        self._signatures.signing = {**self._signatures.signing, kind: key}
        self._files[kind] = content
        if before is not None:
            metrics.SIGNING_KEY.remove(str(kind), before.key_id)
        metrics.SIGNING_KEY.labels(str(kind), key.key_id).set(1)
        _log.info("signing_key_taken", kind=str(kind), key_id=key.key_id)
        return ""

    async def _poll_configmap(self) -> str:
        """Take the public keys where they have changed; return what is wrong with them."""
        try:
            answer = await self._api.request("GET", self._path, timeout_seconds=_READ_SECONDS)
            keys = PublicKeys.parse(_decode(answer).data or {})
        except ApiError as error:
            return f"{self._where} is missing" if error.status == HTTPStatus.NOT_FOUND else str(error)
        except (ApiUnavailable, msgspec.DecodeError) as error:
            return str(error)
        except ValueError as error:
            return f"{self._where}: {error}"
        if keys.ids() != self._signatures.public.ids() or not self._read:
            _log.info("public_keys_taken", keys=keys.ids())
        self._signatures.public = keys
        self._read = True
        return ""
