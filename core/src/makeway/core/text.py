"""Small parts of sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LONGEST_NAME: Final = 253
"""Of most objects in Kubernetes. It does not bound what a pod says of its scheduler, or of its owners."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s but for one: `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first few texts, and how many others there are: `a, b and 3 more`."""
    shown = separator.join(texts[:most])
    others = len(texts) - most
    before = separator if separator != ", " else " "
    return f"{shown}{before}and {others} more" if others > 0 else shown


def as_name(text: str) -> str:
    """Return what a pod's author wrote as a name, cut where it is longer than names are."""
    return cut(text, LONGEST_NAME)


def one_line(text: str, longest: int) -> str:
    """Return what others have written, at any length, on one line: what is not printable becomes a space."""
    printable = "".join(c if c.isprintable() else " " for c in text[: longest + 1])
    return cut(printable, longest)


def cut(text: str, longest: int) -> str:
    """Return a text of so many characters at the most."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
