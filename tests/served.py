"""HTTP servers in this process, each with one function that answers all that it is asked."""

import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[str, bytes], tuple[int, bytes]]
"""The status and the body, by the path and what was sent."""


@asynccontextmanager
async def served(
    handler: Handler, *, port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve on 127.0.0.1 inside the block; gives the port."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.05)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextmanager
def served_in_threads(answer: Answer, address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[str]:
    """Serve inside the block, without an event loop; gives the URL."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = answer(self.path, self.rfile.read(int(self.headers["Content-Length"] or 0)))
            with suppress(BrokenPipeError):  # whoever asked waits no longer
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - as the base names it

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(address, Answering)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
