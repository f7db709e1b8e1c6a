"""Locks on files: the kernel releases them when their holder dies, however it dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def hold(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[IO[str]]:
    """Hold the lock while the context lasts; where another has it, call `on_wait` and wait for it.

    The file is empty; the holder may write there who it is.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        yield file


def holder(path: Path) -> int | None:
    """The process id the holder wrote; None where no process holds the lock, or it has not written yet."""
    if not held(path):
        return None
    text = path.read_text()
    return int(text) if text.isdecimal() else None


def held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
