"""Metrics of the bus client, in prometheus-client's default registry, whichever service uses it."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

CONNECTED: Final = Gauge("makeway_bus_connected", "1 while NATS is connected, else 0.")
RECONNECTS: Final = Counter("makeway_bus_reconnects_total", "Connections to NATS that were made anew.")
ERRORS: Final = Counter(
    "makeway_bus_errors_total",
    "Errors the NATS client reported, by kind: permission (a publish or subscription was denied), "
    "optional (one that it can do without), slow-consumer (messages were dropped here), connection, other.",
    ["kind"],
)
PROBE_SECONDS: Final = Histogram(
    "makeway_bus_probe_duration_seconds",
    "Round trips to the NATS server and back through this client's own read loop.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
PROBE_MISSES: Final = Counter(
    "makeway_bus_probe_misses_total", "Round trips that were not answered in time on a standing connection."
)
PUBLISHES: Final = Counter(
    "makeway_bus_publishes_total",
    "Messages published into streams, by kind (order, outcome, decision, comparison, control, quarantine) "
    "and result: published, already_exists (another message is the subject's last), unavailable (not known "
    "to be stored), refused (by the stream, for good).",
    ["kind", "result"],
)
PUBLISH_SECONDS: Final = Histogram(
    "makeway_bus_publish_duration_seconds",
    "From the first attempt to the end of a publish, repeats included, by kind (order, outcome, decision, "
    "comparison, control, quarantine).",
    ["kind"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
REBUILDS: Final = Counter(
    "makeway_bus_consumer_rebuilds_total",
    "Consumers that were set up anew, by use (orders, follow) and reason: heartbeat (none came), "
    "reconnected, gone (deleted, or its leader moved), gap (messages were missed), changed (another login "
    "changed or deleted it), unavailable.",
    ["use", "reason"],
)
SPANS: Final = Counter(
    "makeway_bus_spans_total",
    "Spans of traces, by result: exported, failed (the collector did not take them), dropped (too many "
    "waited). None where no endpoint is configured.",
    ["result"],
)
STREAMS_WRONG: Final = Gauge(
    "makeway_bus_streams_wrong",
    "Streams that are missing or have other settings than makeway's, as this process saw them at most a "
    "minute ago.",
)
CONSUMER_UNREAD: Final = Gauge(
    "makeway_bus_named_consumer_unread",
    "Messages that a named consumer (nats.consumers of the chart) has not acknowledged, by its name and its "
    "stream (decisions, orders, begun, outcomes), at most a minute ago. What ages out of the stream is lost "
    "to it.",
    ["consumer", "stream"],
)
MALFORMED: Final = Counter(
    "makeway_bus_malformed_total",
    "Messages that were not understood, by kind (request, order, outcome, decision, control, status, "
    "envelope) and reason: too-large, too-deep, not-json, invalid, unknown-version, unknown-type, "
    "future-revision (of a control state), unsigned, unknown-key, retired-key, invalid-signature.",
    ["kind", "reason"],
)
SIGNATURE_FAILURES: Final = Counter(
    "makeway_bus_signature_failures_total",
    "Messages whose signature does not hold, by kind (order, control, outcome) and reason: "
    "unsigned, unknown-key, retired-key (replaced within ten minutes), invalid-signature. They count for "
    "nothing where signatures are required.",
    ["kind", "reason"],
)
SIGNING_KEY: Final = Gauge(
    "makeway_bus_signing_key_info",
    "1 for each key that this process signs with, by kind and key id.",
    ["kind", "key_id"],
)
SIGNING_KEY_UNKNOWN: Final = Gauge(
    "makeway_bus_signing_key_unknown",
    "1 where the key that this process signs with is not among the public keys, by kind: all others refuse "
    "what it signs.",
    ["kind"],
)
REPLIES_REFUSED: Final = Counter(
    "makeway_bus_replies_refused_total",
    "Questions that asked to be answered elsewhere than in an inbox of makeway's, and were left alone: "
    "the answer could have been stored as a message.",
)
HANDLER_ERRORS: Final = Counter(
    "makeway_bus_handler_errors_total", "Requests that were left without an answer by an error."
)
