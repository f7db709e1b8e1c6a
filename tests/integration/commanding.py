"""Calling commands of `makeway` in this process: a new one may need longer than an order lives."""

import asyncio

from typer import Typer
from typer.testing import CliRunner

from integration.cluster import RunningCluster
from makeway.cli.mode.command import app


async def mode(cluster: RunningCluster, *arguments: str) -> tuple[int, str, str]:
    """Call `makeway mode`; return its exit code, stdout and stderr."""
    return await command(cluster, app, *arguments)


async def command(cluster: RunningCluster, called: Typer, *arguments: str) -> tuple[int, str, str]:
    """Call a command as in a pipe that bounds no width; return its exit code, stdout and stderr."""
    result = await asyncio.to_thread(
        CliRunner(env={"COLUMNS": None}).invoke,
        called,
        [*arguments, f"--kubeconfig={cluster.info.kubeconfig}"],
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr
