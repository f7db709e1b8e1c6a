"""Members by a key that several of them may have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

K = TypeVar("K")
M = TypeVar("M")
V = TypeVar("V")

_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


class Index(dict[K, dict[M, V]]):
    """The members of each key, in the order in which they came, with a value each. O(1) a call."""

    def put(self, key: K, member: M, value: V) -> None:
        """Note a member, or its new value."""
        self.setdefault(key, {})[member] = value

    def discard(self, key: K, member: M) -> None:
        """Forget a member, if it is there; a key without members is forgotten."""
        members = self.get(key)
        if members is not None:
            members.pop(member, None)
            if not members:
                del self[key]

    def of(self, key: K) -> Mapping[M, V]:
        """Return the members of a key; they are live, and there may be none."""
        return self.get(key, _NONE)
