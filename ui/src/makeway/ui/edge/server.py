"""One HTTP server on one socket, beside what keeps its data up to date."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

import uvicorn

from makeway.ui.edge.guard import App

_MOST_CONNECTIONS: Final = 200


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError: the port is taken, or not ours."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


async def serve(app: App, where: socket.socket) -> None:
    """Answer until cancelled; open connections are ended then."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        server_header=False,
        proxy_headers=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    # The process has its own handlers, for all that runs in it.
    setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010 - it is a method to the type checker
    try:
        await server.serve(sockets=[where])
    finally:
        where.close()
