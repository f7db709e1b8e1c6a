"""Text that did not come from us, on a terminal. Pure."""

from __future__ import annotations

import textwrap
from typing import Final

HIDDEN: Final = "(another namespace)"
"""Stands for the name of whatever is in one, and of the namespace."""


def safe(text: str) -> str:
    """Escape what a terminal would act on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_lines(text: str) -> str:
    """Escape what a terminal would act on, but for the ends of lines and tabs."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else safe(c) for c in text)


def folded(text: str, width: int) -> str:
    """Break lines of prose between words; what goes on is indented. A longer word keeps its line."""
    lines = text.split("\n")
    return "\n".join(
        textwrap.fill(one, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for one in lines
    )


def joined(line: str) -> str:
    """Return a line in which a hidden name stands once, where its namespace is hidden too."""
    return line.replace(f"{HIDDEN}/{HIDDEN}", HIDDEN)
