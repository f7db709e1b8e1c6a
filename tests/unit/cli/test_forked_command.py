"""A fork of the process that has imported the commands says what the command says in a process of its own."""

import asyncio
import subprocess
import sys

import pytest

from forked_command import ENVIRONMENT, run_forked


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--version"], {}),
        (["keys", "show", "--help"], {"COLUMNS": "60"}),
        (["policy", "lint", "/nonexistent.yaml"], {}),
        (["mode", "--no-such-option"], {}),
        (["history"], {"MAKEWAY_KUBECONFIG": "/nonexistent.yaml"}),
    ],
)
async def test_a_fork_says_what_a_process_says(arguments: list[str], environment: dict[str, str]) -> None:
    given = {**ENVIRONMENT, **environment}
    command = [sys.executable, "-c", "from makeway.cli.main import main; main()", *arguments]
    alone = await asyncio.to_thread(
        subprocess.run, command, env=given, capture_output=True, text=True, check=False
    )

    assert await run_forked(arguments, given) == (alone.returncode, alone.stdout, alone.stderr)
