"""The form of commit subjects, and from which commit on it is held."""

import subprocess
import sys
from pathlib import Path

import pytest

from makeway.dev.commits import problems, subject_of, subjects_since_base

pytestmark = pytest.mark.tools

SOURCE = Path("dev/src/makeway/dev/commits.py")


@pytest.mark.parametrize(
    "subject",
    [
        "Add a test",
        "Need no second read",
        "Pass the time in",
        "Bring the gate down",
        "Focus on one node",
        "A" * 72,
    ],
)
def test_a_subject_in_the_imperative_is_taken(subject: str) -> None:
    assert problems(subject) == []


@pytest.mark.parametrize(
    "subject",
    [
        "A" * 73,
        "Add a test.",
        "add a test",
        "Added a test",
        "Adding a test",
        "Adds a test",
        "A test",
        "fixup! Add a test",
        "WIP: a test",
        "",
    ],
)
def test_any_other_subject_is_refused(subject: str) -> None:
    assert problems(subject)


def test_the_subject_is_the_first_line_that_is_no_comment() -> None:
    message = "# Please enter the message\n\nAdd a test\n\nWhy.\n# ---- >8 ----\ndiff\n"

    assert subject_of(message) == "Add a test"
    assert subject_of("# only comments\n") == ""


class Repository:
    """A git repository in a folder of the test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(("git", *identity, *arguments), cwd=self.root, check=True, capture_output=True)

    def commit(self, subject: str, *, file: Path = Path("file")) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{subject}\n")
        self.git("add", ".")
        self.git("-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--message", subject)

    @property
    def subjects(self) -> list[str]:
        return [subject for _, subject in subjects_since_base(self.root)]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("an old subject from before the rule")
    made.commit("Add the rule", file=SOURCE)
    made.commit("After the rule")
    return made


def test_without_a_tag_commits_older_than_the_rule_are_not_judged(repository: Repository) -> None:
    assert repository.subjects == ["After the rule"]


def test_commits_up_to_the_last_tag_are_not_judged(repository: Repository) -> None:
    repository.git("tag", "v0.1.0")
    repository.commit("After the tag")

    assert repository.subjects == ["After the tag"]


def test_the_command_names_the_refused_commit_and_the_reason(repository: Repository) -> None:
    repository.commit("fixup! Add the rule")

    done = subprocess.run(
        (sys.executable, "-m", "makeway.dev.commits"),
        cwd=repository.root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "'fixup! Add the rule' is of an unfinished commit" in done.stderr
