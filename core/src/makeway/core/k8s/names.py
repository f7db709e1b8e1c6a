"""The form of Kubernetes' qualified names: label keys, resource names."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def is_qualified_name(name: str) -> bool:
    """Report whether it is `name` or `prefix/name`, as apimachinery's IsQualifiedName has it."""
    prefix, slash, last = name.rpartition("/")
    if _NAME.fullmatch(last) is None:
        return False
    return not slash or (len(prefix) <= 253 and _PREFIX.fullmatch(prefix) is not None)


def is_label_value(value: str) -> bool:
    """Report whether it may be a label's value: at most 63 characters, or none."""
    return _VALUE.fullmatch(value) is not None
