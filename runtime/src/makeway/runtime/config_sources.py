"""Where configurations are read from: one ConfigMap, followed; or a file, looked at every second."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import structlog

from makeway.core.k8s.event import Regarding
from makeway.core.k8s.objects import ConfigMap
from makeway.runtime.config import Config, ConfigContent
from makeway.runtime.configmaps import configmap_of
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Observer
from makeway.runtime.settings import ConfigSettings

FILE_SECONDS: Final = 1.0
"""Between two looks at a file. They are small, and read whole, as mounted ones change by a link."""

_log = structlog.get_logger()

T = TypeVar("T")


class ConfigMapSource:
    """Follows one ConfigMap by name, which takes the right to list and watch that one alone."""

    def __init__(
        self,
        api: ObjectReader,
        config: Config[Any],
        observer: Observer,
        *,
        namespace: str,
        name: str,
        timings: ListWatchTimings | None = None,
    ) -> None:
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


class FileSource:
    """Reads one file again and again. One that cannot be read counts as gone."""

    def __init__(self, config: Config[Any], path: Path) -> None:
        self._config = config
        self._path = path
        self._trouble = ""

    def unhealthy(self) -> str:
        """Return what stands in the way of reading it; empty where nothing does."""
        return self._trouble

    async def run(self) -> NoReturn:
        """Look at it for ever."""
        while True:
            self.poll()
            await asyncio.sleep(FILE_SECONDS)

    def poll(self) -> None:
        """Offer what it holds now."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            if not self._trouble:
                _log.warning("config_file_unreadable", config=self._config.kind.name, error=str(error))
            self._trouble = f"{self._path}: {error}"
            self._config.withdraw(str(self._path))
            return
        self._trouble = ""
        self._config.offer(ConfigContent(source=str(self._path), text=text))


class NoSource:
    """Nothing to read: there is no such configuration, by option."""

    def __init__(self, config: Config[Any]) -> None:
        config.withdraw("its ConfigMap's name is empty, and so it")

    def unhealthy(self) -> str:
        """Nothing stands in the way."""
        return ""

    async def run(self) -> NoReturn:
        """Do nothing for ever."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing sets its result")


Source = ConfigMapSource | FileSource | NoSource


def source_for(
    config: Config[Any], api: ObjectReader, observer: Observer, settings: ConfigSettings
) -> Source:
    """Return where a configuration is read from: the file, else the ConfigMap of that name, else nothing."""
    configmap, file = settings.place_of(config.kind.name)
    if file is not None:
        return FileSource(config, file)
    if configmap:
        return ConfigMapSource(api, config, observer, namespace=settings.namespace, name=configmap)
    return NoSource(config)
