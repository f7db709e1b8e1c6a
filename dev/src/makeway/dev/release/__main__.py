"""Make the files of a release: `python -m makeway.dev.release DIRECTORY --uv uv`.

Nothing is pushed, and no registry is asked but for what is built from. `--packages-only` leaves out the
schedulers, each of which compiles Kubernetes where the cache lacks it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from makeway.dev.errors import DevError
from makeway.dev.minors import MINORS
from makeway.dev.progress import ConsoleProgress
from makeway.dev.release.make import ARCHITECTURES, Release, make


def main(arguments: Sequence[str] | None = None) -> int:
    """Make them; return 1 where something failed or did not come out the same twice."""
    parser = argparse.ArgumentParser(description="Make the files of a release, and push nothing.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--packages-only", action="store_true", help="leave the schedulers out")
    asked = parser.parse_args(arguments)
    release = Release(
        directory=asked.directory,
        uv=asked.uv,
        minors=MINORS,
        architectures=() if asked.packages_only else ARCHITECTURES,
    )
    try:
        sums = make(release, ConsoleProgress())
    except DevError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(sums, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
