"""Reading the keys of signatures: private ones from mounted files, public ones from ConfigMap `makeway-keys`.

Both are read again every `POLL_SECONDS`: a kubelet swaps mounted files, and the ConfigMap is one object, got
by name. What was good last counts until something good takes its place.

A new private key is taken once its public key has been in the ConfigMap for `KNOWN_POLLS` reads, so that all
others have read it too: until then the old one signs, and a rotation costs no message. Where the old one was
replaced, nothing is signed until then.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import structlog

from makeway.bus import metrics
from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.runtime.configmaps import read_configmap
from makeway.runtime.kube import ApiError, ApiUnavailable, Requests

POLL_SECONDS: Final = 5.0
"""Between two reads: how long after a change the old keys count."""

CONFIGMAP: Final = "makeway-keys"
"""Of the public keys."""

KNOWN_POLLS: Final = 3
"""So many reads in a row must show a public key before its private key signs in place of another."""

REPLACED_POLLS: Final = 2
"""The same, where the public key of the other one is gone."""

RETIRED_SECONDS: Final = 600.0
"""For how long after a public key was taken away what it signed is no forgery; a restart forgets it."""

_log = structlog.get_logger()


class KeysMissingError(Exception):
    """Signatures are required, and there are no keys yet; its text says which."""


class KeyRing:
    """Keeps the keys of one process's `Signatures`.

    `kinds`: what it signs. `directory`: of its private keys, `<kind>.pem` each; None where it signs nothing.
    `namespace`: of the ConfigMap with the public keys.
    """

    def __init__(
        self,
        api: Requests,
        signatures: Signatures,
        *,
        kinds: Sequence[SigningKind],
        directory: Path | None,
        namespace: str,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._seconds = seconds
        self._signatures = signatures
        self._kinds = kinds
        self._directory = directory
        self._where = f"ConfigMap {namespace}/{CONFIGMAP}"
        self._configmap = namespace, CONFIGMAP
        self._files: dict[SigningKind, bytes] = {}
        self._trouble: dict[str, str] = {}
        self._read = False
        self._known: deque[PublicKeys] = deque(maxlen=KNOWN_POLLS)
        self._until: deque[tuple[float, PublicKeys]] = deque()  # until when the keys before counted

    def unhealthy(self) -> str:
        """Return why nothing can be signed or verified as is required; empty where it can.

        What was good last does: a ConfigMap that cannot be read any more is `trouble` alone.
        """
        if self._signatures.mode != "require":
            return ""
        missing = any(kind not in self._signatures.signing for kind in self._kinds)
        return self.trouble() if missing or not self._read or self._signatures.unknown_keys() else ""

    def trouble(self) -> str:
        """Return what is wrong with the keys; empty where nothing is."""
        unset = f"--signing-keys is not set, and {', '.join(self._kinds)} must be signed"
        required = self._signatures.mode == "require" and self._directory is None and self._kinds
        return "; ".join(filter(None, [unset if required else "", *self._trouble.values()]))

    async def read_first(self) -> None:
        """Read all keys.

        Raises:
            KeysMissingError: signatures are required, and a key is missing or cannot be read.
        """
        await self._poll()
        if self._signatures.mode != "require":
            return
        missing = any(kind not in self._signatures.signing for kind in self._kinds)
        if missing or not self._read:
            raise KeysMissingError(self.trouble())

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
        unknown = self._signatures.unknown_keys() if self._read else {}
        for kind in self._kinds:
            metrics.SIGNING_KEY_UNKNOWN.labels(str(kind)).set(kind in unknown)
        what = ", ".join(f"{kind} {key_id}" for kind, key_id in unknown.items())
        self._note(
            "own", f"{self._where} does not hold the key that this process signs with: {what}" if what else ""
        )
        self._signatures.trouble = self.trouble()

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
        if before is not None and self._is_early(kind, before.key_id, key.key_id):
            return f"{file}: key {key.key_id} is not in {self._where} for long enough, {before.key_id} signs"
        self._signatures.signing = {**self._signatures.signing, kind: key}
        self._files[kind] = content
        if before is not None:
            metrics.SIGNING_KEY.remove(str(kind), before.key_id)
        metrics.SIGNING_KEY.labels(str(kind), key.key_id).set(1)
        _log.info("signing_key_taken", kind=str(kind), key_id=key.key_id)
        return ""

    def _is_early(self, kind: SigningKind, before: str, new: str) -> bool:
        """Report whether some part may not know a new key yet, while all know the one before it."""
        if self._signatures.mode == "off" or not self._known:
            return False
        shown = [keys.by_kind.get(kind, {}) for keys in self._known]
        polls = KNOWN_POLLS if before in shown[-1] else REPLACED_POLLS
        return len(shown) < polls or not all(new in keys for keys in shown[-polls:])

    async def _poll_configmap(self) -> str:
        """Take the public keys where they have changed; return what is wrong with them."""
        try:
            if (found := await read_configmap(self._api, *self._configmap)) is None:
                return f"{self._where} is missing"
            keys = PublicKeys.parse(found.data or {})
        except (ApiError, ApiUnavailable, msgspec.DecodeError) as error:
            return str(error)
        except ValueError as error:
            return f"{self._where}: {error}"
        now = self._seconds()
        if keys.ids() != self._signatures.public.ids() or not self._read:
            _log.info("public_keys_taken", keys=keys.ids())
            if self._read:
                self._until.append((now, self._signatures.public))
        while self._until and now - self._until[0][0] > RETIRED_SECONDS:
            self._until.popleft()
        self._signatures.retired = tuple(before for _, before in self._until)
        self._signatures.public = keys
        self._known.append(keys)
        self._read = True
        return ""
