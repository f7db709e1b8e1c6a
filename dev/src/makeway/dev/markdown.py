"""Keep the pages of the project within 120 columns: `python -m makeway.dev.markdown [--check]`.

Only paragraphs and list items are wrapped. Tables, code, headings and what has no space to break at, such as
a link, may be wider. Generated pages are left alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from makeway.dev.paths import CHECKOUT

WIDTH: Final = 120

_ROOTS: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "charts/makeway/README.md", "dev", "docs")
_GENERATED: Final = CHECKOUT / "docs/reference"
_FENCE: Final = re.compile(r"\s*(```|~~~)")
_BLOCK: Final = re.compile(r"\s*(\||#|<|>|\[[^\]]+\]: |$)")
"""Begins a line that is in no paragraph: a table's row, a heading, HTML, a quotation, a link's target."""
_ITEM: Final = re.compile(r"(\s*)([-*+]|\d+[.)])\s+")
_WORD: Final = re.compile(r"(?:`[^`]*`|[^\s`])+|`")
"""What is not broken: a word with the code in it."""
_NEVER_FIRST: Final = re.compile(r"([-*+#>|=]+|\d+[.)])$")
"""Words that would begin a list, a heading or a quotation at the head of a line."""


def pages() -> Iterator[Path]:
    """Yield every page that is written by hand."""
    for root in _ROOTS:
        path = CHECKOUT / root
        found = sorted(path.rglob("*.md")) if path.is_dir() else [path]
        yield from (page for page in found if page.exists() and _GENERATED not in page.parents)


def wrapped(text: str) -> str:
    """Return a page with its wide paragraphs wrapped. What is narrow enough stays as it is. O(characters)."""
    out: list[str] = []
    paragraph: list[str] = []
    fence = ""
    for line in text.splitlines():
        opens = _FENCE.match(line)
        if fence or opens:
            out += _fitted(paragraph)
            paragraph = []
            out.append(line)
            if opens:
                fence = opens[1] if not fence else "" if opens[1] == fence else fence
        elif _BLOCK.match(line):
            out += [*_fitted(paragraph), line]
            paragraph = []
        elif _ITEM.match(line):
            out += _fitted(paragraph)
            paragraph = [line]
        else:
            paragraph.append(line)
    return "".join(f"{line}\n" for line in [*out, *_fitted(paragraph)])


def _fitted(paragraph: list[str]) -> Iterable[str]:
    """Return a paragraph's lines, wrapped anew where one of them is too wide."""
    if all(len(line) <= WIDTH for line in paragraph):
        return paragraph
    item = _ITEM.match(paragraph[0])
    indent = " " * (item.end() if item else len(paragraph[0]) - len(paragraph[0].lstrip()))
    head = item[0] if item else indent
    words: list[str] = []
    for word in _WORD.findall(" ".join(paragraph)[len(head) :]):
        if words and _NEVER_FIRST.match(word):
            words[-1] += f" {word}"
        else:
            words.append(word)
    lines = [head]
    for word in words:
        if len(lines[-1]) + len(word) + (not lines[-1].isspace()) <= WIDTH or lines[-1] in (head, indent):
            lines[-1] += word if lines[-1] in (head, indent) else f" {word}"
        else:
            lines.append(f"{indent}{word}")
    return lines


def main() -> None:
    """Wrap every page, or with --check name those that are too wide."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is too wide")
    check = parser.parse_args().check
    wide = [page for page in pages() if wrapped(page.read_text()) != page.read_text()]
    if check and wide:
        names = ", ".join(str(page.relative_to(CHECKOUT)) for page in wide)
        sys.exit(f"error: wider than {WIDTH} columns: {names}; run 'make format'")
    for page in wide:
        page.write_text(wrapped(page.read_text()))
        print(f"wrapped {page.relative_to(CHECKOUT)}")


if __name__ == "__main__":
    main()
