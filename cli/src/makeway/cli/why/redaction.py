"""What `makeway why` shows to a user who may not list pods everywhere: no name of another namespace.

It is for what a user sees on the way; who may read a stream of NATS may read every name in it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from makeway.cli.text import HIDDEN


class Redaction:
    """Hides names of other namespaces than one, as far as an answer names these namespaces."""

    def __init__(self, answer: Any, namespace: str) -> None:
        self._own = namespace
        names = {found for found in _namespaces(msgspec.to_builtins(answer)) if found not in ("", namespace)}
        self._foreign = names
        either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        named = rf"(?<![\w.-])(?:{either})/[\w.-]+|(?<=\bnamespace )(?:{either})(?![\w.-])"
        self._pattern = re.compile(named) if names else None

    def text(self, text: str) -> str:
        """Return a text without them."""
        return self._pattern.sub(HIDDEN, text) if self._pattern is not None else text

    def plain(self, value: Any) -> Any:
        """Return plain data without them, as it is printed. O(size)."""
        match value:
            case dict():
                hidden = value.get("namespace") in self._foreign
                return {
                    key: HIDDEN if hidden and key in ("namespace", "name", "uid") else self.plain(one)
                    for key, one in value.items()
                }
            case list() | tuple():
                return [self.plain(one) for one in value]
            case str():
                return self.text(value)
        return value


def _namespaces(value: Any) -> Iterator[str]:
    """Return the namespaces that plain data names."""
    match value:
        case dict():
            for key, one in value.items():
                if key == "namespace" and isinstance(one, str):
                    yield one
                else:
                    yield from _namespaces(one)
        case list() | tuple():
            for one in value:
                yield from _namespaces(one)
