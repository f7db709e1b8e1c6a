"""How long the page takes in a browser with 5,000 nodes and 10,000 events, and its longest task.

    python -m bench.page [--nodes 5000] [--events 10000]

A task is what holds the browser's main thread without a pause; from 50 ms on a person may notice it. The
server is on the same machine, with data that is made up; the browser is Debian's chromium.
"""

from __future__ import annotations

import resource
import shutil
import time
from typing import Any

from playwright.sync_api import Page, sync_playwright

from bench.options import read_options
from ui_page import TOKEN, MadeUpPage, story_messages

_WATCH = """
window.longest = 0; window.blocked = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) {
    window.longest = Math.max(window.longest, one.duration);
    window.blocked += Math.max(0, one.duration - 50);
  }
}).observe({ type: 'longtask', buffered: true });
"""


def main() -> None:
    """Measure each view and print a line for it."""
    asked = read_options(__doc__, nodes=5_000, events=10_000)
    made_up = MadeUpPage(count=asked.events, nodes=asked.nodes)
    with made_up.served() as address, sync_playwright() as playwright:
        path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True).new_page()
        page.add_init_script(_WATCH)
        page.goto(f"{address}/?token={TOKEN}")
        print(f"{asked.nodes} nodes, {asked.events} events, {len(made_up.reader.timeline)} entries")
        loaded = "document.querySelector('.count')?.textContent.includes('loading') === false"
        measure(page, f"{address}/", "now", "document.querySelectorAll('.tile').length === 4")
        measure(page, f"{address}/timeline", "timeline", loaded)
        measure(page, f"{address}/timeline?result=refused", "filtered", loaded)
        measure(page, f"{address}/cluster", "grid", "document.querySelectorAll('.group').length > 2")
        opened = "[...document.querySelectorAll('.group')].forEach((one) => { one.open = true; })"
        act(page, "grid opened", opened, "document.querySelectorAll('button.cell').length >= 1500")
        measure(page, f"{address}/observe", "observe", "document.querySelectorAll('tbody tr').length > 1")
        page.goto(f"{address}/timeline")
        page.wait_for_function(loaded)
        busy(page, made_up)
        heap = page.evaluate("performance.memory.usedJSHeapSize / 2 ** 20")
        print(f"browser's heap {heap:.0f} MiB; server and test {_rss():.0f} MiB at most")
        browser.close()


def measure(page: Page, url: str, name: str, ready: str) -> None:
    """Load a view, and print how long it took until it was whole."""
    started = time.perf_counter()
    page.goto(url)
    page.wait_for_function(ready, timeout=120_000)
    took = time.perf_counter() - started
    page.wait_for_timeout(2000)
    _print(page, name, took)


def act(page: Page, name: str, script: str, ready: str) -> None:
    """Do something on a view, and print how long it took."""
    page.evaluate("window.longest = 0; window.blocked = 0")
    started = time.perf_counter()
    page.evaluate(script)
    page.wait_for_function(ready, timeout=60_000)
    took = time.perf_counter() - started
    page.wait_for_timeout(2000)
    _print(page, name, took)


def busy(page: Page, made_up: MadeUpPage) -> None:
    """Let 1,000 preemptions come within ten seconds on the open timeline."""
    page.evaluate("window.longest = 0; window.blocked = 0")
    messages = story_messages(1000, made_up.now, seed=7)
    started = time.perf_counter()
    for number, message in enumerate(messages):
        made_up.put(message)
        if number % 250 == 0:
            page.wait_for_timeout(1000)
    _print(page, "1,000 more", time.perf_counter() - started)


def _print(page: Page, name: str, took: float) -> None:
    found: dict[str, Any] = page.evaluate("({ longest: window.longest, blocked: window.blocked })")
    longest, blocked = found["longest"], found["blocked"]
    print(f"{name:12} {took:6.2f} s, longest task {longest:5.0f} ms, beyond 50 ms {blocked:5.0f} ms in all")


def _rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
