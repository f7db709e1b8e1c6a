"""Events on the object that holds a configuration: `kubectl describe configmap` shows what became of it."""

from __future__ import annotations

from typing import Any, Final

from makeway.core.k8s.event import EventType
from makeway.runtime.config import Config, ReloadResult
from makeway.runtime.events import EventSink

_EVENTS: Final[dict[str, tuple[EventType, str]]] = {
    "accepted": ("Normal", "ConfigAccepted"),
    "refused": ("Warning", "ConfigRefused"),
    "gone": ("Warning", "ConfigGone"),
}


class ConfigEvents:
    """Tells each verdict once, while it is its turn: every replica reads the object, the leader speaks."""

    def __init__(self, config: Config[Any], recorder: EventSink) -> None:
        self._config = config
        self._recorder = recorder
        self._speaking = False
        self._told: ReloadResult | None = None
        config.subscribe(self._tell)

    def begin(self) -> None:
        """Speak from now on, of the last verdict first."""
        self._speaking = True
        self._tell()

    def end(self) -> None:
        """Be silent."""
        self._speaking = False

    def _tell(self) -> None:
        verdict = self._config.verdict
        if not self._speaking or verdict is None or verdict == self._told:
            return
        self._told = verdict
        if verdict.about is not None:
            event_type, reason = _EVENTS[verdict.result]
            self._recorder.record(verdict.about, event_type, reason, "Reload", verdict.message)
