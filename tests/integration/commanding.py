"""Calling `makeway mode` in this process: a new one may need longer than an order lives."""

from __future__ import annotations

import asyncio

from typer.testing import CliRunner

from integration.cluster import RunningCluster
from makeway.cli.mode.command import app


async def mode(cluster: RunningCluster, *arguments: str) -> tuple[int, str, str]:
    """Call the command; return its exit code, stdout and stderr."""
    result = await asyncio.to_thread(
        CliRunner().invoke, app, [*arguments, f"--kubeconfig={cluster.info.kubeconfig}"]
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr
