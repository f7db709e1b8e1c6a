"""Text that did not come from us, on a terminal. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import Final

_COMMAND: Final = re.compile(r"`[^`]*`")
_UNBROKEN: Final = "\uffff"
"""In place of a space that ends no line; no text has it."""

HIDDEN: Final = "(another namespace)"
"""Stands for the name of whatever is in one, and of the namespace."""


def safe(text: str) -> str:
    """Escape what a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_lines(text: str) -> str:
    """Escape what a terminal would act on, but for the ends of lines and tabs."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else safe(c) for c in text)


def folded(text: str, width: int) -> str:
    """Break lines of prose between words; later parts are indented. A longer word keeps its line."""
    lines = text.split("\n")
    return "\n".join("\n".join(broken(one, width, "  ")) for one in lines)


def broken(line: str, width: int, indent: str) -> list[str]:
    """Break a line between words, of which none is broken; all parts but the first are indented.

    A command between backticks that has room on a line stays on one, or ends lines with `|`, to be copied.
    """
    kept = _COMMAND.sub(lambda found: _kept(found[0], width - len(indent)), line)
    return [part.replace(_UNBROKEN, " ") for part in _wrapped(kept, width, indent)]


def _kept(command: str, width: int) -> str:
    parts = command.split("| ")
    return "| ".join(one.replace(" ", _UNBROKEN) if len(one) < width else one for one in parts)


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    )


def joined(line: str) -> str:
    """Return a line in which a hidden name stands once, where its namespace is hidden too."""
    return line.replace(f"{HIDDEN}/{HIDDEN}", HIDDEN)
