"""The documentation as a site: a hook of MkDocs, and a check: `python -m makeway.dev.docs_site DIRECTORY`.

The pages are written for a reader of the repository. Here links that leave docs/ lead to the repository, and
README.md is the first page. Only `on_files` and `on_page_markdown` are called by MkDocs, which is no
dependency of makeway's: they import it, and nothing else here does.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_LINK: Final = re.compile(r"(\]\(|(?:src|srcset|href)=\")([^)\s\":#][^)\s\":]*)(?=[)\s\"])")
"""Links of Markdown and of HTML, but those within a page and those with a scheme."""
_LOADED: Final = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|srcset|href)=[\"']?(?://|https?:)[^>]*>"
)
_CANONICAL: Final = 'rel="canonical"'


def located(text: str, page: str, repository: str, docs: Path) -> str:
    """Return a page's text with its links as the site has them.

    page: path of the page in the repository, such as docs/policies/delay.md. What is below `docs`, a
    directory apart, stays relative; all else leads to the repository.
    """

    def moved(found: re.Match[str]) -> str:
        before, link = found.groups()
        path, hash_, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        inside = target.removeprefix("docs/")
        here = posixpath.dirname(page.removeprefix("docs/")) or "."
        if inside != target and (docs / inside).is_file():
            return before + posixpath.relpath(inside, here) + hash_ + anchor
        if target == "README.md":
            return before + posixpath.relpath("index.md", here)
        return f"{before}{repository}/blob/main/{target}{hash_}{anchor}"

    return _LINK.sub(moved, text)


def foreign(page: str) -> list[str]:
    """Return the elements of a built page by which a browser would load something from another host."""
    return [one for one in _LOADED.findall(page) if _CANONICAL not in one]


def on_files(files: Any, config: Any) -> Any:
    """Add README.md as the first page; called by MkDocs."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found] # noqa: PLC0415 - of the docs alone
    from pymdownx.slugs import slugify  # type: ignore[import-not-found] # noqa: PLC0415

    # Anchors as GitHub has them, which pages use.
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    readme = Path(config.docs_dir).parent / "README.md"
    text = located(readme.read_text(), "README.md", config.extra["repository"], Path(config.docs_dir))
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Have links lead where the site has them; called by MkDocs."""
    if page.file.src_uri == "index.md":
        return markdown
    docs = Path(config.docs_dir)
    return located(markdown, f"docs/{page.file.src_uri}", config.extra["repository"], docs)


def _pages(directory: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(directory.rglob("*.html")):
        for element in foreign(path.read_text()):
            yield path.relative_to(directory), element


def main() -> None:
    """Say what a built site would load from other hosts; ends with 1 where it would."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    found = list(_pages(parser.parse_args().directory))
    for path, element in found:
        print(f"{path}: {element}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
