"""What can go wrong on the bus, as errors that callers tell apart."""

from __future__ import annotations

from typing import Literal

SignatureFailure = Literal["unsigned", "unknown-key", "retired-key", "invalid-signature"]
"""Why a signature does not hold."""

MalformedReason = Literal[
    "too-large",
    "too-deep",
    "not-json",
    "invalid",
    "unknown-version",
    "unknown-type",
    "future-revision",
    SignatureFailure,
]


class BusError(Exception):
    """Base of the bus's errors; its text is a sentence for a person."""


class Malformed(BusError):  # noqa: N818 - the word of the contract, as in plugin/wire
    """A message that was not understood, and never will be: keep it aside, do not try again.

    `reason` is one of a few constants (a bounded metric label), `detail` says where and what.
    """

    def __init__(self, reason: MalformedReason, detail: str) -> None:
        super().__init__(f"malformed message: {reason}: {detail}")
        self.reason: MalformedReason = reason
        self.detail = detail


class BusUnavailable(BusError):  # noqa: N818 - a state, named as `ApiUnavailable` is
    """NATS is not reachable, or did not answer in time. Trying again may help.

    After a publish it means that whether the message was stored is unknown.
    """


class BusAway(BusUnavailable):
    """No server of NATS answered, or none as NATS does."""


class BusRefused(BusUnavailable):
    """NATS cannot be used as it is configured: the URL, the credentials, TLS. Trying again does not help."""


class KeyNotPublished(BusUnavailable):
    """Nothing is signed, and so nothing was sent: others would take it for forged. See `makeway-keys`."""


class ConnectionLost(BusError):  # noqa: N818 - as above
    """The connection's own probe failed twice or the client gave up: the process has to be restarted."""


class StreamConflict(BusError):  # noqa: N818 - as above
    """A stream or consumer exists with settings that cannot be changed and that makeway cannot use."""
