"""One question in a process of its own, within bounds that the kernel keeps: `python -m` this, a command."""

from __future__ import annotations

import os

from makeway.cli.apiserver.bounds import bound


def main() -> None:
    """Take the bounds on, and run the command line."""
    bound(os.environ)
    from makeway.cli.main import main as run  # noqa: PLC0415 - its imports count against the bounds

    run()


if __name__ == "__main__":
    main()
