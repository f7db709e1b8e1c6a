"""Reading the brake: fresh before an eviction, shared by all who ask, and safe where it cannot be read."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import background
from makeway.core.policy.brake import RELEASED, Brake
from makeway.runtime.brake import FRESH_SECONDS, BrakeMetrics, BrakeReader
from makeway.runtime.config_metrics import ConfigMetrics
from makeway.runtime.kube import ApiError, ApiUnavailable
from typed_calls import SilentWatch

SET = {"mode": "off", "by": "ops"}
FORBIDDEN = ApiError(403, "Forbidden", 'configmaps "makeway-brake" is forbidden')


class FakeApi(SilentWatch):
    """One ConfigMap, or none. `answers` are awaited before a read is answered; a watch says nothing."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.error: Exception | None = None
        self.reads = 0
        self.gates: list[asyncio.Event] = []
        self.lists = 0

    async def request(self, method: str, path: str, **_: object) -> bytes:
        if path.endswith("/configmaps"):
            self.lists += 1
            return b'{"metadata": {"resourceVersion": "1"}, "items": []}'
        assert path == "/api/v1/namespaces/ns/configmaps/makeway-brake"
        self.reads += 1
        data, error = self.data, self.error
        if self.gates:
            await self.gates.pop(0).wait()
        if error is not None:
            raise error
        if data is None:
            raise ApiError(404, "NotFound", "not found")
        return msgspec.json.encode({"metadata": {"name": "makeway-brake"}, "data": data})


class World:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.now = 100.0
        self.registry = CollectorRegistry()
        self.reader = BrakeReader(
            self.api,
            BrakeMetrics(self.registry),
            ConfigMetrics(self.registry),
            namespace="ns",
            clock=lambda: self.now,
        )

    def engaged(self, scope: str) -> float | None:
        return self.registry.get_sample_value("makeway_brake", {"scope": scope})


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def test_an_answer_older_than_a_second_is_read_anew_before_an_eviction() -> None:
    world = World()
    assert await world.reader.fresh() == RELEASED

    world.api.data = SET
    world.now += FRESH_SECONDS
    assert await world.reader.fresh() == RELEASED  # a second is allowed, and costs no request
    assert world.api.reads == 1

    world.now += 0.001
    assert (await world.reader.fresh()).everywhere
    assert world.api.reads == 2
    assert (world.engaged("cluster"), world.engaged("namespaces")) == (1, 0)


async def test_all_who_ask_at_once_share_one_read() -> None:
    world = World()

    await asyncio.gather(*(world.reader.fresh() for _ in range(32)))

    assert world.api.reads == 1


async def test_a_read_that_hangs_is_not_what_a_later_question_is_answered_with() -> None:
    world = World()
    hanging = asyncio.Event()
    world.api.gates = [hanging]
    first = asyncio.create_task(world.reader.fresh())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.api.data = SET
    world.now += FRESH_SECONDS + 0.1

    assert (await world.reader.fresh()).everywhere

    hanging.set()
    assert (await first).everywhere, "the older answer must not undo the younger"


@pytest.mark.parametrize("error", [FORBIDDEN, ApiUnavailable("timed out")])
async def test_without_an_answer_it_raises_and_says_so(error: Exception) -> None:
    world = World()
    world.api.error = error

    with pytest.raises(type(error)):
        await world.reader.fresh()
    assert "cannot be read, so nothing is evicted" in world.reader.unsynced()

    world.api.error = None
    assert await world.reader.fresh() == RELEASED
    assert world.reader.unsynced() == ""


async def test_what_was_read_before_is_no_answer_once_it_cannot_be_read() -> None:
    world = World()
    await world.reader.fresh()
    world.api.error = FORBIDDEN
    world.now += FRESH_SECONDS + 0.1

    with pytest.raises(ApiError):
        await world.reader.fresh()
    assert "forbidden" in world.reader.unhealthy()


async def test_a_change_that_the_watch_tells_of_is_read_and_told_at_once() -> None:
    world = World()
    told: list[Brake] = []
    world.reader.subscribe(lambda: told.append(world.reader.current))
    async with background(world.reader.run()):
        await eventually(world.reader.known.is_set)
        await eventually(lambda: world.api.lists == 1)
        world.api.data = {"mode": "off", "namespaces": "a b"}
        world.reader.retain(set())
        await eventually(lambda: world.reader.current.scope() == "a, b")
        assert world.engaged("namespaces") == 2
        world.api.data = None
        world.reader.retain(set())
        await eventually(lambda: not world.reader.current.engaged)
    assert [brake.scope() for brake in told] == ["", "a, b", ""]
