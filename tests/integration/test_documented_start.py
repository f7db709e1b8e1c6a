"""docs/start.md from its first command to its last, in one shell, with what it says they print."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from makeway.dev import named
from makeway.dev.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "start.md"


def fences() -> list[tuple[str, str]]:
    """Every fenced block of the page: its language and its text."""
    return re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def script() -> str:
    """All commands as one program; what comes after a block is marked, to find what it printed."""
    parts = ["set -euo pipefail"]
    for number, (_, commands) in enumerate(block for block in fences() if block[0] == "sh"):
        parts += [commands, f"echo '=== {number}'"]
    return "\n".join(parts)


def shown() -> list[tuple[int, str]]:
    """What the page shows, and the number of the commands that it stands after."""
    commands, found = -1, []
    for language, text in fences():
        if language == "sh":
            commands += 1
        else:
            found.append((commands, text))
    return found


def as_pattern(text: str) -> str:
    """What is shown, with whatever may stand for each … in it."""
    return "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", text.strip()))


@pytest.mark.slow
@pytest.mark.timeout(540)
def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEWAY_STATE", str(tmp_path / "state"))
    try:
        done = subprocess.run(
            ["bash", "-c", script()],
            cwd=CHECKOUT,
            env={**os.environ, "MAKEWAY_STATE": str(tmp_path / "state")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert named.names() == []
    finally:
        for name in named.names():
            named.down(name)

    printed = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)
    for commands, text in shown():
        assert re.search(as_pattern(text), printed[commands], re.DOTALL), printed[commands]
