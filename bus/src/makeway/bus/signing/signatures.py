"""One process's signatures: what it signs with, whose signatures count, and what is made of the others.

`makeway.bus.signing.keys` is the algorithm. Where a message fails, what reads it raises `Malformed`, as for
one that is not understood: it is put aside, or counts for nothing. The keys are kept up to date by
`makeway.runtime.key_ring`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, TypeVar, get_args

import structlog

from makeway.bus import codec, metrics
from makeway.bus.commit import Offer
from makeway.bus.control import ControlState
from makeway.bus.envelope import Envelope
from makeway.bus.errors import KeyNotPublished, Malformed, SignatureFailure
from makeway.bus.messages import Begun, EvictionOrder, Outcome
from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind

SignatureMode = Literal["off", "log", "require"]
"""`off` verifies nothing, `log` takes what fails and counts it, `require` does not take it."""

FAILURES: Final[frozenset[str]] = frozenset(get_args(SignatureFailure))
"""The reasons of a `Malformed` that speak of a signature."""

FORGERIES: Final = FAILURES - {"retired-key"}
"""Those that no writer of this cluster brings about whose key was replaced a moment ago."""

_M = TypeVar("_M", EvictionOrder, Begun, Outcome, ControlState, Offer)

_log = structlog.get_logger()


class Signatures:
    """Signs what is published and verifies what is read. Costs about 0.1 ms a message; `off` costs nothing.

    `signing`, `public`: the keys as they are now; whoever reads them sets them anew. `retired`: public ones
    that counted until lately: what they signed is refused, but is no forgery.
    """

    def __init__(
        self,
        mode: SignatureMode = "off",
        *,
        signing: Mapping[SigningKind, SigningKey] | None = None,
        public: PublicKeys | None = None,
    ) -> None:
        self.mode: SignatureMode = mode
        self.signing: Mapping[SigningKind, SigningKey] = signing or {}
        self.public = public or PublicKeys()
        self.retired: tuple[PublicKeys, ...] = ()
        self.trouble = ""
        """What is wrong with the keys; whoever reads them says so."""
        self._failed = 0

    def wrap(
        self,
        message: EvictionOrder | Begun | Outcome | ControlState | Offer,
        source: str,
        subject: str,
        *,
        at: datetime | None = None,
    ) -> bytes:
        """Put a message into an envelope for a subject, signed where there is a key; as `codec.wrap`.

        Raises:
            KeyNotPublished: signatures are required, and the key's public one is not among those that count.
        """
        envelope, kind = codec.envelope_of(message, source, at=at), kind_of(message)
        if why := self.unpublished(kind):
            raise KeyNotPublished(why)
        key = self.signing.get(kind)
        return codec.encode(key.sign(envelope, kind, subject) if key else envelope)

    def order(self, data: bytes, subject: str) -> EvictionOrder:
        """Read an order from a subject; raises `Malformed`."""
        return self._verified(data, subject, EvictionOrder)

    def offer(self, data: bytes, subject: str) -> Offer:
        """Read an offer that came in a commit on a subject; raises `Malformed`."""
        return self._verified(data, subject, Offer)

    def outcome(self, data: bytes, subject: str) -> Outcome:
        """Read an outcome from a subject; raises `Malformed`."""
        return self._verified(data, subject, Outcome)

    def begun(self, data: bytes, subject: str) -> Begun:
        """Read from a subject that an order has begun; raises `Malformed`."""
        return self._verified(data, subject, Begun)

    def control(self, data: bytes, subject: str, now: datetime | None = None) -> ControlState:
        """Read a control state from a subject, of a time that can be by `now`; raises `Malformed`."""
        return codec.timely(self._verified(data, subject, ControlState), now)

    def refuses(self, data: bytes, subject: str, kind: SigningKind) -> bool:
        """Report whether bytes from a subject of a kind say nothing, since no good signature is on them.

        Also of what cannot be read: else whoever may publish could write bytes in a message's place.
        """
        if self.mode != "require":
            return False
        try:
            envelope = codec.unwrap_envelope(data)
        except Malformed:
            return True
        return self.public.verify(envelope, kind, subject) is not None

    def describe(self) -> str:
        """Return how it is, for a person: the mode, what it signs with, what failed, what is wrong."""
        if self.mode == "off" and not self.signing:
            return "off"
        keys = ", ".join(f"{kind} by {key.key_id}" for kind, key in sorted(self.signing.items()))
        failed = f"messages failed: {self._failed}" if self.mode != "off" else ""
        return "; ".join(
            filter(None, [self.mode, f"signs {keys}" if keys else "signs nothing", failed, self.trouble])
        )

    def unpublished(self, *kinds: SigningKind) -> str:
        """Return why messages of these kinds, by default all, are not signed now; empty where they are."""
        if self.mode != "require" or not self.public.by_kind:
            return ""
        unknown = self.unknown_keys()
        what = ", ".join(f"{kind} by {unknown[kind]}" for kind in kinds or unknown if kind in unknown)
        return f"nothing is signed with a key that is not published: {what}" if what else ""

    def unknown_keys(self) -> dict[SigningKind, str]:
        """Return the ids of the private keys whose public keys do not count, by kind."""
        if self.mode == "off":
            return {}
        return {
            kind: key.key_id
            for kind, key in self.signing.items()
            if key.key_id not in self.public.by_kind.get(kind, {})
        }

    def _verified(self, data: bytes, subject: str, wanted: type[_M]) -> _M:
        envelope, message = codec.unwrap_as(data, wanted)
        if self.mode != "off":
            self._verify(envelope, kind_of(message), subject)
        return message

    def _verify(self, envelope: Envelope, kind: SigningKind, subject: str) -> None:
        reason = self.public.verify(envelope, kind, subject)
        if reason is None:
            return
        if reason == "unknown-key" and any(
            keys.verify(envelope, kind, subject) is None for keys in self.retired
        ):
            reason = "retired-key"
        metrics.SIGNATURE_FAILURES.labels(kind, reason).inc()
        self._failed += 1
        if self.mode == "require":
            key = f" by key {codec.shown(envelope.keyid)}" if envelope.keyid else ""
            raise Malformed(reason, f"{kind} {codec.shown(envelope.id)}{key} on {subject}")
        _log.warning("signature_failed", kind=kind, reason=reason, id=codec.shown(envelope.id))


def kind_of(message: EvictionOrder | Begun | Outcome | ControlState | Offer) -> SigningKind:
    """Return what a message is signed as."""
    match message:
        case EvictionOrder() | Offer():  # of the same writer
            return SigningKind.ORDER
        case Begun() | Outcome():  # the same writer
            return SigningKind.OUTCOME
        case ControlState():
            return SigningKind.CONTROL
