"""Kubernetes quantities as exact integers.

A quantity is held as whole billionths (`Nanos`), the finest step Kubernetes knows, so that sums stay
exact; it is rounded up only when it becomes a column: to thousandths for cpu, to whole units (bytes,
devices) for everything else. Form and rounding are those of apimachinery's `resource.Quantity`
(ParseQuantity, MilliValue, Value).
"""

from __future__ import annotations

import re
from typing import NewType

Nanos = NewType("Nanos", int)
"""A quantity in billionths of its unit."""

MAX_INT64 = 2**63 - 1
"""Values above this are cut to it, as Kubernetes does."""

_MAX_LENGTH = 128
_MAX_EXPONENT = 64
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)


class QuantityError(ValueError):
    """The text is not a quantity: `inf`, `1_000`, `1K` and the like. Says which text."""


def parse(quantity: str | int | float) -> Nanos:
    """Return a quantity's exact value in billionths, rounded away from zero below that.

    JSON may carry a quantity as a bare number, which means the same as its text. Raises
    QuantityError where the form is not Kubernetes' own.
    """
    text = quantity if isinstance(quantity, str) else repr(quantity)
    form = _FORM.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if form is None:
        raise QuantityError(f"{text[:_MAX_LENGTH]!r} is not a Kubernetes quantity")
    part = form["only"] or form["part"] or ""
    mantissa = int((form["whole"] or "") + part)
    suffix = form["suffix"] or ""
    scale = 9 - len(part)
    if suffix in _BINARY:
        mantissa <<= _BINARY[suffix]
    elif form["exponent"]:
        scale += max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(form["exponent"])))
    else:
        scale += _DECIMAL[suffix]
    nanos = mantissa * 10**scale if scale >= 0 else _up(mantissa, 10**-scale)
    return Nanos(-nanos if form["sign"] == "-" else nanos)


def milli_value(nanos: int) -> int:
    """Thousandths, rounded up: the unit of cpu columns."""
    return _bounded(_up(nanos, 1_000_000))


def value(nanos: int) -> int:
    """Whole units, rounded up: bytes of memory, devices, pods."""
    return _bounded(_up(nanos, 1_000_000_000))


def _up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _bounded(number: int) -> int:
    return max(-MAX_INT64, min(MAX_INT64, number))
