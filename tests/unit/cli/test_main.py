"""The command's shell, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from makeway.cli.main import SUB_COMMANDS, load


def makeway(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", "from makeway.cli.main import main; main()", *arguments)


def installed(executable: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(str(Path(sys.executable).parent / executable), *arguments)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_help_lists_every_sub_command() -> None:
    result = makeway("--help")

    assert result.returncode == 0
    assert all(name in result.stdout for name in SUB_COMMANDS)


def test_the_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['makeway', '--help']\n"
        "from makeway.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "print([m for m in ('numpy', 'nats', 'aiohttp', 'kubernetes_asyncio') if m in sys.modules])\n"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "[]"


def test_the_version_is_the_distributions() -> None:
    assert makeway("--version").stdout == f"makeway {version('makeway')}\n"


@pytest.mark.parametrize("name", sorted(SUB_COMMANDS))
def test_every_sub_command_explains_itself_under_its_own_name(name: str) -> None:
    result = makeway(name, "--help")

    assert result.returncode == 0, result.stderr
    assert f"makeway {name} " in result.stdout


def helps() -> Iterator[tuple[str, Any]]:
    """Every command and sub-command that has a help text, by its name."""
    for name in SUB_COMMANDS:
        command = load(name)
        for path, inner in ((name, command), *getattr(command, "commands", {}).items()):
            if inner.help:
                yield path, inner


@pytest.mark.parametrize(("name", "command"), helps(), ids=lambda value: getattr(value, "name", value))
def test_a_help_text_leaves_the_breaking_of_lines_to_the_terminal(name: str, command: Any) -> None:
    assert not [part for part in command.help.split("\n\n") if "\n" in part], name


def test_a_wrong_sub_command_is_wrong_usage_and_the_right_one_is_suggested() -> None:
    result = makeway("plannr")

    assert result.returncode == 2
    assert "Did you mean 'planner'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_option_is_wrong_usage() -> None:
    result = makeway("audit", "--since", "yesterday")

    assert result.returncode == 2
    assert "--since" in result.stderr


def test_a_service_out_of_reach_is_one_line_on_stderr_and_a_failure() -> None:
    # Port 9 is the discard service's; nobody runs it.
    result = makeway("audit", "--nats-url", "nats://127.0.0.1:9", "--no-follow")

    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("makeway: cannot connect to NATS at 127.0.0.1:9")
    assert len(result.stderr.splitlines()) == 1


def test_called_by_kubectl_it_is_kubectl_makeway() -> None:
    assert "Usage: kubectl makeway [OPTIONS]" in installed("kubectl-makeway", "--help").stdout
    assert "Usage: kubectl makeway queues" in installed("kubectl-makeway", "queues", "--help").stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["qua"], "quarantine"),
        (["quarantine", "li"], "list"),
        (["queues", "-o", ""], "yaml"),
        (["queues", "--makeway-n"], "--makeway-namespace"),
    ],
)
def test_kubectl_is_told_what_could_stand_next(words: list[str], offered: str) -> None:
    lines = installed("kubectl_complete-makeway", *words).stdout.splitlines()

    assert offered in [line.partition("\t")[0] for line in lines]
    assert lines[-1] == ":4"
