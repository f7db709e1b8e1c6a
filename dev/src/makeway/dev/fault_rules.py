"""Which requests a fault proxy spoils, and how. Pure: time and chance are given.

A rule matches requests of a component by method and path (regular expressions, the query is part of the
path), applies to the first `count` of them (with `each`, to the first `count` of every method and path), and
then with `probability`. Rules are asked in the order they were added; the first that applies is used.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Literal

import msgspec

Action = Literal["answer", "cut", "drop", "delay", "freeze", "skip", "close", "expire"]
WATCH_ACTIONS = ("freeze", "skip", "close", "expire")
"""Actions on the events of a watch, also of one that began before the rule was added."""

_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class FaultRule(msgspec.Struct, frozen=True, kw_only=True):
    """One fault.

    action: `answer`: the API server never sees the request, the answer has `status`; `cut`: the request is
        carried out, half of the answer's body comes, then the connection breaks; `drop`: carried out, no
        answer; `delay`: carried out `seconds` late. For the events of a watch that match `event`: `freeze`:
        no byte for `seconds`, then the connection breaks; `skip`: the event is left out; `close`: the watch
        ends in an orderly way before it; `expire`: an ERROR event with 410 comes in its place.
    retry_after: seconds for the Retry-After header of an `answer`; 0 for none.
    """

    component: str
    action: Action
    method: str = "[A-Z]+"
    path: str = ".*"
    event: str = ".*"
    status: int = 500
    retry_after: int = 0
    seconds: float = 0.0
    count: int = 1
    each: bool = False
    probability: float = 1.0


class Applied(msgspec.Struct, frozen=True):
    """A fault that was injected."""

    action: str
    component: str
    method: str
    path: str
    status: int = 0


class FaultRules:
    """The rules in force. `seed` makes their chances repeatable."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._rules: list[FaultRule] = []
        self._used: Counter[tuple[int, str]] = Counter()
        self.applied: list[Applied] = []

    def add(self, rule: FaultRule) -> None:
        """Put a rule behind those in force.

        Raises:
            ValueError: one of its expressions is none.
        """
        for expression in (rule.method, rule.path, rule.event):
            try:
                re.compile(expression)
            except re.error as error:
                raise ValueError(f"{expression!r}: {error}") from error
        self._rules.append(rule)

    def clear(self) -> None:
        """Take every rule away, and forget what was applied."""
        self._rules.clear()
        self._used.clear()
        self.applied.clear()

    def for_request(self, component: str, method: str, path: str) -> FaultRule | None:
        """The rule that a request falls under."""
        return self._take(component, method, path, None)

    def for_event(self, component: str, path: str, line: bytes) -> FaultRule | None:
        """The rule that an event of a watch falls under."""
        return self._take(component, "GET", path, line.decode(errors="replace"))

    def _take(self, component: str, method: str, path: str, event: str | None) -> FaultRule | None:
        for index, rule in enumerate(self._rules):
            if (rule.action in WATCH_ACTIONS) != (event is not None):
                continue
            if not (
                rule.component == component
                and re.fullmatch(rule.method, method)
                and re.search(rule.path, path)
                and (event is None or re.search(rule.event, event))
            ):
                continue
            key = (index, f"{method} {path.partition('?')[0]}" if rule.each else "")
            if self._used[key] >= rule.count or self._random.random() >= rule.probability:
                continue
            self._used[key] += 1
            status = rule.status if rule.action == "answer" else 0
            self.applied.append(Applied(rule.action, component, method, path, status))
            return rule
        return None


def refusal(status: int, retry_after: int) -> tuple[bytes, dict[str, str]]:
    """Body and headers of an answer as the API server sends it.

    429 comes from priority and fairness, in plain text; everything else is a Status object.
    """
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    if status == 429:
        return b"Too many requests, please try again later.\n", {**headers, "Content-Type": "text/plain"}
    return status_object(status), {**headers, "Content-Type": "application/json"}


def status_object(status: int) -> bytes:
    """A metav1.Status that says no."""
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "injected by the fault proxy",
            "reason": _REASONS.get(status, "Unknown"),
            "code": status,
        }
    )


def expired_event() -> bytes:
    """The last event of a watch whose version is gone."""
    return b'{"type":"ERROR","object":' + status_object(410) + b"}\n"
