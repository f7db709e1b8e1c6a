"""When the tests of what other tests are made with are run: the checker, the campaign, `makeway dev`, ...

They are marked `tools`. With `--tools=changed` they are left out on a branch that has changed none of their
code; main runs them all, and so does `make test-tools`.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CODE: Final = (
    "bus/src/",  # the checker reads messages by it
    "dev/",
    "pyproject.toml",
    "tests/campaign/",
    "tests/conftest.py",
    "tests/integration/conftest.py",
    "tests/integration/test_control_plane.py",
    "tests/once_more.py",
    "tests/tool_tests.py",
    "tests/unit/dev/",
    "uv.lock",
)
"""Where the code and the tests are, files and directories of the repository."""

MAIN: Final = "main"


def are_due(changed: Iterable[str] | None) -> bool:
    """Report whether the tests are run, by the paths that a branch has changed; None: not known. Pure."""
    return changed is None or any(path.startswith(CODE) for path in changed)


def changed_paths(root: Path) -> list[str] | None:
    """Return what differs from the commit of main from which the branch of a checkout began, the working tree
    with it; None where that is not known: no git, no main, or nothing differs, as on main itself.
    """
    if _git(root, "symbolic-ref", "--short", "--quiet", "HEAD") == MAIN:
        return None
    bases = (_git(root, "merge-base", name, "HEAD") for name in (f"origin/{MAIN}", MAIN))
    base = next(filter(None, bases), "")
    if not base:
        return None
    differ = _git(root, "diff", "--name-only", "--no-renames", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return [*differ.splitlines(), *new.splitlines()] or None


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints; empty where it fails."""
    try:
        done = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
