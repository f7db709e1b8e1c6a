"""Hold the subjects of commits to the project's form: `python -m makeway.dev.commits [MESSAGE_FILE]`.

With the file of a message, as the commit-msg hook; without one, for every commit since the last tag. Where no
tag is reachable, as in a shallow clone or before the first release, for every commit since the one that added
this file: what is older was written without the rule.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

LONGEST: Final = 72

_SCISSORS: Final = re.compile(r"^# -+ >8 -+$", re.MULTILINE)
_UNFINISHED: Final = re.compile(r"(fixup|squash|amend)!|wip\b|tmp\b", re.IGNORECASE)
_OTHER_FORM: Final = re.compile(r"(?!.*(?:eed|[bpsw]ring|ss)$).*(?:ed|ing|s)$")
"""First words that are no imperative: `Added`, `Adding`, `Adds`; but not `Need`, `Bring`, `Pass`."""
_IMPERATIVE: Final = frozenset({"embed", "focus", "ping", "shed", "sing", "swing"})
_NO_VERB: Final = frozenset(
    {"a", "an", "the", "this", "these", "some", "no", "never", "what", "when", "where"}
)


def problems(subject: str) -> list[str]:
    """Return what is wrong with a subject, in words; nothing where it is well. Pure."""
    if _UNFINISHED.match(subject):
        return ["is of an unfinished commit"]
    found = []
    if len(subject) > LONGEST:
        found.append(f"has {len(subject)} characters, at most {LONGEST}")
    if subject.endswith("."):
        found.append("ends with a period")
    first = re.split(r"[\s:]", subject, maxsplit=1)[0]
    word = first.lower()
    if not first[:1].isupper():
        found.append("does not begin with a capital letter")
    elif word in _NO_VERB or (word not in _IMPERATIVE and _OTHER_FORM.match(word)):
        found.append(f"begins with {first!r}, not with a verb in the imperative")
    return found


def subject_of(message: str) -> str:
    """Return the subject of a message as an editor leaves it, with git's comments in it. Pure."""
    lines = _SCISSORS.split(message)[0].splitlines()
    return next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")


def subjects_since_base(root: Path) -> list[tuple[str, str]]:
    """Return (hash, subject) of the commits that the rule holds for, merges left out; nothing without git."""
    tag = _git(root, "describe", "--tags", "--abbrev=0")
    here = Path(__file__).resolve().relative_to(Path(__file__).resolve().parents[4])
    base = tag or _git(root, "log", "-1", "--diff-filter=A", "--format=%H", "--", str(here))
    log = _git(root, "log", "--no-merges", "--format=%h %s", f"{base}..HEAD") if base else ""
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in log.splitlines()]


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints; empty where it fails: no repository, no such name, no git."""
    try:
        done = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def main() -> None:
    """Check one message, or all commits since the base; name each that is refused, and why."""
    if len(sys.argv) > 1:
        checked = [("", subject_of(Path(sys.argv[1]).read_text()))]
    else:
        checked = subjects_since_base(Path.cwd())
    refused = [
        f"error: {name} {subject!r} {problem}".replace("  ", " ")
        for name, subject in checked
        for problem in problems(subject)
    ]
    if refused:
        sys.exit("\n".join([*refused, "error: see 'Commits' in CONTRIBUTING.md"]))


if __name__ == "__main__":
    main()
