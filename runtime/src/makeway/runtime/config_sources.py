"""Where configurations are read from: one ConfigMap each, followed."""

from __future__ import annotations

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
        self._watch = ListWatch(api, configmap_of(namespace, name), self, observer, timings)

    def unhealthy(self) -> str:
        """Return what stands in the way of reading it; empty where nothing does."""
        return self._watch.unhealthy()

    async def run(self) -> NoReturn:
        """Follow it for ever."""
        await self._watch.run()

    # What the list-watch calls.

    def put(self, item: ConfigMap) -> None:
        """Offer what it holds."""
        metadata, data = item.metadata, item.data or {}
        self._uid = metadata.uid
        self._config.offer(
            ConfigContent(
                source=f"{metadata.name}/{self._config.kind.key}",
                text=data.get(self._config.kind.key),
                about=Regarding("v1", "ConfigMap", metadata.namespace, metadata.name, metadata.uid),
                keys=tuple(sorted(data)),
            )
        )

    def drop(self, item: ConfigMap) -> None:
        """Withdraw what was deleted, unless another has its name by now."""
        if item.metadata.uid == self._uid:
            self._config.withdraw(self._where)

    def retain(self, uids: set[str]) -> None:
        """Withdraw what a complete list does not have; one that could not be read is there all the same."""
        if not uids:
            self._config.withdraw(self._where)
