"""A collector of traces in the test's process: it takes spans by OTLP over HTTP and keeps them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from served import served_in_threads

ATTRIBUTES = "makeway."


@dataclass(frozen=True)
class CollectedSpan:
    """One span: of which service, in which trace, under which other (empty: none), and what it says."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    said: dict[str, str]


@dataclass
class Collector:
    """The spans that came, and where they are sent."""

    address: tuple[str, int]
    _serving: ExitStack = field(default_factory=ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _spans: list[CollectedSpan] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        """The URL that spans are sent to."""
        host, port = self.address
        return f"http://{host}:{port}"

    def serve(self) -> None:
        """Take what is sent, from now on."""
        self._serving.enter_context(served_in_threads(self._answer, self.address))

    def stop(self) -> None:
        """Take nothing more."""
        self._serving.close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuse connections for the length of a block."""
        self.stop()
        with _taken(self.address):
            yield
        self.serve()

    def spans(self, trace: str = "") -> list[CollectedSpan]:
        """Return those of a trace, or all."""
        with self._lock:
            return [span for span in self._spans if trace in ("", span.trace)]

    def _answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.take(ExportTraceServiceRequest.FromString(body))
        return 200, b""

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of a request."""
        found = []
        for sent in request.resource_spans:
            (service,) = (
                one.value.string_value for one in sent.resource.attributes if one.key == "service.name"
            )
            found += [
                CollectedSpan(
                    service=service,
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                    said={
                        one.key.removeprefix(ATTRIBUTES): one.value.string_value for one in span.attributes
                    },
                )
                for scope in sent.scope_spans
                for span in scope.spans
            ]
        with self._lock:
            self._spans += found


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector within the block."""
    with _taken(("127.0.0.1", 0)) as address:
        collector = Collector(address)
    collector.serve()
    try:
        yield collector
    finally:
        collector.stop()


@contextmanager
def _taken(address: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """Hold a port, any where it is 0, at which none listens; give its address."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
        host, port = held.getsockname()
        yield host, port
