"""The documentation as a site: every page is in its navigation, and it needs no other host."""

import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from makeway.dev.docs_site import foreign, located
from makeway.dev.paths import CHECKOUT

CONFIG = yaml.safe_load((CHECKOUT / "mkdocs.yml").read_text())
DOCS = CHECKOUT / "docs"
REPOSITORY = CONFIG["extra"]["repository"]


def leaves(nav: list[Any]) -> Iterator[str]:
    for item in nav:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        yield from leaves(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_navigation_once_or_reached_from_an_index_in_it() -> None:
    listed = list(leaves(CONFIG["nav"]))
    left_out = CONFIG["not_in_nav"].split()
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    indexed = {page for page in there if any(fnmatch.fnmatch(f"/{page}", one) for one in left_out)} - set(
        listed
    )

    assert len(listed) == len(set(listed))
    assert set(listed) - {"index.md"} == there - indexed
    for page in indexed:
        index = DOCS / Path(page).parent / "README.md"
        assert f"]({Path(page).name})" in index.read_text(), page


@pytest.mark.parametrize(
    ("page", "text", "seen"),
    [
        ("docs/ui.md", "[a](visibility.md#who)", "[a](visibility.md#who)"),
        ("docs/policies/delay.md", "[a](../asking.md)", "[a](../asking.md)"),
        (
            "docs/ui.md",
            "[a](../charts/makeway/rbac/ui.yaml)",
            f"[a]({REPOSITORY}/blob/main/charts/makeway/rbac/ui.yaml)",
        ),
        ("docs/ui.md", "[a](reference)", f"[a]({REPOSITORY}/blob/main/docs/reference)"),
        ("docs/start.md", "[a](../README.md)", "[a](index.md)"),
        ("README.md", "[a](docs/ui.md) ![b](docs/demo.svg)", "[a](ui.md) ![b](demo.svg)"),
        ("README.md", '<img src="docs/icon.svg">', '<img src="icon.svg">'),
        ("README.md", "[a](https://kwok.sigs.k8s.io) [b](#why)", "[a](https://kwok.sigs.k8s.io) [b](#why)"),
    ],
)
def test_a_link_stays_in_the_site_or_leads_to_the_repository(page: str, text: str, seen: str) -> None:
    assert located(text, page, REPOSITORY, DOCS) == seen


def test_what_a_page_would_load_from_another_host_is_found() -> None:
    assert (
        foreign('<link rel="canonical" href="https://makeway.github.io/"><a href="https://nats.io">x</a>')
        == []
    )
    assert foreign('<script src="assets/a.js"></script><img src="icon.svg">') == []
    assert (
        len(
            foreign(
                '<script src="https://unpkg.com/a.js"></script><link href=//fonts.gstatic.com rel=preconnect>'
            )
        )
        == 2
    )
