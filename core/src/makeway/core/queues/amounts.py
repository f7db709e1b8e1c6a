"""Amounts of resources in queues: how YuniKorn writes them, and sums that stay exact.

Source: yunikorn-core, pkg/common/resources (ParseQuantity, ParseVCore). A whole number and a suffix; `m`
only for cores; blanks are ignored. No fractions, unlike Kubernetes' own quantities: `1500m`, not `1.5`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from makeway.core.k8s.names import is_qualified_name
from makeway.core.k8s.quantity import MAX_INT64
from makeway.core.k8s.resources import CPU, PODS, is_counted

Amounts: TypeAlias = Mapping[str, int]
"""By resource name as in `makeway.core.k8s.resources`: milli-CPU, bytes, units. Absent: 0, or no limit."""

NO_AMOUNTS: Final[Amounts] = MappingProxyType({})

VCORE: Final = "vcore"
"""YuniKorn's name of cpu."""

_FORM: Final = re.compile(r"(?P<sign>[+-]?)(?P<number>[0-9]{1,30})(?P<suffix>[A-Za-z]*)")
_DECIMAL: Final = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class AmountError(ValueError):
    """A resource or an amount that no queue can have. `remedy`: what to write instead."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def resource_name(name: str) -> str:
    """Return the resource that a name in queues.yaml means: `vcore` is cpu.

    Raises AmountError for a name that no pod's request is ever counted under, since a limit on it would
    never hold anyone.
    """
    if name == VCORE:
        return CPU
    if name == PODS or (is_counted(name) and ("/" not in name or is_qualified_name(name))):
        return name
    raise AmountError(
        "is a resource that no pod is counted by",
        "write vcore, memory, pods, ephemeral-storage, hugepages-<size> "
        "or an extended resource such as nvidia.com/gpu",
    )


def parse_amount(resource: str, text: str) -> int:
    """Read an amount: thousandths for cpu (`2` is 2000, `500m` is 500), whole units for the rest.

    `resource` is a name that `resource_name` gave. Raises AmountError.
    """
    form = _FORM.fullmatch(re.sub(r"\s+", "", text))
    if form is None:
        raise AmountError("is no amount", _remedy(resource))
    if form["sign"] == "-":
        raise AmountError("is negative", "write 0 or more, or leave the resource out for no limit")
    suffix = form["suffix"]
    number = int(form["number"])
    if suffix in _BINARY:
        number <<= _BINARY[suffix]
    elif suffix in _DECIMAL:
        number *= 10 ** _DECIMAL[suffix]
    elif not (suffix == "m" and resource == CPU):
        raise AmountError(f"has the unknown suffix {suffix}", _remedy(resource))
    if resource == CPU and suffix != "m":
        number *= 1000
    if number > MAX_INT64:
        raise AmountError("is more than 64 bits hold", "write less, or leave the resource out for no limit")
    return number


def text_of(resource: str, amount: int) -> str:
    """Write an amount for people: cores or milli-cores, else with the suffix that is shortest."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    exact = [(amount >> bits, suffix) for suffix, bits in _BINARY.items() if amount % (1 << bits) == 0]
    exact += [
        (amount // 10**digits, suffix) for suffix, digits in _DECIMAL.items() if amount % 10**digits == 0
    ]
    number, suffix = min(exact) if amount else (0, "")
    return f"{number}{suffix}"


def texts_of(amounts: Amounts) -> str:
    """Write amounts as `cpu 2, memory 10Gi`, by name; `nothing` for none."""
    return ", ".join(f"{name} {text_of(name, amounts[name])}" for name in sorted(amounts)) or "nothing"


def over(usage: Amounts, limit: Amounts) -> dict[str, int]:
    """Return by how much usage is above a limit, for the resources that the limit names; only what is.

    YuniKorn's design calls this the preemptable resource: what has to go for a quota to come into effect.
    """
    return {name: usage.get(name, 0) - most for name, most in limit.items() if usage.get(name, 0) > most}


def written(amounts: Amounts) -> dict[str, int]:
    """Return amounts as messages carry them: within 64 bits. What the pods of a queue request may be more."""
    return {name: min(amount, MAX_INT64) for name, amount in amounts.items()}


def most_of(one: Amounts, other: Amounts) -> dict[str, int]:
    """Return the higher of two amounts for each resource that either of them names."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def looser(one: Amounts, other: Amounts) -> dict[str, int]:
    """Return the higher of two limits for each resource; none where one of them has none."""
    return {name: max(most, other[name]) for name, most in one.items() if name in other}


def _remedy(resource: str) -> str:
    if resource == CPU:
        return "write a whole number of cores such as 2, or of thousandths such as 1500m"
    return "write a whole number with one of the suffixes k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or none"
