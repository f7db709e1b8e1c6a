"""Scheduler extenders in the test's process, and schedulers that ask them.

An extender is asked about the pods that request its resource, and about no other.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from integration.cluster import RunningCluster
from makeway.dev.options import SCHEDULER
from served import served_in_threads

SHUT = "shut"
"""An extender that filters rejects the nodes that have this in their name."""

_HANGS_SECONDS = 0.2


@dataclass(frozen=True)
class Extender:
    """One extender: what the scheduler's configuration says of it, and how it answers."""

    ignored: bool = False
    """Whether NodeResourcesFit does not look at its resource (`ignoredByScheduler`)."""
    ignorable: bool = False
    answers: str = "filters"
    """`filters`, `fails` (with status 500), or `hangs` (for longer than its `httpTimeout`)."""


EXTENDERS = {
    "ignored": Extender(ignored=True),
    "counted": Extender(),
    "fails": Extender(ignorable=True, answers="fails"),
    "hangs": Extender(ignorable=True, answers="hangs"),
}


def resource(name: str) -> str:
    """Return the extended resource that an extender is asked about."""
    return f"{name}.extender.makeway.dev/asked"


OFFERED = tuple(resource(name) for name, one in EXTENDERS.items() if not one.ignored)
"""The resources that nodes must have."""


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return an ExtenderFilterResult: the nodes of an ExtenderArgs whose names have no `SHUT` in them."""
    names: list[str] = asked.get("NodeNames") or asked.get("nodenames") or []
    return {
        "NodeNames": [name for name in names if SHUT not in name],
        "FailedNodes": {name: "shut" for name in names if SHUT in name},
    }


@contextmanager
def extenders() -> Iterator[list[dict[str, Any]]]:
    """Run every one of EXTENDERS within the block; give them as a scheduler's configuration names them."""
    with served_in_threads(_answer) as url:
        yield [_configured(url, name, one) for name, one in EXTENDERS.items()]


def _configured(url: str, name: str, extender: Extender) -> dict[str, Any]:
    return {
        "urlPrefix": f"{url}/{name}",
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "ignorable": extender.ignorable,
        "httpTimeout": f"{_HANGS_SECONDS}s" if extender.answers == "hangs" else "5s",
        "managedResources": [{"name": resource(name), "ignoredByScheduler": extender.ignored}],
    }


def _answer(path: str, body: bytes) -> tuple[int, bytes]:
    answers = EXTENDERS[path.split("/")[1]].answers
    if answers == "hangs":
        time.sleep(2 * _HANGS_SECONDS)
    return 500 if answers == "fails" else 200, json.dumps(answer(json.loads(body))).encode()


@asynccontextmanager
async def asking(cluster: RunningCluster, configured: list[dict[str, Any]]) -> AsyncIterator[None]:
    """Have a cluster's scheduler ask extenders within the block; it is restarted before and after."""
    argv = cluster.process(SCHEDULER).program.argv
    (path,) = (Path(one.removeprefix("--config=")) for one in argv if one.startswith("--config="))
    before = await asyncio.to_thread(path.read_text)

    async def restart_with(text: str) -> None:
        await asyncio.to_thread(path.write_text, text)
        await cluster.stop(SCHEDULER)
        await cluster.start(SCHEDULER)

    await restart_with(yaml.safe_dump({**yaml.safe_load(before), "extenders": configured}))
    try:
        yield
    finally:
        await restart_with(before)
