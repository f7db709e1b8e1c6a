"""Tell a person what is being built or started, how long that usually takes, and how long it took.

On a terminal a spinner beside the running step; in a pipe plain lines, one when a long step begins and one
when any step ends.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.text import Text


class Progress(Protocol):
    """What building and starting report to."""

    def step(self, what: str, usual_seconds: float = 0) -> AbstractContextManager[None]:
        """Begin a step; it ends with the context. `usual_seconds` 0: short, a pipe sees only its end."""
        ...

    def note(self, text: str) -> None:
        """Say one thing that is no step."""
        ...


class SilentProgress:
    """Reports nothing; for callers that show their own."""

    @contextmanager
    def step(self, what: str, usual_seconds: float = 0) -> Iterator[None]:
        """Begin a step."""
        yield

    def note(self, text: str) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class _Countdown:
    """A step, with the seconds until it usually ends. `ends`: on the monotonic clock; 0: not known."""

    what: str
    ends: float

    def __rich__(self) -> Text:
        """Return it as it is now; a spinner draws it several times a second."""
        left = self.ends - time.monotonic()
        return Text(f"{self.what}: {left:.0f} s" if left > 0 else self.what)


class ConsoleProgress:
    """Reports to a console; standard error by default, since standard output is for shell exports."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, what: str, usual_seconds: float = 0) -> Iterator[None]:
        """Begin a step."""
        usual = f", about {usual_seconds:.0f} s" if usual_seconds else ""
        began = time.monotonic()
        try:
            if self._console.is_terminal:
                with self._console.status(_Countdown(what, began + usual_seconds if usual_seconds else 0.0)):
                    yield
            else:
                if usual_seconds:
                    self.note(f"{what}{usual} ...")
                yield
        except BaseException:
            self.note(f"{what}: failed after {time.monotonic() - began:.1f} s")
            raise
        self.note(f"{what}: {time.monotonic() - began:.1f} s")

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, soft_wrap=True)
