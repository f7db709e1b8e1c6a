"""Each view, light and dark, by the rules of axe-core: WCAG 2.2 A and AA, and its best practices."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from browser.conftest import opened
from makeway.ui.edge.app import VIEWS

pytestmark = pytest.mark.browser

PATHS = (
    *VIEWS,
    "/cluster?pod=shop/waiting-2&node=node-0005",
    "/story?what=ord-00000004",
    "/story?what=dec-00000000",
    "/story?what=batch/crunch-4-0",
    "/story?what=shop/waiting-2",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_breaks_a_rule(browser: Browser, address: str, scheme: str) -> None:
    # axe has to be put into the page, which the page's own policy forbids.
    context, page, complaints = opened(browser, address, color_scheme=scheme, bypass_csp=True)
    broken: dict[str, list[Any]] = {}
    for path in PATHS:
        page.goto(f"{address}{path}")
        page.wait_for_selector("h1")
        page.wait_for_timeout(1500)
        found = Axe().run(page).response["violations"]
        if found:
            broken[path] = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
    context.close()

    assert broken == {}
    assert complaints == []
