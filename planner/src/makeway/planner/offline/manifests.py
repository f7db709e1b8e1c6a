"""A file of manifests as documents: YAML, or JSON documents one after the other. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

Manifest = dict[str, Any]
"""An object as YAML or JSON has it."""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod that is to be created. `source`: the file that asks for it.

    `stored`: `manifest` is what an API server would store; else defaults are filled in here. `refusal`: why
    it would store nothing, in its words. `note`: why it was not asked, where it could have been.
    """

    manifest: Manifest
    source: str
    stored: bool = False
    refusal: str = ""
    note: str = ""


_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"\s*")
_LOGS: Final = re.compile(r"^==== START logs .*?^==== END logs [^\n]*$", re.MULTILINE | re.DOTALL)
"""What `kubectl cluster-info dump` writes between its documents."""


class ManifestError(ValueError):
    """A file that does not hold pods, or not readable ones; says which document and what to do."""


class _Loader(yaml.CSafeLoader):
    """Safe YAML without dates: Kubernetes reads a time as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def documents(text: str, source: str) -> list[Manifest]:
    """Read all documents of a YAML or JSON text; empty ones are left out. Raises ManifestError."""
    try:
        found = _json_documents(text)
        if found is None:
            found = [one for one in yaml.load_all(text, _Loader) if one is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(f"{where}: not YAML: {problem}") from error
    for number, one in enumerate(found, 1):
        if not isinstance(one, dict):
            raise ManifestError(f"{source}: document {number} is {type(one).__name__}, no Kubernetes object")
    return found


def _json_documents(text: str) -> list[Any] | None:
    """Read JSON documents that follow one another; None where it is not that: a mapping of YAML may be."""
    if not text.lstrip().startswith("{"):
        return None
    text, at = _LOGS.sub("", text), 0
    found: list[Any] = []
    try:
        while (at := _SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr] # it always matches
            one, at = _DECODER.raw_decode(text, at)
            found.append(one)
    except (json.JSONDecodeError, RecursionError):
        return None
    return found
