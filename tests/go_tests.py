"""Tests of the plugin in Go that a test in Python prepares."""

import os
import shutil
import subprocess

import pytest

from makeway.dev.binaries import GO_ENVIRONMENT
from makeway.dev.paths import PLUGIN_MODULE

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def go_test(*arguments: str, **environment: str) -> None:
    """Run `go test` in the plugin's module; it has to pass, and is run even where it has passed before."""
    ran = subprocess.run(
        ("go", "test", "-count=1", *arguments),
        cwd=PLUGIN_MODULE,
        env={**os.environ, **GO_ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
