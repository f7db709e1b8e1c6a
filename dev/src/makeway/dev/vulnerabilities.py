"""Known vulnerabilities in what makeway is built from: `make vulnerabilities`.

    python -m makeway.dev.vulnerabilities --uv uv --govulncheck govulncheck [--require]

`uv audit` asks OSV about the Python packages of uv.lock; govulncheck asks Go's database about what the plugin
calls. Where a database cannot be reached, that part is skipped with a notice; with `--require`, as before a
release, that is an error. Copies serve as well: `--go-database file:///…`, in the form of
https://go.dev/doc/security/vuln/database, and `--osv https://…`, a server with OSV's API.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from makeway.dev.paths import CHECKOUT

OSV: Final = "https://api.osv.dev/"
GO_DATABASE: Final = "https://vuln.go.dev"

_PROBE_SECONDS: Final = 10.0
_FOUND_NOTHING: Final = 0


@dataclass(frozen=True)
class Part:
    """One kind of dependency. `probe`: what is read to know whether the database is there."""

    name: str
    database: str
    probe: str
    command: tuple[str, ...]
    directory: str


def parts(uv: str, govulncheck: str, osv: str, go_database: str) -> tuple[Part, ...]:
    """Return what is looked at, and by which command."""
    osv, go_database = osv.rstrip("/") + "/", go_database.rstrip("/")
    audit = (uv, "audit", "--frozen", "--service-url", osv)
    return (
        Part("Python packages", osv, osv, audit, "."),
        Part(
            "Go modules",
            go_database,
            f"{go_database}/index/db.json",
            (govulncheck, "-db", go_database, "./..."),
            "plugin",
        ),
    )


def unreachable(url: str) -> str:
    """Return why a database cannot be asked; empty where it answers, whatever it answers."""
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_SECONDS):  # noqa: S310 - a copy on disk serves as well
            return ""
    except urllib.error.HTTPError:
        return ""
    except (urllib.error.URLError, OSError) as error:
        return str(getattr(error, "reason", error))


def check(part: Part, *, require: bool) -> bool:
    """Look at one part; report whether nothing is against a release."""
    if why := unreachable(part.probe):
        said = f"{part.database} cannot be reached ({why})"
        print(f"error: {part.name}: {said}" if require else f"skipped: {part.name}: {said}", file=sys.stderr)
        return not require
    print(f"{part.name}, by {part.database}", flush=True)
    return (
        subprocess.run(part.command, cwd=CHECKOUT / part.directory, check=False).returncode == _FOUND_NOTHING
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at all parts; return 1 where something was found, or could not be looked at and has to be."""
    parser = argparse.ArgumentParser(description="Look for known vulnerabilities in the dependencies.")
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--govulncheck", default="govulncheck")
    parser.add_argument("--osv", default=OSV, help="a server with OSV's API")
    parser.add_argument("--go-database", default=GO_DATABASE, help="Go's database, or a copy by file://")
    parser.add_argument("--require", action="store_true", help="fail where a database cannot be reached")
    asked = parser.parse_args(arguments)
    found = [
        check(part, require=asked.require)
        for part in parts(asked.uv, asked.govulncheck, asked.osv, asked.go_database)
    ]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
