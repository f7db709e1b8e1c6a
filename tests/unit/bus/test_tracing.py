"""What carries a trace over NATS, and what becomes of spans; the whole is in integration/test_tracing.py."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.bus import metrics, tracing
from makeway.bus.exporting import exporting
from makeway.bus.otlp import MOST_WAITING
from served import served_in_threads

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WELL_FORMED = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def silent_collector() -> Iterator[str]:
    """Give the URL of a collector that takes spans and answers when the test is over."""
    over = threading.Event()

    def silent(path: str, body: bytes) -> tuple[int, bytes]:
        over.wait(60)
        return 200, b""

    with served_in_threads(silent) as url:
        yield url
        over.set()


@pytest.fixture
def traced(silent_collector: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have this process trace."""
    monkeypatch.setattr("makeway.bus.otlp.CLOSE_SECONDS", 0.1)
    with ExitStack() as closing:
        closing.enter_context(exporting(silent_collector, service="test", instance="one"))
        yield


def spans(result: str) -> float:
    return sum(
        sample.value
        for family in metrics.SPANS.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels["result"] == result
    )


def test_a_well_formed_traceparent_is_taken() -> None:
    assert tracing.traceparent_of({"traceparent": WELL_FORMED}) == WELL_FORMED


@pytest.mark.parametrize(
    "value",
    [
        "",
        WELL_FORMED.upper(),
        WELL_FORMED + "\n",
        f"01-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-\u0660\u0661",
        "\x00" * 55,
        "a" * 1_000_000,
    ],
)
def test_any_other_counts_as_none(value: str) -> None:
    assert tracing.traceparent_of({"traceparent": value}) == ""


@given(st.text(max_size=80))
def test_no_text_raises(value: str) -> None:
    assert tracing.traceparent_of({"traceparent": value}) in ("", value)


def test_a_message_without_headers_has_none() -> None:
    assert tracing.traceparent_of(None) == ""
    assert tracing.traceparent_of({"Nats-Msg-Id": WELL_FORMED}) == ""


def test_nothing_of_opentelemetry_is_loaded_where_there_are_no_traces() -> None:
    program = (
        "import sys\n"
        "from makeway.bus import tracing\n"
        "from makeway.bus.exporting import exporting\n"
        "import makeway.evictor.process, makeway.nominator.process, makeway.planner.service.process\n"
        "with exporting('', service='s', instance='i'), tracing.span('plan', '', node='n'):\n"
        "    tracing.tell('no')\n"
        "    preemption = tracing.begin('preemption')\n"
        "    with preemption.current():\n"
        "        assert tracing.headers() == {}\n"
        "    preemption.end()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.usefixtures("traced")
def test_a_span_goes_on_with_the_trace_of_its_message() -> None:
    with tracing.span("evict", WELL_FORMED):
        (outer,) = tracing.headers().values()
        with tracing.span("delete"):
            (inner,) = tracing.headers().values()

    assert outer.split("-")[1] == inner.split("-")[1] == TRACE
    assert len({PARENT, outer.split("-")[2], inner.split("-")[2]}) == 3
    assert tracing.headers() == {}


@pytest.mark.usefixtures("traced")
def test_a_message_without_a_trace_begins_one() -> None:
    with tracing.span("plan", WELL_FORMED), tracing.span("evict", ""):
        (header,) = tracing.headers().values()

    assert tracing.traceparent_of(tracing.headers() or {"traceparent": header}) == header
    assert TRACE not in header


@pytest.mark.usefixtures("traced")
def test_a_preemption_is_the_parent_of_what_is_done_within_it() -> None:
    preemption = tracing.begin("preemption", preemptor="a/b")

    with preemption.current():
        (root,) = tracing.headers().values()
        with tracing.span("request"):
            (request,) = tracing.headers().values()
    preemption.end("it failed", result="failed")
    preemption.end()

    assert root.split("-")[1] == request.split("-")[1]
    assert tracing.headers() == {}


@pytest.mark.usefixtures("traced")
def test_spans_that_a_collector_does_not_take_are_dropped_and_counted() -> None:
    before = spans("dropped")

    for _ in range(4 * MOST_WAITING):
        with tracing.span("plan", ""):
            pass

    assert spans("dropped") - before >= MOST_WAITING


@pytest.mark.parametrize(
    "endpoint",
    [
        "collector:4318",
        "http://",
        "grpc://collector:4317",
        "http://collector:99999",
        "http://[::1",
        "http://collector:4318?x=1",
    ],
)
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with (
        pytest.raises(ValueError, match="not a URL such as"),
        exporting(endpoint, service="test", instance="one"),
    ):
        pass


def test_an_endpoint_with_a_password_is_refused_without_saying_it() -> None:
    with (
        pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused,
        exporting("http://user:secret@collector:4318", service="test", instance="one"),
    ):
        pass

    assert "secret" not in str(refused.value)
