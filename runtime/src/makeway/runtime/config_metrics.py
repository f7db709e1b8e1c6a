"""The metrics of configurations, as Prometheus has them of its own."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge


class ConfigMetrics:
    """Of every configuration of one process; also what the list-watches of their objects report to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.reloads = counter(
            "makeway_config_reloads",
            "Configurations read, by config (policy, queues) and result: accepted, refused, gone (its object "
            "or file was deleted; the last good one stays effective).",
            ["config", "result"],
        )
        self.successful = gauge(
            "makeway_config_last_reload_successful",
            "1 where what was last read of config (policy, queues) was accepted, or nothing is there to "
            "read; 0 where it was refused, or is gone.",
            ["config"],
        )
        self.success_time = gauge(
            "makeway_config_last_reload_success_timestamp_seconds",
            "When config (policy, queues) was last accepted; 0 for never.",
            ["config"],
        )
        self.info = gauge(
            "makeway_config_info",
            "1 for the revision in force of config (policy, queues); it names the text, and is empty where "
            "none is in force.",
            ["config", "revision"],
        )
        self.watch_restarts = counter(
            "makeway_config_watch_restarts",
            "Watches of the objects that hold configurations that ended, by resource (configmaps/NAME) and "
            "reason: ended, silent-or-cut, throttled, refused, expired, set-back, error, undecodable.",
            ["resource", "reason"],
        )
        self._revisions: dict[str, str] = {}

    def begin(self, config: str) -> None:
        """Show a configuration before anything is read."""
        self.successful.labels(config).set(1)
        self.success_time.labels(config).set(0)
        self._in_force(config, "")

    def concluded(self, config: str, result: str, revision: str) -> None:
        """Count a reload and show what is in force."""
        self.reloads.labels(config, result).inc()
        self.successful.labels(config).set(int(result == "accepted"))
        if result == "accepted":
            self.success_time.labels(config).set_to_current_time()
        self._in_force(config, revision)

    def absent(self, config: str) -> None:
        """Show that there is nothing to read."""
        self.successful.labels(config).set(1)

    def _in_force(self, config: str, revision: str) -> None:
        if config in self._revisions:
            self.info.remove(config, self._revisions[config])
        self._revisions[config] = revision
        self.info.labels(config, revision).set(1)

    # What list-watches report.

    def listed(self, resource: str, reason: str) -> None:
        """Count nothing: a list of one object says nothing that a restart does not."""

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended."""
        self.watch_restarts.labels(resource, reason).inc()

    def undecodable(self, resource: str) -> None:
        """Count an object that could not be read."""
        self.watch_restarts.labels(resource, "undecodable").inc()
