import asyncio
import os
import re
import signal

import pytest
from structlog.testing import capture_logs

from makeway.runtime.process import identity, run_until_signalled


async def for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_every_part_and_the_process_with_success(number: signal.Signals) -> None:
    ended = []

    async def part(name: str) -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0.01)
            ended.append(name)

    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
    code = await run_until_signalled(part("one"), part("two"))

    assert code == 0
    assert sorted(ended) == ["one", "two"]


async def test_a_part_that_fails_ends_the_others_and_the_process_with_failure() -> None:
    cancelled = asyncio.Event()

    async def other() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def broken() -> None:
        await asyncio.sleep(0.01)
        raise RuntimeError("the snapshot is gone")

    with capture_logs() as lines:
        code = await run_until_signalled(other(), broken())

    assert code == 1
    assert cancelled.is_set()
    (line,) = lines
    assert line["event"] == "part_ended"
    assert line["reason"] == "the snapshot is gone"
    assert isinstance(line["exc_info"], RuntimeError)


async def test_an_expected_error_is_logged_without_its_traceback() -> None:
    async def lost() -> None:
        raise ConnectionError("gone")

    with capture_logs() as lines:
        code = await run_until_signalled(lost(), for_ever(), expected=(ConnectionError,))

    assert code == 1
    assert lines[0]["exc_info"] is None


async def test_a_part_that_returns_is_a_failure_too() -> None:
    async def short() -> None:
        return

    with capture_logs() as lines:
        code = await run_until_signalled(short(), for_ever())

    assert code == 1
    assert "meant to run for ever" in lines[0]["reason"]


async def test_an_error_while_stopping_is_told_and_makes_the_stop_a_failure() -> None:
    async def untidy() -> None:
        try:
            await for_ever()
        finally:
            raise OSError("could not close")

    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
    with capture_logs() as lines:
        code = await run_until_signalled(untidy())

    assert code == 1
    assert [line["event"] for line in lines] == ["stopping", "shutdown_failed"]


def test_an_identity_is_one_token_of_a_subject_and_never_the_same_twice() -> None:
    first, second = identity(), identity()

    assert re.fullmatch(r"[A-Za-z0-9_-]+", first)
    assert first != second
