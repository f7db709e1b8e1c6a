"""A real browser: Debian's chromium, where it is installed (`make browser` installs it)."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from ui_page import TOKEN, MadeUpPage

CHROMIUM = ("chromium-headless-shell", "chromium")
"""Names of Debian's packages, and of what they install."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no chromium: `make browser` installs it")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def made_up() -> MadeUpPage:
    return MadeUpPage()


@pytest.fixture(scope="module")
def address(made_up: MadeUpPage) -> Iterator[str]:
    with made_up.served() as where:
        yield where


def opened(browser: Browser, address: str, **options: Any) -> tuple[BrowserContext, Page, list[str]]:
    """Log in; return a page, and the list to which the browser's complaints are added."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if _complains(said) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda one: complaints.append(one.url) if _failed(one) else None)
    page.goto(f"{address}/?token={TOKEN}")
    page.wait_for_selector("#connection:text-is('connected')")
    return context, page, complaints


def _failed(request: Request) -> bool:
    """Report whether a request failed that the page did not give up itself, by going to another view."""
    return "ERR_ABORTED" not in (request.failure or "")


def _complains(said: ConsoleMessage) -> bool:
    """Report whether a message is more than the browser's note of a refusal that the page shows in words."""
    return said.type == "error" and "422 (Unprocessable" not in said.text


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context, found, complaints = opened(browser, address)
    yield found
    context.close()
    assert complaints == []
