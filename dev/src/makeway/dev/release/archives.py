"""Archives that come out the same wherever and whenever they are made."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A file of an archive. `executable`: who unpacks it may run it."""

    content: bytes
    executable: bool = False


def packed(members: Mapping[str, Member], epoch: int) -> bytes:
    """Return a .tar.gz: sorted by name, owned by root, every time the same.

    `members`: by path in the archive. `epoch`: the time of every file, in seconds since 1970.
    """
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, member in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(member.content)
            entry.mtime = epoch
            entry.mode = 0o755 if member.executable else 0o644
            archive.addfile(entry, io.BytesIO(member.content))
    zipped = io.BytesIO()
    # No name and no time in the header; the level decides the bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=zipped, compresslevel=9, mtime=0) as file:
        file.write(tarred.getvalue())
    return zipped.getvalue()
