"""Known vulnerabilities: what is found fails, and where no database answers that is said, not passed over."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from makeway.dev.vulnerabilities import main
from served import served_in_threads

pytestmark = pytest.mark.tools

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def osv() -> Iterator[str]:
    """Give the URL of a server that knows no page."""
    with served_in_threads(lambda path, body: (404, b"")) as url:
        yield url


@pytest.fixture
def go_database(tmp_path: Path) -> str:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "db.json").write_text("{}")
    return tmp_path.as_uri()


def program(directory: Path, name: str, code: int) -> str:
    """Write a program that notes what it was called with, and ends with a code."""
    path = directory / name
    path.write_text(
        f'#!{sys.executable}\nimport sys\nopen("{path}.called", "w").write(" ".join(sys.argv[1:]))\n'
    )
    path.write_text(path.read_text() + f"sys.exit({code})\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("uv", "govulncheck"), [(0, 0), (1, 0), (0, 3)])
def test_what_either_tool_finds_fails(
    tmp_path: Path, osv: str, go_database: str, uv: int, govulncheck: int
) -> None:
    tools = [
        f"--uv={program(tmp_path, 'uv', uv)}",
        f"--govulncheck={program(tmp_path, 'govulncheck', govulncheck)}",
    ]

    assert main([*tools, f"--osv={osv}", f"--go-database={go_database}"]) == int((uv, govulncheck) != (0, 0))

    assert (tmp_path / "uv.called").read_text() == f"audit --frozen --service-url {osv}/"
    assert (tmp_path / "govulncheck.called").read_text() == f"-db {go_database} ./..."


def test_where_no_database_answers_it_is_told_and_an_error_only_where_it_is_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = [f"--uv={program(tmp_path, 'uv', 1)}", f"--govulncheck={program(tmp_path, 'govulncheck', 1)}"]
    databases = [f"--osv={NOWHERE}", f"--go-database={(tmp_path / 'none').as_uri()}"]

    assert main([*tools, *databases]) == 0
    told = capsys.readouterr().err
    assert told.count("skipped: ") == 2
    assert f"{NOWHERE}/ cannot be reached" in told
    assert not (tmp_path / "uv.called").exists()

    assert main([*tools, *databases, "--require"]) == 1
    assert capsys.readouterr().err.count("error: ") == 2
