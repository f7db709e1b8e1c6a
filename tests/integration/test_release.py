"""A release but for the push: two clones of a commit make the same files, and its wheel runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from makeway.dev.paths import CHECKOUT
from makeway.dev.release.make import SUMS

PACKAGES = (
    "*.whl",
    "makeway-*.tar.gz",
    "makeway-chart-*.tgz",
    "kubectl-makeway-*.tar.gz",
    "makeway.krew.yaml",
    "makeway-[0-9]*.spdx.json",
    "makeway-scheduler-*-k1.37.spdx.json",
)


def made_in(clone: Path) -> Path:
    """Clone what is committed, make a release of it without schedulers, and return its directory."""
    subprocess.run(["git", "clone", "--quiet", CHECKOUT, clone], check=True)
    sources = os.pathsep.join(str(path) for path in sorted(clone.glob("*/src")))
    uv = shutil.which("uv") or str(CHECKOUT / ".tools" / "bin" / "uv")
    made = clone / "build" / "release"
    subprocess.run(
        [sys.executable, "-m", "makeway.dev.release", made, "--uv", uv, "--packages-only"],
        env={**os.environ, "PYTHONPATH": sources},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return made


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_two_clones_make_the_same_files_and_the_wheel_gives_the_command(tmp_path: Path) -> None:
    first, second = made_in(tmp_path / "a"), made_in(tmp_path / "elsewhere" / "b")

    assert (first / SUMS).read_text() == (second / SUMS).read_text()
    assert all(len(list(first.glob(pattern))) == 1 for pattern in PACKAGES)

    venv.create(tmp_path / "installed", with_pip=True)
    (wheel,) = first.glob("*.whl")
    subprocess.run([tmp_path / "installed" / "bin" / "pip", "install", "--quiet", wheel], check=True)
    makeway = tmp_path / "installed" / "bin" / "makeway"
    shown = run(makeway, "--help").stdout
    planning = run(makeway, "simulate", "--help")

    assert "simulate" in shown
    assert "demo" not in shown
    assert "pip install 'makeway[services]'" in planning.stderr
    assert run(makeway, "policy", "lint", "--help").returncode == 0
    assert run(makeway, "why", "--help").returncode == 0
