"""Speak to a cluster's fault proxy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from integration.cluster import RunningCluster
from makeway.dev.fault_rules import Applied, FaultRule


class Faults:
    """The rules of one cluster's proxy."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def add(self, *rules: FaultRule) -> None:
        """Put rules in force."""
        for rule in rules:
            async with self._session.post(f"{self._url}/rules", data=msgspec.json.encode(rule)) as answer:
                assert answer.status == 201, await answer.text()

    async def clear(self) -> None:
        """Take all rules away."""
        async with self._session.delete(f"{self._url}/rules") as answer:
            assert answer.status == 204

    async def applied(self) -> list[Applied]:
        """What was injected since the rules were cleared."""
        async with self._session.get(f"{self._url}/applied") as answer:
            return msgspec.json.decode(await answer.read(), type=list[Applied])


@asynccontextmanager
async def faults_of(cluster: RunningCluster) -> AsyncIterator[Faults]:
    """Connect to a cluster's proxy; without rules at the begin and at the end."""
    async with aiohttp.ClientSession() as session:
        faults = Faults(session, cluster.info.fault_proxy_url)
        await faults.clear()
        try:
            yield faults
        finally:
            await faults.clear()
