"""A configuration in force: the last good one, whatever its source says since.

Sources (`makeway.runtime.config_sources`) offer what they hold; this decides what that means:

* what is accepted is in force from that moment;
* what is refused changes nothing, and is said: log, metric, and an Event from whoever listens;
* what is gone changes nothing either: a deleted object must not make victims of pods that it protected.
  To be without, write one that says nothing but its version and kind;
* a process that starts has no last good one. Where there is nothing to read it goes without, unless it
  is told that one had been in force (`remembered`); then, and where what it reads is refused, it waits,
  and `unsynced` says for what.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import structlog

from makeway.core.config.document import ConfigError, Problem, and_others, did_you_mean
from makeway.core.k8s.event import Regarding
from makeway.runtime.config_metrics import ConfigMetrics

_log = structlog.get_logger()

T = TypeVar("T")

Result = Literal["accepted", "refused", "gone"]


@dataclass(frozen=True)
class ConfigKind(Generic[T]):
    """One kind of configuration: its name in metrics and logs, its ConfigMap, the key there, how it is read.

    parse: of text and source; raises ConfigError. absent: what holds without any. warnings: of what was
    accepted, for a person. nothing: what a text holds that is as good as none.
    """

    name: str
    configmap: str
    key: str
    parse: Callable[[str, str], T]
    absent: T
    warnings: Callable[[T], Sequence[str]] = lambda _: ()
    nothing: str = "nothing but apiVersion and kind"


@dataclass(frozen=True)
class ConfigContent:
    """What a source holds now: a text, or why there is none though the object is there.

    source: for errors, such as `makeway-policy/policy.yaml`. about: the object, for Events. keys: the
    object's, where the wanted one is missing.
    """

    source: str
    text: str | None
    about: Regarding | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReloadResult:
    """What became of the last offer. `message` is for a person; `in_force` is a revision, or empty."""

    result: Result
    message: str
    in_force: str
    about: Regarding | None


def revision_of(text: str) -> str:
    """Name a text by its content: the same in every process and from every source."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


class Config(Generic[T]):
    """One configuration of one process. `revision` is empty where none is in force.

    remembered: the revision that was last in force in this cluster, as far as was told.
    """

    def __init__(self, kind: ConfigKind[T], metrics: ConfigMetrics, *, remembered: str = "") -> None:
        self.kind = kind
        self.current: T = kind.absent
        self.revision = ""
        self.verdict: ReloadResult | None = None
        self._metrics = metrics
        self._remembered = remembered
        self._known = False
        self._trouble = f"the {kind.name} has not been read yet"
        self._about: Regarding | None = None
        self._seen: ConfigContent | None = None
        self._listeners: list[Callable[[], None]] = []
        metrics.begin(kind.name)

    def unsynced(self) -> str:
        """Return what is missing before anything may be decided; empty where nothing is."""
        return "" if self._known else self._trouble

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have a function called after every verdict, also where nothing in force has changed."""
        self._listeners.append(listener)

    def read(self, offer: ConfigContent) -> T | ConfigError:
        """Return what a source's text says, or why it is refused; a large text takes seconds. Pure."""
        try:
            return self._parse(offer)
        except ConfigError as error:
            return error

    def offer(self, offer: ConfigContent, found: T | ConfigError | None = None) -> None:
        """Take what a source holds. The same again does nothing. `found`: what `read` makes of it."""
        if offer == self._seen:
            return
        self._seen = offer
        self._about = offer.about
        value = self.read(offer) if found is None else found
        if isinstance(value, ConfigError):
            self._refuse(value)
            return
        text = offer.text or ""
        self.current, self.revision, self._known = value, revision_of(text), True
        lines = [f"{self.kind.name} {self.revision} is effective", *self.kind.warnings(value)]
        self._conclude("accepted", "\n".join(lines))

    def withdraw(self, where: str) -> None:
        """Take it that there is nothing to read at `where`."""
        self._seen = None
        if self.verdict is not None and self.verdict.result == "gone":
            return
        if self.revision:
            remedy = f"a {self.kind.key} with {self.kind.nothing} is how to be without"
            self._conclude(
                "gone", f"{where} is gone; {self.kind.name} {self.revision} stays effective; {remedy}"
            )
        elif self._remembered:
            self._trouble = (
                f"{self.kind.name} {self._remembered} was effective and {where} is gone; create it again, or "
                f"one with {self.kind.nothing} to be without"
            )
            self._conclude("gone", self._trouble)
        elif not self._known:
            self._known, self.verdict = True, None
            self._metrics.absent(self.kind.name)
            _log.info("config_absent", config=self.kind.name, source=where)
            self._tell()

    def _parse(self, offer: ConfigContent) -> T:
        if offer.text is None:
            key = self.kind.key
            meant = did_you_mean(key, offer.keys)
            held = ", ".join(offer.keys) or "none"
            remedy = f"did you mean {meant}? Put the text under data, as {key}" if meant else f"it has {held}"
            raise ConfigError(offer.source, [Problem("data", "", f"has no key {key}", remedy)])
        return self.kind.parse(offer.text, offer.source)

    def _refuse(self, error: ConfigError) -> None:
        lines = [problem.describe(error.source) for problem in error.problems]
        text = "\n".join(lines)
        kept = (
            f"{self.kind.name} {self.revision} stays effective" if self.revision else "nothing is effective"
        )
        self._trouble = f"the {self.kind.name} is refused: {lines[0]}{and_others(error.problems)}"
        self._conclude("refused", f"{text}\n{kept}")

    def _conclude(self, result: Result, message: str) -> None:
        self.verdict = ReloadResult(result, message, self.revision, self._about)
        self._metrics.concluded(self.kind.name, result, self.revision)
        name, revision = self.kind.name, self.revision
        match result:
            case "accepted":
                _log.info("config_accepted", config=name, revision=revision, message=message)
            case "refused":
                _log.error("config_refused", config=name, revision=revision, message=message)
            case "gone":
                _log.warning("config_gone", config=name, revision=revision, message=message)
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
