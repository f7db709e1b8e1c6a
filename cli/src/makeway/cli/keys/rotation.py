"""What a rotation has done and what it does next, told from the stored keys alone. Pure.

A rotation of one kind has four steps, each of which can be repeated after a crash: a successor is made and
kept beside the private key in use; its public key is published beside the old one; the successor takes the
place of the private key; the old public key is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from makeway.bus.signing import MAX_PUBLIC_KEYS, SigningKey, SigningKind


class Step(StrEnum):
    """What is to be done next for a kind."""

    MAKE = "make"
    PUBLISH = "publish"
    SWAP = "swap"


@dataclass(frozen=True)
class KindKeys:
    """The keys of one kind as they are stored.

    `current`: the private key in use; None where there is none. `successor`: the one that takes its place.
    `public`: in PEM, by key id. `swapped_at`: when `current` took its predecessor's place, where known.
    """

    kind: SigningKind
    current: SigningKey | None = None
    successor: SigningKey | None = None
    public: Mapping[str, str] = field(default_factory=dict)
    swapped_at: datetime | None = None

    @property
    def complete(self) -> bool:
        """Whether what is signed verifies."""
        return self.current is not None and self.current.key_id in self.public


def next_step(keys: KindKeys) -> Step:
    """Return the next step of a rotation, which one that was broken off goes on with.

    Raises:
        ValueError: it needs a third public key, or the key in use is missing or does not count.
    """
    if keys.current is None:
        raise ValueError(f"{keys.kind}: there is no private key; see makeway keys new --replace")
    if not keys.complete:
        raise ValueError(
            f"{keys.kind}: key {keys.current.key_id} is in use and not among the public keys; "
            "see makeway keys new --replace"
        )
    if keys.successor is not None and keys.successor.key_id in keys.public:
        return Step.SWAP
    if len(keys.public) >= MAX_PUBLIC_KEYS:
        raise ValueError(
            f"{keys.kind}: there are {len(keys.public)} public keys already; end the rotation before with "
            "makeway keys rotate --finish"
        )
    return Step.MAKE if keys.successor is None else Step.PUBLISH


def left(found: Iterable[KindKeys]) -> list[KindKeys]:
    """Return the kinds that a rotation concerns: where one was broken off, not those it was done with."""
    kinds = list(found)
    if all(keys.successor is None for keys in kinds):
        return kinds
    return [keys for keys in kinds if keys.successor is not None or len(keys.public) < MAX_PUBLIC_KEYS]


def retired(keys: KindKeys, now: datetime, after: timedelta) -> list[str]:
    """Return the key ids that a finished rotation drops; none where there is nothing to finish.

    `after`: how long after the swap a message of the old key may still be read.

    Raises:
        ValueError: the rotation is not so far yet.
    """
    if keys.successor is not None:
        raise ValueError(f"{keys.kind}: the rotation is under way; go on with makeway keys rotate")
    if not keys.complete or keys.current is None:
        raise ValueError(f"{keys.kind}: the key in use is not among the public keys; nothing is dropped")
    old = [one for one in keys.public if one != keys.current.key_id]
    if old and keys.swapped_at is not None and now - keys.swapped_at < after:
        wait = after - (now - keys.swapped_at)
        raise ValueError(
            f"{keys.kind}: messages that the old key signed may still be on their way; "
            f"try again in {wait.total_seconds():.0f} s, or give a shorter --after"
        )
    return old
