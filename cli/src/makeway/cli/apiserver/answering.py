"""Answer a question: run the command that answers it to an administrator, and show what a tenant may see.

Each runs in a child process. Whatever a question makes it do ends with the time, the CPU and the memory that
it has, and holds up nothing else; planning for thousands of nodes holds Python's lock for seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from makeway.bus.queue_report import QueueReport
from makeway.cli.apiserver.bounds import CPU, MEMORY
from makeway.cli.apiserver.question import TenantQuestion
from makeway.cli.apiserver.tenant_view import TenantView
from makeway.cli.errors import NEGATIVE
from makeway.cli.why.explanation import Explanation
from makeway.planner.offline.results import SimulationReport

_COMMAND: Final = (sys.executable, "-m", "makeway.cli.apiserver.child")
_UNEXPECTED: Final = "Traceback (most recent call last)"

_MESSAGE: Final = 2000
"""Characters of a child's last words that are told."""


@dataclass(frozen=True)
class Bounds:
    """Of one question. answer_bytes: of what the command prints."""

    seconds: float = 30.0
    cpu_seconds: int = 30
    memory_bytes: int = 1 << 30
    answer_bytes: int = 8 << 20


@dataclass(frozen=True)
class Answer:
    """What is told. `status`: of HTTP. `message`: what went wrong, else empty. `log`: for the operator."""

    status: int
    body: bytes = b""
    message: str = ""
    log: str = ""


@dataclass(frozen=True)
class Answerer:
    """environment: by which the command finds NATS, the API server and makeway's namespace."""

    environment: Mapping[str, str]
    bounds: Bounds = field(default_factory=Bounds)
    command: tuple[str, ...] = _COMMAND

    async def answer(self, question: TenantQuestion) -> Answer:
        """Return the answer, or why there is none; never raises for what the child does."""
        try:
            async with asyncio.timeout(self.bounds.seconds):
                code, output, errors = await self._run(question)
        except TimeoutError:
            return Answer(504, message=f"no answer within {self.bounds.seconds:.0f} s")
        return told(question, code, output, errors, self.bounds)

    async def _run(self, question: TenantQuestion) -> tuple[int, bytes, bytes]:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            *question.command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.environment, **_bounded(self.bounds)},
        )
        most = self.bounds.answer_bytes

        async def read(stream: asyncio.StreamReader | None) -> bytes:
            found = await _read(stream, most)
            if len(found) > most:
                # It would wait for ever to be read, and its other stream would not end.
                _kill(process)
            return found

        try:
            output, errors, _ = await asyncio.gather(
                read(process.stdout), read(process.stderr), _write(process.stdin, question.body)
            )
            return await _ended(process), output, errors
        finally:
            _kill(process)
            await _ended(process)


def told(question: TenantQuestion, code: int, output: bytes, errors: bytes, bounds: Bounds) -> Answer:
    """Return what a tenant is told of how a command ended. Pure."""
    if max(len(output), len(errors)) > bounds.answer_bytes:
        return Answer(413, message="the answer is too large: ask about fewer pods")
    view = TenantView(question.namespace)
    lines = errors.decode(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("makeway: ")[:_MESSAGE] if lines else ""
    # Python ends by the same code where something was not expected, and its words are about that.
    if code == NEGATIVE and not any(_UNEXPECTED in line for line in lines):
        status = 400 if question.resource == "simulations" else 404
        return Answer(status, message=view.text(last) or "there is no answer", log=last)
    if code:
        return Answer(503, message="makeway cannot answer now; ask its administrator", log=f"{code}: {last}")
    return Answer(200, _VIEWS[question.resource](view, question, output))


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    """Read to the end, or one byte more than there may be."""
    found = bytearray()
    while stream is not None and len(found) <= most and (part := await stream.read(1 << 16)):
        found += part
    return bytes(found)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the end; for asyncio a process has only ended once its pipes have."""
    await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
    return await process.wait()


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(1 << 16):
        pass


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is None:
        return
    # A command that has ended reads nothing; its exit code says why.
    with contextlib.suppress(ConnectionError):
        stream.write(data)
        await stream.drain()
    stream.close()


def _bounded(bounds: Bounds) -> dict[str, str]:
    # One thread of linear algebra: more take memory that nothing uses.
    return {MEMORY: str(bounds.memory_bytes), CPU: str(bounds.cpu_seconds), "OPENBLAS_NUM_THREADS": "1"}


def _explanation(view: TenantView, _: TenantQuestion, output: bytes) -> bytes:
    return msgspec.json.encode(view.explanation(msgspec.json.decode(output, type=Explanation)))


def _simulation(view: TenantView, _: TenantQuestion, output: bytes) -> bytes:
    return msgspec.json.encode(view.simulation(msgspec.json.decode(output, type=SimulationReport)))


def _queues(view: TenantView, question: TenantQuestion, output: bytes) -> bytes:
    report = msgspec.json.decode(output, type=QueueReport)
    return msgspec.json.encode(view.queues(report, question.name))


_VIEWS: Final[Mapping[str, Callable[[TenantView, TenantQuestion, bytes], Any]]] = {
    "explanations": _explanation,
    "simulations": _simulation,
    "queues": _queues,
}
