"""The brake: what stops makeway whatever the policy says, and whether there is one at all. Pure.

It is a ConfigMap of its own, `makeway-brake` in makeway's namespace, so that it can be set while the policy
is broken, missing or owned by something that would put its own text back. While it exists, mode `off` holds:
everywhere, or in the namespaces that it names. Deleting it releases the brake.

Planner, evictor, plugin and CLI read it by this module's rule, the plugin by a mirror of it in Go that is
tested with the same cases (`bus/testdata/brake/cases.json`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from makeway.core.policy.document import Policy
from makeway.core.text import one_line

CONFIGMAP: Final = "makeway-brake"

LONGEST_REASON: Final = 500
"""Characters of what people wrote that are read."""

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SEPARATORS: Final = re.compile(r"[\s,]+")


@dataclass(frozen=True)
class Brake:
    """What the ConfigMap says; `RELEASED` where there is none.

    namespaces: those whose preemptors are braked, where not `everywhere`. since, by, reason: as they were
    written when it was set, on one line. trouble: why it counts as set everywhere though that is not what
    it says.
    """

    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()
    since: str = ""
    by: str = ""
    reason: str = ""
    trouble: str = ""

    @property
    def engaged(self) -> bool:
        """Whether anything is braked."""
        return self.everywhere or bool(self.namespaces)

    def holds(self, namespace: str) -> bool:
        """Report whether the pods of a namespace are braked: as preemptors, and as victims of a quota."""
        return self.everywhere or namespace in self.namespaces

    def scope(self) -> str:
        """Return what is braked, the same text from every component; empty where nothing is."""
        if self.everywhere:
            return "everywhere"
        return ", ".join(sorted(self.namespaces))

    def describe(self) -> str:
        """Return a sentence about it for a person; empty where nothing is braked."""
        if not self.engaged:
            return ""
        parts = [f"the brake is set {'everywhere' if self.everywhere else f'for {self.scope()}'}"]
        parts += [f"since {self.since}"] if self.since else []
        parts += [f"by {self.by}"] if self.by else []
        said = " ".join(parts)
        said += f": {self.reason}" if self.reason else ""
        return f"{said} ({self.trouble})" if self.trouble else said


RELEASED: Final = Brake()


def parse_brake(data: Mapping[str, str]) -> Brake:
    """Return what a ConfigMap that exists says. Whatever cannot be understood counts as set everywhere."""
    since, by, reason = (
        one_line(data.get(key, "").strip(), LONGEST_REASON) for key in ("since", "by", "reason")
    )
    mode = data.get("mode", "").strip()
    names = [name for name in _SEPARATORS.split(data.get("namespaces", "")) if name]
    wrong = next((name for name in names if not _NAMESPACE.fullmatch(name)), None)
    trouble = ""
    if mode != "off":
        said = one_line(mode, LONGEST_REASON)
        trouble = f"ConfigMap {CONFIGMAP} says mode {said!r}; only off is known, and deleting it releases it"
    elif wrong is not None:
        trouble = (
            f"ConfigMap {CONFIGMAP} names {one_line(wrong, LONGEST_REASON)!r}, which is no namespace's name"
        )
    return Brake(
        everywhere=bool(trouble) or not names,
        namespaces=frozenset() if trouble else frozenset(names),
        since=since,
        by=by,
        reason=reason,
        trouble=trouble,
    )


def data_of(brake: Brake) -> dict[str, str]:
    """Return what the ConfigMap of an engaged brake holds: always the same keys, so none is left over."""
    return {
        "mode": "off",
        "namespaces": "" if brake.everywhere else " ".join(sorted(brake.namespaces)),
        "since": brake.since,
        "by": brake.by,
        "reason": brake.reason,
    }


def braked(policy: Policy, brake: Brake) -> Policy:
    """Return the policy with mode `off` where the brake holds; all else stays, protection above all."""
    if brake.everywhere:
        return msgspec.structs.replace(policy, mode="off")
    if not brake.namespaces:
        return policy
    off = dict.fromkeys(sorted(brake.namespaces), "off")
    return msgspec.structs.replace(policy, namespace_modes={**policy.namespace_modes, **off})
