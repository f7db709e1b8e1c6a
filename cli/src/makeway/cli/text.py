"""Text that did not come from us, on a terminal. Pure."""

from __future__ import annotations


def safe(text: str) -> str:
    """Escape what a terminal would act on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
