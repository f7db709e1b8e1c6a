import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from makeway.runtime.http import MOST_CONNECTIONS, RENDERING_SHARE, Server, parse_listen, report, serve

SLOW_SECONDS = 0.01


class Service:
    """A server whose checks a test sets."""

    def __init__(self) -> None:
        self.ready = {"nats": "", "snapshot": ""}
        self.live = {"loop": ""}
        self.registry = CollectorRegistry()
        self.server: Server | None = None

    async def start(self) -> None:
        self.server = await serve(
            "127.0.0.1:0", ready=lambda: self.ready, live=lambda: self.live, registry=self.registry
        )

    async def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        assert self.server
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    await service.start()
    yield service
    assert service.server
    await service.server.close()


async def test_a_ready_service_says_ok(service: Service) -> None:
    status, _, text = await service.get("/readyz")

    assert (status, text) == (200, "ok")


async def test_a_failing_check_is_named_with_its_reason_beside_those_that_pass(service: Service) -> None:
    service.ready["nats"] = "no connection for 3 s"

    status, _, text = await service.get("/readyz")

    assert status == 503
    assert text == "[-]nats failed: no connection for 3 s\n[+]snapshot ok\nreadyz check failed\n"


async def test_verbose_lists_the_checks_of_a_healthy_service(service: Service) -> None:
    status, _, text = await service.get("/healthz?verbose")

    assert (status, text) == (200, "[+]loop ok\nhealthz check passed\n")


async def test_liveness_does_not_ask_for_readiness(service: Service) -> None:
    service.ready["nats"] = "down"

    assert (await service.get("/healthz"))[0] == 200


async def test_metrics_come_in_the_format_that_is_asked_for(service: Service) -> None:
    Counter("makeway_test", "A test.", registry=service.registry).inc()

    plain = await service.get("/metrics")
    open_metrics = await service.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")

    assert plain[1].startswith("text/plain")
    assert "makeway_test_total 1.0" in plain[2]
    assert open_metrics[1].startswith("application/openmetrics-text")
    assert open_metrics[2].endswith("# EOF\n")


class SlowCollector(Collector):
    """Takes its time to say nothing; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        time.sleep(SLOW_SECONDS)
        yield from ()


async def test_metrics_take_a_tenth_of_the_loops_time_however_many_ask(service: Service) -> None:
    slow = SlowCollector()
    service.registry.register(slow)
    assert service.server
    _, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
    slow.asked, begun = 0, time.monotonic()

    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    answers = await asyncio.gather(*(service.get("/metrics") for _ in range(20)))

    assert {status for status, _, _ in answers} == {200}
    rested = (time.monotonic() - begun) / (SLOW_SECONDS / RENDERING_SHARE)
    assert slow.asked <= rested + 2
    writer.close()


async def test_slow_readers_keep_no_one_out_and_are_ended_eldest_first(service: Service) -> None:
    assert service.server
    port = service.server.port
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MOST_CONNECTIONS)]

    assert (await service.get("/healthz"))[0] == 200

    ended = [reader.at_eof() or isinstance(reader.exception(), ConnectionError) for reader, _ in slow]
    assert sum(not one for one in ended) <= MOST_CONNECTIONS
    assert ended == sorted(ended, reverse=True)
    for _, writer in slow:
        writer.close()


async def test_an_address_in_use_is_an_error_of_the_caller(service: Service) -> None:
    assert service.server

    with pytest.raises(OSError, match="address already in use"):
        await serve(f"127.0.0.1:{service.server.port}", ready=dict, live=dict, registry=CollectorRegistry())


@pytest.mark.parametrize(
    ("listen", "parsed"),
    [(":9464", ("", 9464)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_listen_addresses_are_host_and_port(listen: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(listen) == parsed


@pytest.mark.parametrize("listen", ["", "9464", "host:", "host:http", ":70000", ":-1"])
def test_other_listen_addresses_are_refused_with_an_example(listen: str) -> None:
    with pytest.raises(ValueError, match="as in :9464"):
        parse_listen(listen)


def test_a_report_without_checks_is_ok() -> None:
    assert report("readyz", {}, verbose=False) == (200, "ok")
