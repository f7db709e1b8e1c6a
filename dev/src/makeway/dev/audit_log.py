"""What really happened, read from the API server's audit log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class AuditEvent:
    """One request that was answered.

    `request` and `response`: bodies, for deletes of pods and patches of status.
    """

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    code: int
    at: datetime
    """When the request came."""
    dry_run: bool
    request: dict[str, Any] | None
    response: dict[str, Any] | None

    @property
    def accepted(self) -> bool:
        """Whether the API server did what was asked; after a dry run nothing is done."""
        return 200 <= self.code < 300 and not self.dry_run

    @property
    def precondition_uid(self) -> str:
        """The UID a delete was conditional on; empty where there was none."""
        return str(((self.request or {}).get("preconditions") or {}).get("uid", ""))

    @property
    def target(self) -> str:
        """The node a binding names."""
        return str(((self.request or {}).get("target") or {}).get("name", ""))


class AuditLog:
    """A cluster's audit log, from the time this is made on, or with `whole` from its beginning."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._path = path
        self._offset = 0 if whole else path.stat().st_size

    def events(self, **wanted: str) -> Iterator[AuditEvent]:
        """Give the events written since this was made, in order, whose fields have these values.

        For example `events(verb="delete", resource="pods", subresource="", namespace=space.namespace)`.
        """
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                event = _event(json.loads(line))
                if all(getattr(event, field) == value for field, value in wanted.items()):
                    yield event


def _event(raw: dict[str, Any]) -> AuditEvent:
    """Read one line. Source: audit.k8s.io/v1 Event."""
    reference = raw.get("objectRef") or {}
    return AuditEvent(
        verb=raw["verb"],
        resource=reference.get("resource", ""),
        subresource=reference.get("subresource", ""),
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        user=raw["user"]["username"],
        code=(raw.get("responseStatus") or {}).get("code", 0),
        at=datetime.fromisoformat(raw["requestReceivedTimestamp"]),
        dry_run="dryRun=" in raw["requestURI"],
        request=raw.get("requestObject"),
        response=raw.get("responseObject"),
    )
