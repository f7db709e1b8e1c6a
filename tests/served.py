"""An HTTP server in this process, with one handler for all that it is asked."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
