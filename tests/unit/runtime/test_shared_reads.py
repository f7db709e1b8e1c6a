"""Reads that serve several: no answer is older than its question, or than it may last."""

import asyncio

import pytest

from makeway.evictor.retry import TemporaryError
from makeway.runtime.shared_reads import SharedReads


class Server:
    """Holds a number. A read finds what is held when it begins, and is answered when it is let go."""

    def __init__(self, **options: float) -> None:
        self.reads = SharedReads(self.read, **options)
        self.value = 0
        self.begun: list[str] = []
        self._answers: list[asyncio.Future[int]] = []
        self._values: list[int] = []

    async def read(self, key: str) -> int:
        self.begun.append(key)
        self._values.append(self.value)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    def ask(self, *keys: str) -> list[asyncio.Task[int]]:
        return [asyncio.ensure_future(self.reads(key)) for key in keys]

    async def answer(self, number: int, error: Exception | None = None) -> None:
        await settled()
        if error is None:
            self._answers[number].set_result(self._values[number])
        else:
            self._answers[number].set_exception(error)
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_read_answers_all_who_asked_while_another_was_under_way() -> None:
    server = Server()

    first = server.ask("a")
    await settled()
    others = server.ask(*["a"] * 20)
    await server.answer(0)
    await server.answer(1)

    assert await asyncio.gather(*first, *others) == [0] * 21
    assert server.begun == ["a", "a"]


async def test_an_answer_is_never_older_than_its_question() -> None:
    server = Server()

    first = server.ask("a")
    await settled()
    server.value = 1
    second = server.ask("a")
    await server.answer(0)
    server.value = 2
    third = server.ask("a")
    await server.answer(1)
    await server.answer(2)

    assert await asyncio.gather(*first, *second, *third) == [0, 1, 2]


async def test_nothing_is_kept_once_it_is_answered() -> None:
    server = Server()

    for number in range(3):
        server.value = number
        (asked,) = server.ask("a")
        await server.answer(number)
        assert await asked == number


async def test_keys_do_not_wait_for_one_another() -> None:
    server = Server()

    asked = server.ask("a", "b")
    await settled()

    assert server.begun == ["a", "b"]
    await server.answer(1)
    assert (asked[0].done(), asked[1].done()) == (False, True)
    asked[0].cancel()


async def test_a_read_that_hangs_holds_up_its_own_askers_only() -> None:
    server = Server(patience=0.0)

    (hanging,) = server.ask("a")
    await settled()
    (other,) = server.ask("a")
    await asyncio.sleep(0.01)
    await server.answer(1)

    assert (hanging.done(), await other) == (False, 0)
    await server.answer(0)
    (later,) = server.ask("a")
    await server.answer(2)
    assert [await hanging, await later] == [0, 0]


async def test_an_error_is_everybodys_who_shared_the_read_and_the_next_read_is_a_new_one() -> None:
    server = Server()

    (first,) = server.ask("a")
    await settled()
    sharing = server.ask("a", "a")
    await server.answer(0)
    await server.answer(1, TemporaryError("unavailable", "gone"))

    assert await first == 0
    ends = await asyncio.gather(*sharing, return_exceptions=True)
    assert [type(end) for end in ends] == [TemporaryError, TemporaryError]
    (later,) = server.ask("a")
    await server.answer(2)
    assert await later == 0


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_who_is_cancelled_takes_nothing_from_the_others(cancelled: int) -> None:
    server = Server()

    asked = server.ask("a")
    await settled()
    asked += server.ask("a", "a")
    await settled()
    asked[cancelled].cancel()
    await settled()
    if cancelled != 0:
        await server.answer(0)
    await server.answer(1)

    assert await asked[2] == 0
    assert asked[cancelled].cancelled()


async def test_an_answer_that_may_serve_for_a_while_serves_from_when_its_read_began() -> None:
    loop = asyncio.get_running_loop()
    asked: list[str] = []

    async def read(key: str) -> float:
        asked.append(key)
        return loop.time()

    reads = SharedReads(read, lasts=0.05)

    first = await reads("a")
    again = await reads("a")
    await reads("b")
    await asyncio.sleep(0.06)
    later = await reads("a")

    assert first == again
    assert later - first > 0.05
    assert asked == ["a", "b", "a"]
