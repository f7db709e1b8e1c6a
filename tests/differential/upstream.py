"""The Go program that asks kube-scheduler's own code: built once, then spoken to line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import msgspec

from makeway.dev.binaries import KUBERNETES, Binary
from makeway.dev.build import ensure
from makeway.dev.paths import CHECKOUT
from makeway.dev.progress import ConsoleProgress

MODULE = CHECKOUT / "tests" / "upstream"
ANSWERS = Binary(
    "upstream-answers",
    "./answers",
    90,
    module=MODULE,
    hash_sources=True,
    tags=KUBERNETES.tag,
    modfile=KUBERNETES.modfile,
)


def build() -> Path:
    """Give the program, built where the cache lacks it."""
    return ensure([ANSWERS], ConsoleProgress())[ANSWERS.name]


@dataclass(frozen=True, slots=True)
class Seeds:
    """Which random clusters: `count` seeds from `first`, of these kinds of constraints (none: all)."""

    first: int
    count: int
    constraints: tuple[str, ...] = ()


def random_cases(program: Path, seeds: Seeds) -> Iterator[bytes]:
    """Give each random cluster with kube-scheduler's answer, as a line of JSON."""
    command = [
        str(program),
        f"-first={seeds.first}",
        f"-count={seeds.count}",
        f"-constraints={','.join(seeds.constraints)}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with {process.returncode}")


class Oracle:
    """Answers one changed cluster after the other."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [str(program), "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )

    def answer(self, cluster: dict[str, Any]) -> dict[str, Any]:
        """Give the cluster with kube-scheduler's answer, or none where it makes no sense. Raises EOFError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(cluster) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"{ANSWERS.name} ended with {self._process.wait()}")
        return cast("dict[str, Any]", msgspec.json.decode(line))

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _environment() -> dict[str, str]:
    # One processor for the filters: several programs run side by side.
    return {**os.environ, "GOMAXPROCS": "1"}
