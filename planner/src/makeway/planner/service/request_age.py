"""How long a request waited before it was looked at, without trusting that two clocks agree.

A request's id holds the time of its making, by the plugin's clock. The smallest difference to our own
clock that a sender has shown lately is skew and the way here; what goes beyond it is waiting.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

WINDOW_SECONDS = 60.0
"""How long a smallest difference holds: clocks are set, and plugins come and go."""

_ALPHABET: Final = {digit: value for value, digit in enumerate("0123456789abcdefghjkmnpqrstvwxyz")}
_TIME_DIGITS: Final = 10


class Lateness:
    """Keeps the smallest difference of the last minute, of each sender. O(1) a request, amortised."""

    def __init__(self) -> None:
        # By sender, the one that was heard last at the end. Ascending in both time and difference: the
        # first is the smallest that is still young enough.
        self._smallest: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()

    def __len__(self) -> int:
        """How many senders were heard within the last minute."""
        return len(self._smallest)

    def waited_seconds(self, sender: str, request_id: str, now_seconds: float) -> float:
        """Give how long the request has waited; 0 where its id holds no time.

        `sender`: whoever has one clock; those of different senders are never compared.
        """
        made = _made_at_seconds(request_id)
        if made is None:
            return 0.0
        difference = now_seconds - made
        smallest = self._smallest.setdefault(sender, deque())
        self._smallest.move_to_end(sender)
        while smallest and smallest[-1][1] >= difference:
            smallest.pop()
        smallest.append((now_seconds, difference))
        while smallest[0][0] < now_seconds - WINDOW_SECONDS:
            smallest.popleft()
        while next(iter(self._smallest.values()))[-1][0] < now_seconds - WINDOW_SECONDS:
            self._smallest.popitem(last=False)
        return difference - smallest[0][1]


def _made_at_seconds(request_id: str) -> float | None:
    """Read the milliseconds that begin an id: `req-` and ten digits of Crockford's base 32."""
    milliseconds = 0
    digits = request_id.partition("-")[2][:_TIME_DIGITS]
    for digit in digits:
        if digit not in _ALPHABET:
            return None
        milliseconds = milliseconds << 5 | _ALPHABET[digit]
    return milliseconds / 1000 if len(digits) == _TIME_DIGITS else None
