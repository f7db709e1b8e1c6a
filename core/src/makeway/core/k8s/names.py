"""The form of Kubernetes' names: those of objects, label keys, resource names."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def is_qualified_name(name: str) -> bool:
    """Report whether it is `name` or `prefix/name`, as apimachinery's IsQualifiedName has it."""
    prefix, slash, last = name.rpartition("/")
    if _NAME.fullmatch(last) is None:
        return False
    return not slash or is_subdomain(prefix)


def is_subdomain(name: str) -> bool:
    """Report whether most objects may have it as their name, as apimachinery's IsDNS1123Subdomain has it."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Report whether it may be a label's value: at most 63 characters, or none."""
    return _VALUE.fullmatch(value) is not None
