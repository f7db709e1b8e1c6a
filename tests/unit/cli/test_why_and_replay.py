"""`makeway why` and `makeway replay` where there is nothing to be had: what they say, and how they end."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from makeway.cli.connect import session
from makeway.cli.main import app

NOWHERE = ("--nats-url", "nats://127.0.0.1:9")


def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", [("why", "web"), ("why", "ord-1"), ("replay", "dec-1")])
def test_without_nats_a_command_ends_with_3_and_says_where_it_looked(
    command: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_CONNECT_SECONDS", 0.5)

    code, output, error = run(*command, *NOWHERE)

    assert (code, output) == (3, "")
    assert error.startswith("makeway: ")
    assert "127.0.0.1:9" in error


@pytest.mark.parametrize("command", [("why",), ("replay",), ("replay", "dec-1", "--from", "x")])
def test_wrong_usage_ends_with_2(command: tuple[str, ...]) -> None:
    assert run(*command)[0] == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
def test_a_file_that_is_no_decision_is_refused_and_told_how(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "decision.json"
    file.write_bytes(content)

    code, output, error = run("replay", "--from", str(file))

    assert (code, output) == (1, "")
    assert "no exported decision" in error
    assert "makeway replay ID --export FILE" in error


def test_a_file_that_is_not_there_is_told() -> None:
    code, _, error = run("replay", "--from", "nowhere.json")

    assert code == 1
    assert "nowhere.json: cannot be read: no such file or directory" in error
