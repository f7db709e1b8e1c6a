"""On which checkouts the tests of tools are run."""

import subprocess
from pathlib import Path

import pytest

from tool_tests import CODE, are_due, changed_paths

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[3]


def git(root: Path, *arguments: str) -> None:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(("git", *named, *arguments), cwd=root, check=True, capture_output=True)


def commit(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(path)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "README.md")
    return tmp_path


def test_all_are_run_on_main_whatever_differs(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed")

    assert changed_paths(checkout) is None


def test_a_branch_is_compared_with_where_it_left_main(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "-b", "work")
    commit(checkout, "planner/a.py")
    git(checkout, "checkout", "-q", "main")
    commit(checkout, "dev/src/later.py")
    git(checkout, "checkout", "-q", "work")

    assert changed_paths(checkout) == ["planner/a.py"]
    assert not are_due(changed_paths(checkout))


@pytest.mark.parametrize("committed", [True, False])
def test_what_is_committed_counts_and_what_is_not(checkout: Path, committed: bool) -> None:
    git(checkout, "checkout", "-q", "-b", "work")
    commit(checkout, "planner/a.py")
    commit(checkout, "dev/src/tool.py")
    if not committed:
        git(checkout, "reset", "-q", "HEAD~1")

    assert are_due(changed_paths(checkout))


def test_every_place_of_their_code_is_there() -> None:
    assert [path for path in CODE if not (ROOT / path).exists()] == []
