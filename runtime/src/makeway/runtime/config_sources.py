"""Where configurations are read from: one ConfigMap each, followed.

A text is read in a thread: one of a mebibyte takes seconds, in which all else goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from makeway.core.k8s.event import Regarding
from makeway.core.k8s.objects import ConfigMap
from makeway.runtime.config import Config, ConfigContent
from makeway.runtime.configmaps import configmap_of
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Observer


class ConfigMapSource:
    """Follows the ConfigMap of a configuration, which takes the right to list and watch that one alone."""

    def __init__(
        self,
        api: ObjectReader,
        config: Config[Any],
        observer: Observer,
        *,
        namespace: str,
        timings: ListWatchTimings | None = None,
    ) -> None:
        name = config.kind.configmap
        self._config = config
        self._where = f"ConfigMap {namespace}/{name}"
        self._uid = ""
        self._content: ConfigContent | None = None  # what is to be read yet
        self._gone = False
        self._changed = asyncio.Event()
        self._watch = ListWatch(api, configmap_of(namespace, name), self, observer, timings)

    def unhealthy(self) -> str:
        """Return what stands in the way of reading it; empty where nothing does."""
        return self._watch.unhealthy()

    async def run(self) -> NoReturn:
        """Follow it for ever."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._watch.run())
            parts.create_task(self._settle_forever())
        raise AssertionError("both run for ever")

    async def settle(self) -> None:
        """Offer the last text that was heard, and withdraw it where it is gone."""
        content, self._content = self._content, None
        if content is not None:
            self._config.offer(content, await asyncio.to_thread(self._config.read, content))
        if self._gone:
            self._gone = False
            self._config.withdraw(self._where)

    # What the list-watch calls.

    def put(self, item: ConfigMap) -> None:
        """Take note of what it holds."""
        metadata, data = item.metadata, item.data or {}
        self._uid, self._gone = metadata.uid, False
        self._content = ConfigContent(
            source=f"{metadata.name}/{self._config.kind.key}",
            text=data.get(self._config.kind.key),
            about=Regarding("v1", "ConfigMap", metadata.namespace, metadata.name, metadata.uid),
            keys=tuple(sorted(data)),
        )
        self._changed.set()

    def drop(self, item: ConfigMap) -> None:
        """Take note that it was deleted, unless another has its name by now."""
        if item.metadata.uid == self._uid:
            self._gone = True
            self._changed.set()

    def retain(self, uids: set[str]) -> None:
        """Take note that a complete list does not have it; one that could not be read is there."""
        if not uids:
            self._gone = True
            self._changed.set()

    async def _settle_forever(self) -> NoReturn:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.settle()
