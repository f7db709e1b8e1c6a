"""Small parts of sentences. Pure."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s but for one: `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
