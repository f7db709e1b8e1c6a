"""Play the demo, open the page on its cluster, and keep what a browser shows: `make screenshots`.

Every picture is of a real run: the control plane that `makeway dev build` builds, and Debian's chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

from makeway.dev.demo.runner import CLUSTER
from makeway.dev.paths import CHECKOUT

SIZES: Final = ((1280, 760), (390, 844))
SCHEMES: Final = ("light", "dark")
VIEWS: Final = {
    "main": {
        "now": "/",
        "timeline": "/timeline",
        "story": "/story?what=demo/fraud-check",
    },
    "external": {"cluster": "/cluster?pod={pending}"},
    "quota": {"queues": "/queues"},
}
"""By scenario of the demo: names of pictures, and addresses. Of external pods are left pending."""

_DRAWN_MILLISECONDS: Final = 4_000
"""For a plan, and for what the parts answer."""

_PRINTED: Final = re.compile(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]+)")


def main() -> None:
    """Write the pictures of every scenario."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("error: there is no chromium: make browser installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scenario, views in VIEWS.items():
            with _played(scenario), _page_served() as (address, token):
                for scheme, (width, height) in product(SCHEMES, SIZES):
                    context = browser.new_context(
                        color_scheme="dark" if scheme == "dark" else "light",
                        viewport={"width": width, "height": height},
                    )
                    page = context.new_page()
                    page.goto(f"{address}/?token={token}")
                    page.get_by_text("connected", exact=True).wait_for()
                    for name, path in views.items():
                        _draw(page, address, path, directory / f"{name}-{width}-{scheme}.png")
                    context.close()
        browser.close()


def _makeway(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "makeway"), *arguments]


@contextmanager
def _played(scenario: str) -> Iterator[None]:
    """Play a scenario, and leave its cluster up for as long as it is looked at."""
    subprocess.run(_makeway("demo", scenario, "--keep"), check=True, cwd=CHECKOUT)
    try:
        yield
    finally:
        subprocess.run(_makeway("dev", "down", "--name", CLUSTER), check=True, cwd=CHECKOUT)


@contextmanager
def _page_served() -> Iterator[tuple[str, str]]:
    """Run `makeway ui` on the cluster; yield its address and its token."""
    found = subprocess.run(
        _makeway("dev", "env", "--name", CLUSTER), check=True, capture_output=True, text=True
    )
    said = dict(re.findall(r"^export (\w+)=(\S+)$", found.stdout, re.MULTILINE))
    command = _makeway("ui", "--kubeconfig", said["KUBECONFIG"], "--nats-url", said["NATS_URL"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            printed = _PRINTED.search(running.stdout.readline() if running.stdout else "")
            if printed is None:
                sys.exit("error: makeway ui printed no address")
            yield printed[1], printed[2]
        finally:
            running.terminate()


def _draw(page: Page, address: str, path: str, picture: Path) -> None:
    page.goto(address + path.format(pending=_pending(page, address) if "{" in path else ""))
    page.wait_for_timeout(_DRAWN_MILLISECONDS)
    page.screenshot(path=picture)


def _pending(page: Page, address: str) -> str:
    """Return a pod of crunch that is pending, as the page offers it: one for which no room can be made."""
    page.goto(f"{address}/cluster")
    option = page.locator("select[name=pod] option", has_text="crunch").first
    option.wait_for(state="attached")
    return option.get_attribute("value") or ""


if __name__ == "__main__":
    main()
