"""The labels that nodes had over time, from the answers of the API server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from makeway.dev.audit_log import AuditEvent

_NO_LABELS: Mapping[str, str] = {}


class NodeLabels:
    """Every node's labels. `known`: whether the log has any node at all."""

    def __init__(self, requests: Iterable[AuditEvent]) -> None:
        self._versions: defaultdict[str, list[tuple[datetime, Mapping[str, str]]]] = defaultdict(list)
        for event in requests:
            if event.resource != "nodes" or event.subresource or not event.accepted or not event.response:
                continue
            shown = event.response.get("metadata") or {}
            gone = event.verb in ("delete", "deletecollection")
            name = event.name or str(shown.get("name", ""))
            self._versions[name].append(
                (event.answered_at, _NO_LABELS if gone else shown.get("labels") or {})
            )
        for versions in self._versions.values():
            versions.sort(key=lambda version: version[0])

    @property
    def known(self) -> bool:
        """Report whether the log has any node."""
        return bool(self._versions)

    def values(self, node: str, key: str, since: datetime, until: datetime) -> set[str]:
        """Return the values that a node's label had at some moment of a time. O(versions of the node)."""
        found: set[str] = set()
        for at, labels in self._versions.get(node, ()):
            if at > until:
                break
            if at <= since:
                found.clear()
            if key in labels:
                found.add(labels[key])
        return found
