"""TLS contexts whose files are read again when they change, so that no certificate outlives its renewal.

A certificate authority is rotated and client certificates are renewed under processes that run for months.
A new context is made when a file is another than before; connections that stand keep the one they were made
with. Files that cannot be used, such as half of a pair that is just being written, change nothing.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

POLL_SECONDS: Final = 30.0
"""Between two looks at the files: three calls of stat."""

_log = structlog.get_logger()

_Stamp = tuple[tuple[int, int, int] | None, ...]


class ReloadedContext:
    """One context, made again by `make` when any of `files` has changed.

    Raises what `make` raises at the start: OSError (ssl.SSLError is one), ValueError.
    """

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        files: Iterable[str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._files = tuple(file for file in files if file)
        self._clock = clock
        self._stamp = _stamp(self._files)
        self._context = make()
        self._looked = clock()

    def current(self) -> ssl.SSLContext:
        """Return the context; looks at the files where that was `POLL_SECONDS` ago."""
        if self._files and self._clock() - self._looked >= POLL_SECONDS:
            self._looked = self._clock()
            self._poll()
        return self._context

    def _poll(self) -> None:
        stamp = _stamp(self._files)
        if stamp == self._stamp:
            return
        try:
            context = self._make()
        except (OSError, ValueError) as error:
            _log.warning("certificates_unusable", files=self._files, error=str(error))
            return
        self._stamp, self._context = stamp, context
        _log.info("certificates_read_again", files=self._files)


def _stamp(files: Iterable[str]) -> _Stamp:
    """What tells a file from its successor; the kubelet changes a link, so links are followed."""
    return tuple(_one(file) for file in files)


def _one(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def load_certificate(context: ssl.SSLContext, certificate: Path | str, key: Path | str | None) -> None:
    """Have a context show a certificate. OpenSSL's own would ask for a pass phrase at the terminal.

    Raises:
        OSError (ssl.SSLError is one): files that cannot be used, such as a key with a pass phrase.
    """
    context.load_cert_chain(certificate, key, password=_no_pass_phrase)


def _no_pass_phrase() -> str:
    raise OSError("the key has a pass phrase, which is not asked for: give a key without one")
