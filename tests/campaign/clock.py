"""A wall clock that is wrong, for processes written in Python: a library that is loaded before libc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "skewed_clock.c"


def skewed_clock(directory: Path) -> Path | None:
    """Compile the library into a directory; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = directory / "skewed_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)], check=True)
    return library
