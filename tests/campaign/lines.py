"""Cut, silence and slow the lines of makeway's processes to NATS and the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from makeway.dev.options import NATS
from makeway.dev.partitions import line_name
from makeway.dev.site import API_LINE

SLOW_MILLISECONDS = 800
_SILENT = {"type": "timeout", "attributes": {"timeout": 0}}
_SLOW = {"type": "latency", "attributes": {"latency": SLOW_MILLISECONDS, "jitter": SLOW_MILLISECONDS // 2}}


def ends(what: str, nats_servers: int) -> list[str]:
    """Name the ends of the lines that are meant by `api`, `nats` or `all`."""
    servers = [NATS if number == 1 else f"{NATS}-{number}" for number in range(1, nats_servers + 1)]
    return {"api": [API_LINE], "nats": servers, "all": [API_LINE, *servers]}[what]


class Lines:
    """The lines of one cluster, by toxiproxy's own API."""

    def __init__(self, session: aiohttp.ClientSession, url: str, nats_servers: int) -> None:
        self._session = session
        self._url = f"{url}/proxies"
        self._nats_servers = nats_servers

    async def spoil(self, process: str, what: str, how: str) -> None:
        """Spoil a process's lines: `cut`: refused and broken; `silent`: nothing passes; `slow`."""
        for line in self._lines(process, what):
            if how == "cut":
                await self._send(line, {"enabled": False})
                continue
            toxic = _SILENT if how == "silent" else _SLOW
            for stream in ("upstream", "downstream"):
                await self._send(f"{line}/toxics", {**toxic, "name": stream, "stream": stream})

    async def mend(self, process: str, what: str) -> None:
        """Open the lines again. Each is made anew: to take a toxic off, toxiproxy waits for who waits for it.

        Connections end with the old line, so that bytes that were swallowed are missed by both ends.
        """
        for line in self._lines(process, what):
            async with self._session.get(f"{self._url}/{line}") as answer:
                known = await answer.json()
            async with self._session.delete(f"{self._url}/{line}") as answer:
                assert answer.status == 204, await answer.text()
            fresh = {name: known[name] for name in ("name", "listen", "upstream")}
            async with self._session.post(self._url, json={**fresh, "enabled": True}) as answer:
                assert answer.status == 201, await answer.text()

    def _lines(self, process: str, what: str) -> list[str]:
        return [line_name(process, end) for end in ends(what, self._nats_servers)]

    async def _send(self, path: str, body: object) -> None:
        async with self._session.post(f"{self._url}/{path}", json=body) as answer:
            assert answer.status == 200, await answer.text()


@asynccontextmanager
async def lines_of(url: str, nats_servers: int) -> AsyncIterator[Lines]:
    """Connect to a cluster's toxiproxy."""
    # toxiproxy answers browsers with 403.
    async with aiohttp.ClientSession(headers={"User-Agent": "makeway-tests"}) as session:
        yield Lines(session, url, nats_servers)
