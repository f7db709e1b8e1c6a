"""What a virtual machine's host keeps from it, and what a test says that fails meanwhile: nothing.

A host that has too many guests stops them for seconds, and then nothing is in time. A test that fails while
more than a tenth of the machine was kept from it fails as `MachineTakenError`, and those are run again, twice
at most (`--only-rerun` in pyproject.toml). No other failure is.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOST = 0.1
"""The share of the machine that a test can do without."""

_STAT = Path("/proc/stat")


class MachineTakenError(Exception):
    """A test failed while it did not have the machine; why is its cause."""


def stolen_seconds() -> float:
    """Read the CPU time that a hypervisor has kept from this machine, of all cores, since it started.

    0 where the system does not tell (proc_stat(5): steal).
    """
    if not _STAT.exists():
        return 0.0
    return int(_STAT.read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def doubted() -> Iterator[None]:
    """Tell a failure apart that came while the machine was taken.

    Raises:
        MachineTakenError: instead of a failure within; the text has the share that was taken.
    """
    began, before = time.monotonic(), stolen_seconds()
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        there = (time.monotonic() - began) * (os.cpu_count() or 1)
        share = (stolen_seconds() - before) / there
        if share <= MOST:
            raise
        raise MachineTakenError(f"{share:.0%} of the machine was taken meanwhile") from error
