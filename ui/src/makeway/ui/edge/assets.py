"""The page's own files, read once: whatever a request names, no other file is opened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file: what it holds, of which type, and a tag that changes with it."""

    body: bytes
    content_type: str
    tag: str


def load_assets() -> Mapping[str, Asset]:
    """Return all files by their path below `static`."""
    return dict(_loaded(resources.files("makeway.ui") / "static", ""))


def _loaded(directory: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for one in directory.iterdir():
        name = f"{prefix}{one.name}"
        if one.is_dir():
            found += _loaded(one, f"{name}/")
        elif (content_type := _TYPES.get(name[name.rfind(".") :])) is not None:
            body = one.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found.append((name, Asset(body, content_type, tag)))
    return found
