package natsbus

import "makeway.dev/makeway/plugin/internal/telemetry"

var (
	messagesIgnored = telemetry.CounterVec("makeway_scheduler_ignored_messages_total",
		"Messages of the streams of orders, outcomes and control states that were ignored, by reason: too-large, too-deep, not-json, invalid, unknown-version, unknown-type, wrong-subject, other-cluster, not-after-too-far, old-revision, future-revision, unusable-queues, unsigned, unknown-key, invalid-signature, other.", "reason")

	natsErrors = telemetry.CounterVec("makeway_scheduler_nats_errors_total",
		"Errors that the NATS client reported, by kind: permission (a publish or subscription was denied), other.", "kind")

	repliesRefused = telemetry.Counter("makeway_scheduler_replies_refused_total",
		"Questions about the scheduler's status that asked to be answered elsewhere than in an inbox of makeway's, and were left alone: the answer could have been stored as a message.")
)
