"""Programs from a mirror of what was built elsewhere, in place of building them: `MAKEWAY_DOWNLOADS`.

The variable names a directory behind http(s) and the SHA-256 of its index, `URL#sha256=DIGEST`. The index has
the digest of each program, and nothing else is taken. A program is found by the key of its build: that of
other sources or flags is never taken. What cannot be had is built.

`python -m makeway.dev.downloads DIRECTORY` fills such a directory from this machine's cache.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import re
import shutil
import time
import urllib.request
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urldefrag, urlsplit

from makeway.bus.reasons import reason_of
from makeway.dev.binaries import ALL, KUBE_SCHEDULER, Binary, cache_key
from makeway.dev.errors import DevError
from makeway.dev.paths import cache_directory

VARIABLE: Final = "MAKEWAY_DOWNLOADS"
INDEX: Final = "programs.sha256"

_SILENCE_SECONDS: Final = 10.0
"""A server that sends nothing for so long is given up."""
_LONGEST_SECONDS: Final = 300.0
"""For one program."""
_INDEX_BYTES: Final = 1 << 20
_PROGRAM_BYTES: Final = 1 << 30
_PIECE: Final = 1 << 20


class NotFetchedError(Exception):
    """Why a program cannot be had from the mirror, in a few words."""


@dataclass(frozen=True)
class Mirror:
    """Where programs are. `digests`: SHA-256 by file name. `silence_seconds`: as the constant."""

    url: str
    digests: Mapping[str, str] = field(default_factory=dict)
    silence_seconds: float = _SILENCE_SECONDS

    def has(self, binary: Binary, key: str) -> bool:
        """Report whether the index has a program."""
        return file_name(binary, key) in self.digests

    def fetch(self, binary: Binary, key: str, target: Path) -> None:
        """Write a program that the index has to `target`.

        Raises:
            NotFetchedError: it is not there, not whole, not the one that the index states, or does not come.
        """
        name = file_name(binary, key)
        packed = target.with_suffix(".gz")
        with packed.open("wb") as file:
            digest = hashlib.sha256()
            for piece in _pieces(f"{self.url}/{name}", self.silence_seconds, _PROGRAM_BYTES):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != self.digests[name]:
            packed.unlink()
            raise NotFetchedError(f"{name} has another digest than its index states")
        try:
            with gzip.open(packed) as source, target.open("wb") as program:
                shutil.copyfileobj(source, program, _PIECE)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise NotFetchedError(f"{name} is not packed by gzip: {error}") from error
        packed.unlink()
        target.chmod(0o755)


def named_mirror(
    environment: Mapping[str, str] = os.environ, silence: float = _SILENCE_SECONDS
) -> Mirror | None:
    """Return the mirror that the environment names, with its index; None where it names none.

    Raises:
        NotFetchedError: the index cannot be had or is another one.
        DevError: the variable is no URL with a digest, which no build mends.
    """
    if not (text := environment.get(VARIABLE, "")):
        return None
    url, wanted = _parsed(text)
    index = b"".join(_pieces(f"{url}/{INDEX}", silence, _INDEX_BYTES))
    if hashlib.sha256(index).hexdigest() != wanted:
        raise NotFetchedError(f"{INDEX} has another digest than {VARIABLE} states")
    lines = (line.split() for line in index.decode("utf-8", "replace").splitlines())
    return Mirror(url, {words[1]: words[0] for words in lines if len(words) == 2}, silence)


def _parsed(text: str) -> tuple[str, str]:
    """Return the URL without its last slash, and the digest. Raises DevError."""
    try:
        url, digest = urldefrag(text)
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        why = "" if whole else "the URL is not http(s)://HOST/DIRECTORY"
    except ValueError as error:  # brackets, or a port that is no number
        why = str(error)
    if not why and not re.fullmatch(r"sha256=[0-9a-f]{64}", digest):
        why = "after # is no sha256= with 64 digits in hex"
    if why:
        form = "URL#sha256=DIGEST, as `python -m makeway.dev.downloads DIRECTORY` prints it"
        raise DevError(f"{VARIABLE} is {text!r}: {why}. It is {form}")
    return url.rstrip("/"), digest.removeprefix("sha256=")


def file_name(binary: Binary, key: str) -> str:
    """Return a program's name in a mirror."""
    return f"{binary.name}-{key}-{platform.system()}-{platform.machine()}.gz".lower()


def _pieces(url: str, silence: float, most: int) -> Iterable[bytes]:
    until, read = time.monotonic() + _LONGEST_SECONDS, 0
    try:
        with urllib.request.urlopen(url, timeout=silence) as answer:  # noqa: S310 - http(s) alone
            while piece := answer.read1(_PIECE):
                read += len(piece)
                if time.monotonic() > until or read > most:
                    raise NotFetchedError(f"{url}: more than is waited for")
                yield piece
            if (length := answer.headers.get("Content-Length")) is not None and int(length) != read:
                raise NotFetchedError(f"{url}: {read} of {length} bytes")
    except (OSError, HTTPException, ValueError) as error:  # a port or a length that is no number
        raise NotFetchedError(f"{url}: {reason_of(error)}") from error


def fill(directory: Path, binaries: Iterable[Binary], root: Path) -> str:
    """Put what the cache `root` has of these into a mirror's directory; return the index's digest."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for binary in binaries:
        key = cache_key(binary)
        built = root / f"{binary.name}-{key}" / binary.name
        if not built.exists():
            continue
        packed = directory / file_name(binary, key)
        packed.write_bytes(gzip.compress(built.read_bytes(), 6, mtime=0))
        lines.append(f"{hashlib.sha256(packed.read_bytes()).hexdigest()}  {packed.name}\n")
    index = "".join(sorted(lines, key=lambda line: line.split()[1])).encode()
    (directory / INDEX).write_bytes(index)
    return hashlib.sha256(index).hexdigest()


def main() -> None:
    """Fill a directory, and say what to set where it is served."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    digest = fill(parser.parse_args().directory, (*ALL, KUBE_SCHEDULER), cache_directory() / "bin")
    print(f"export {VARIABLE}=http://HOST/DIRECTORY#sha256={digest}")


if __name__ == "__main__":
    main()
