"""The planner's configuration: policy, queues and the brake; read, and told to the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from makeway.bus.control import ControlState, QueueLimit
from makeway.core.k8s.event import EventType
from makeway.core.policy.brake import braked
from makeway.core.policy.document import Policy
from makeway.core.policy.mode import Mode
from makeway.core.queues.parsing import Queues
from makeway.planner.service.configuration.control import state_of
from makeway.runtime.brake import BrakeMetrics, BrakeReader
from makeway.runtime.config import Config
from makeway.runtime.config_events import ConfigEvents
from makeway.runtime.config_kinds import POLICY, QUEUES
from makeway.runtime.config_metrics import ConfigMetrics
from makeway.runtime.config_sources import ConfigMapSource
from makeway.runtime.events import EventSink
from makeway.runtime.listwatch import ObjectReader
from makeway.runtime.settings import ConfigSettings


def queue_limits(found: Queues | None) -> tuple[QueueLimit, ...]:
    """Return the limits of a tree as they are told, parents before children."""
    return tuple(
        QueueLimit(
            path=queue.path,
            max=dict(queue.maximum),
            namespaces=tuple(sorted(queue.namespaces)),
            guaranteed=dict(queue.guaranteed),
        )
        for queue in (found.tree if found else ())
    )


class Configuration:
    """Both configurations of one planner, and the brake. `remembered`: this cluster's last control state."""

    def __init__(
        self,
        api: ObjectReader,
        settings: ConfigSettings,
        registry: CollectorRegistry,
        recorder: EventSink,
        remembered: ControlState | None,
    ) -> None:
        metrics = ConfigMetrics(registry)
        self._recorder = recorder
        self._namespace = settings.namespace
        self.policy = Config(POLICY, metrics, remembered=remembered.policy_revision if remembered else "")
        self.queues = Config(QUEUES, metrics, remembered=remembered.queues_revision if remembered else "")
        self.brake = BrakeReader(api, BrakeMetrics(registry), metrics, namespace=settings.namespace)
        self._events = [ConfigEvents(self.policy, recorder), ConfigEvents(self.queues, recorder)]
        self._sources = (
            ConfigMapSource(api, self.policy, metrics, namespace=settings.namespace),
            ConfigMapSource(api, self.queues, metrics, namespace=settings.namespace),
        )

    @property
    def in_force(self) -> Policy:
        """The policy, under the brake: where that holds, the mode is off."""
        return braked(self.policy.current, self.brake.current)

    def unsynced(self) -> str:
        """Return what is missing before anything may be planned; empty where nothing is."""
        return self.brake.unsynced() or self.policy.unsynced() or self.queues.unsynced()

    def unhealthy(self) -> str:
        """Return what stands in the way of reading, or of what was read; for readiness."""
        return "; ".join(
            trouble for source in (self.brake, *self._sources) if (trouble := source.unhealthy())
        )

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have a function called after anything may have changed."""
        self.brake.subscribe(listener)
        self.policy.subscribe(listener)
        self.queues.subscribe(listener)

    def begin_telling(self) -> None:
        """Write Events from now on: this planner leads."""
        for events in self._events:
            events.begin()

    def end_telling(self) -> None:
        """Leave Events to the planner that leads now."""
        for events in self._events:
            events.end()

    def tell_of_queues(self, event_type: EventType, reason: str, note: str) -> None:
        """Write an Event on the object that holds the queues, where there is one."""
        verdict = self.queues.verdict
        if verdict is not None and verdict.about is not None:
            self._recorder.record(verdict.about, event_type, reason, "Enforce", note)

    def control_state(
        self, mode: Mode, cluster_uid: str, tolerating: Collection[str], tolerations_revision: str
    ) -> ControlState | None:
        """Return what is to be in force, without a revision; None while that is not known."""
        if self.unsynced():
            return None
        return state_of(
            self.in_force,
            self.policy.revision,
            mode=mode,
            cluster_uid=cluster_uid,
            queues=(self.queues.revision, queue_limits(self.queues.current)),
            own_namespace=self._namespace,
            tolerating=tolerating,
            tolerations_revision=tolerations_revision,
        )

    def runs(self) -> list[Coroutine[Any, Any, Any]]:
        """Return the coroutines to run; each runs for ever."""
        return [source.run() for source in (self.brake, *self._sources)]
