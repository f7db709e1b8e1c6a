"""The tools that check the chart, built on first use."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures_nats import nats_binary, nats_server
from makeway.dev.binaries import CHART_TOOLS
from makeway.dev.build import ensure
from makeway.dev.progress import ConsoleProgress

__all__ = ["nats_binary", "nats_server"]

Run = Callable[..., str]


@pytest.fixture(scope="session")
def run() -> Run:
    """Give a function that runs one of the tools and gives what it printed; it fails where the tool does."""
    built = ensure(CHART_TOOLS, ConsoleProgress())

    def call(tool: str, *arguments: str | Path, stdin: str = "", cwd: Path | None = None) -> str:
        done = subprocess.run(
            [built[tool], *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=cwd,
        )
        assert done.returncode == 0, f"{tool} {' '.join(map(str, arguments))}\n{done.stdout}"
        return done.stdout

    return call
