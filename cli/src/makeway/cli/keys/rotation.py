"""What a rotation may do next, told from the stored keys alone. Pure.

Two public keys of a kind count: a rotation publishes a second one, and puts its private key in use once every
part has read it; `--finish` drops whatever is not in use, also of a rotation that was broken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from makeway.bus.signing.keys import MAX_PUBLIC_KEYS, SigningKey, SigningKind


@dataclass(frozen=True)
class KindKeys:
    """The keys of one kind as they are stored.

    current: the private key in use; None where there is none. public: in PEM, by key id. made_at: when the
    key in use was published, where known.
    """

    kind: SigningKind
    current: SigningKey | None = None
    public: Mapping[str, str] = field(default_factory=dict)
    made_at: datetime | None = None

    @property
    def complete(self) -> bool:
        """Whether what is signed verifies."""
        return self.current is not None and self.current.key_id in self.public


def may_rotate(keys: KindKeys) -> None:
    """Return where a second key may be published.

    Raises:
        ValueError: it would be a third, or the key in use is missing or does not count.
    """
    if keys.current is None:
        raise ValueError(f"{keys.kind}: there is no private key; see makeway keys new --replace")
    if not keys.complete:
        raise ValueError(
            f"{keys.kind}: key {keys.current.key_id} is in use and not among the public keys; "
            "see makeway keys new --replace"
        )
    if len(keys.public) >= MAX_PUBLIC_KEYS:
        raise ValueError(
            f"{keys.kind}: there are {len(keys.public)} public keys already; end the rotation before with "
            "makeway keys rotate --finish"
        )


def retired(keys: KindKeys, now: datetime, after: timedelta) -> list[str]:
    """Return the key ids that `--finish` drops; none where there is nothing to finish.

    `after`: how long after the key in use was published a message of the one before may still be read.

    Raises:
        ValueError: the key in use does not count, or is too new.
    """
    if not keys.complete or keys.current is None:
        raise ValueError(f"{keys.kind}: the key in use is not among the public keys; nothing is dropped")
    old = [one for one in keys.public if one != keys.current.key_id]
    if old and keys.made_at is not None and now - keys.made_at < after:
        wait = after - (now - keys.made_at)
        raise ValueError(
            f"{keys.kind}: messages that the old key signed may still be on their way; "
            f"try again in {wait.total_seconds():.0f} s, or give a shorter --after"
        )
    return old
