"""Keeping the record of tolerations: every planner reads it into its snapshot, the leading one writes it.

It is written by compare-and-set on its resourceVersion, and holds every class that tolerates preemption and
every class that did when it was deleted. An entry ends with a change of its class, or by a person's hand. The
planner may patch that one ConfigMap, and make none; whoever installs makeway does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

import structlog

from makeway.core.k8s.event import Regarding
from makeway.core.k8s.objects import ConfigMap, PriorityClass
from makeway.core.policy.toleration import tolerates
from makeway.core.policy.toleration_record import (
    CONFIGMAP,
    MOST,
    UNREAD_RECORD,
    RecordError,
    entry_of,
    parse_record,
)
from makeway.core.text import counted
from makeway.planner.snapshot.changes import PutTolerationRecord
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.configmaps import configmap_of
from makeway.runtime.events import EventSink
from makeway.runtime.kube import MERGE_PATCH, ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Observer
from makeway.runtime.process import until_set

RETRY_SECONDS: Final = 10.0
"""How long after a write that has no effect, or failed, it is looked at again where nothing is heard."""

_log = structlog.get_logger()


class RecordApi(ObjectReader, Protocol):
    """What is used of `makeway.runtime.kube.Api`."""

    @property
    def core(self) -> Any:
        """The typed API of ConfigMaps."""

    async def call(self, operation: Any, *arguments: object, **options: Any) -> bytes:
        """Call an operation of it; raises ApiError or ApiUnavailable."""


def revised(
    entries: Mapping[str, str], tolerating: Mapping[str, str], others: Iterable[str]
) -> tuple[dict[str, str | None], list[str]]:
    """Return how a record is to change, by name (None: removed), and the classes that it has no room for.

    `entries`: what it holds. `tolerating`: the entries of classes that tolerate; `others`: those that exist
    and do not. Of more than MOST the oldest by their creation have no room, classes that are gone first.
    O(classes log classes).
    """
    silent = set(others)
    wanted = {name: text for name, text in entries.items() if name not in silent} | dict(tolerating)
    classes = parse_record(wanted).classes

    def rank(name: str) -> tuple[bool, float, str]:
        created = classes[name].metadata.creation_timestamp
        return name in tolerating, created.timestamp() if created else 0.0, name

    out = sorted(wanted, key=rank)[: max(0, len(wanted) - MOST)]
    for name in out:
        del wanted[name]
    changes: dict[str, str | None] = {name: None for name in entries if name not in wanted}
    return changes | {name: text for name, text in wanted.items() if entries.get(name) != text}, out


class TolerationKeeper:
    """The record in one planner, and a handler of the PriorityClasses' list-watch."""

    def __init__(
        self,
        api: RecordApi,
        snapshot: Snapshot,
        recorder: EventSink,
        observer: Observer,
        *,
        namespace: str,
    ) -> None:
        """`namespace`: makeway's own."""
        self._api = api
        self._snapshot = snapshot
        self._recorder = recorder
        self._namespace = namespace
        self._seen: dict[str, PriorityClass] = {}  # those that tolerate, by UID
        self._unwritten: dict[str, str] = {}  # entries of classes that went before they were on record
        self._map: ConfigMap | None = None  # as it is there; None: it is not
        self._record = UNREAD_RECORD  # the last that could be read
        self._trouble = f"ConfigMap {namespace}/{CONFIGMAP} has not been read"
        self._told: set[str] = set()
        self._warned = self._trouble
        self._changed = asyncio.Event()
        patient = ListWatchTimings(longest_pause=60.0)
        followed = configmap_of(namespace, CONFIGMAP)
        self._watch = ListWatch(api, followed, _RecordHandler(self), observer, patient)
        self._apply()

    @property
    def revision(self) -> str:
        """Its resourceVersion as it is in the snapshot; empty where it is not there."""
        return "" if self._map is None else self._map.metadata.resource_version

    async def run(self) -> NoReturn:
        """Follow the record for ever."""
        await self._watch.run()

    async def keep_forever(self) -> NoReturn:
        """Write the record, and tell of classes that are gone: this planner leads."""
        self._told.clear()
        while True:
            self._changed.clear()
            await self._write()
            self._tell()
            await until_set(self._changed, RETRY_SECONDS)

    def read(self, found: ConfigMap | None) -> None:
        """Take over the record as it is there; where it is not, or cannot be used, the last one holds."""
        self._map, trouble = found, ""
        if found is None:
            trouble = f"there is no ConfigMap {CONFIGMAP}"
        else:
            try:
                self._record = parse_record(found.data or {})
            except RecordError as error:
                trouble = str(error)
        if trouble and trouble != self._trouble:
            _log.warning("toleration_record_unusable", error=trouble)
        self._trouble = trouble
        entries = (found.data if found is not None else None) or {}
        self._unwritten = {name: one for name, one in self._unwritten.items() if entries.get(name) != one}
        self._apply()
        self._changed.set()

    # What the list-watch of the PriorityClasses calls, after the snapshot has them.

    def put(self, item: PriorityClass) -> None:
        """Note a class that tolerates."""
        if tolerates(item):
            self._seen[item.metadata.uid] = item
            self._unwritten.pop(item.metadata.name, None)
        else:
            self._seen.pop(item.metadata.uid, None)
        self._changed.set()

    def drop(self, item: PriorityClass) -> None:
        """Keep what a class said that is gone."""
        self._gone(item.metadata.uid)

    def retain(self, uids: set[str]) -> None:
        """Keep what classes said that a complete list does not have."""
        for uid in self._seen.keys() - uids:
            self._gone(uid)
        self._changed.set()

    def _gone(self, uid: str) -> None:
        item = self._seen.pop(uid, None)
        if item is None:
            return
        name, entry = item.metadata.name, entry_of(item)
        if self._map is None or (self._map.data or {}).get(name) != entry:
            self._unwritten[name] = entry
            self._apply()
        self._changed.set()

    def _apply(self) -> None:
        """Put into the snapshot what is on record, and what is about to be."""
        due = parse_record(self._unwritten).classes
        known = {**self._record.classes, **due}
        before = self._snapshot.exemptions.record
        if before.known != self._record.known or before.classes != known:
            classes = tuple(known.values()) if self._record.known else None
            self._snapshot.apply(PutTolerationRecord(classes))

    async def _write(self) -> None:
        if self._trouble != self._warned:
            self._warned = self._trouble
            if self._trouble:
                meaning = "what was read of the record before holds, and nothing is written to it"
                self._warn("TolerationRecordUnreadable", f"{self._trouble}; {meaning}")
        if self._map is None or self._trouble:
            return
        entries = self._map.data or {}
        existing = self._snapshot.priority_classes
        tolerating = self._unwritten | {one.metadata.name: entry_of(one) for one in self._seen.values()}
        changes, out = revised(entries, tolerating, existing.keys() - tolerating.keys())
        for name in out:
            self._unwritten.pop(name, None)
        if not changes:
            return
        metadata = {"resourceVersion": self._map.metadata.resource_version}
        try:
            await self._api.call(
                self._api.core.patch_namespaced_config_map,
                CONFIGMAP,
                self._namespace,
                {"metadata": metadata, "data": changes},
                field_manager="makeway-planner",
                _content_type=MERGE_PATCH,
            )
        except (ApiError, ApiUnavailable) as error:
            _log.warning("toleration_record_not_written", error=str(error))
            return
        _log.info("toleration_record_written", classes=sorted(changes))
        for name in out:
            self._warn(
                "TolerationRecordFull",
                f"the record holds {MOST} classes, so PriorityClass {name} is not on it any more: where the "
                "class is gone, its pods can be preempted. Remove entries of classes that are not used",
            )

    def _tell(self) -> None:
        """Say once of each class that is gone and has pods still that it protects them, and how to end it."""
        gone = self._snapshot.exemptions.gone_classes()
        for name in gone.keys() - self._told:
            patch = f'{{"data":{{"{name}":null}}}}'
            pods = counted(gone[name], "pod")
            self._warn(
                "TolerationOutlivesClass",
                f"PriorityClass {name} is gone; its annotations still exempt {pods} of it from preemption. "
                "To end that, remove its entry from this record: kubectl patch configmap -n "
                f"{self._namespace} {CONFIGMAP} --type merge -p '{patch}'; or make the class anew without "
                "the annotations",
            )
        self._told = set(gone)

    def _warn(self, reason: str, note: str) -> None:
        if self._map is not None:
            metadata = self._map.metadata
            about = Regarding("v1", "ConfigMap", metadata.namespace, metadata.name, metadata.uid)
            self._recorder.record(about, "Warning", reason, "Preemption", note)


class _RecordHandler:
    """Hands the one ConfigMap to its keeper."""

    def __init__(self, keeper: TolerationKeeper) -> None:
        self._keeper = keeper

    def put(self, item: ConfigMap) -> None:
        """Take it as it is there."""
        self._keeper.read(item)

    def drop(self, item: ConfigMap) -> None:
        """Note that it was deleted."""
        self._keeper.read(None)

    def retain(self, uids: set[str]) -> None:
        """Note where a complete list does not have it."""
        if not uids:
            self._keeper.read(None)
