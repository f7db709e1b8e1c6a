"""The page's model does no I/O, and knows nothing of the edge; nothing below knows of the page."""

import ast
from collections.abc import Iterator
from pathlib import Path

from makeway.dev.paths import CHECKOUT

_IO = ("aiohttp", "asyncio", "nats", "socket", "starlette", "structlog", "time", "uvicorn", "makeway.ui.edge")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_model_imports_no_io_and_not_the_edge() -> None:
    modules = sorted((CHECKOUT / "ui/src/makeway/ui/model").glob("*.py"))

    assert len(modules) > 5
    for module in modules:
        found = [one for one in imported(module) if any(f"{one}.".startswith(f"{io}.") for io in _IO)]
        assert found == [], module.name


def test_nothing_below_imports_the_page() -> None:
    for part in ("bus", "core", "runtime", "planner", "evictor", "nominator", "cli"):
        for module in (CHECKOUT / part / "src").rglob("*.py"):
            assert not [one for one in imported(module) if one.startswith("makeway.ui")], module
