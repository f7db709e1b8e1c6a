"""What really happened, read from the API server's audit log."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True)
class AuditEvent:
    """One request that was answered.

    `request` and `response`: bodies, for writes of pods, groups and nodes; `request` for bindings and the
    scheduler's Events.
    """

    verb: str
    group: str
    """The API group; empty for the core group."""
    resource: str
    """Empty for a path that is no resource."""
    subresource: str
    namespace: str
    name: str
    uri: str
    user: str
    code: int
    at: datetime
    """When the request came."""
    answered_at: datetime
    """When it had been carried out."""
    dry_run: bool
    request: dict[str, Any] | None
    response: dict[str, Any] | None

    @property
    def accepted(self) -> bool:
        """Whether the API server did what was asked; after a dry run nothing is done."""
        return 200 <= self.code < 300 and not self.dry_run

    @property
    def precondition_uid(self) -> str:
        """The UID a delete, or an eviction, was conditional on; empty where there was none."""
        return str((self.delete_options.get("preconditions") or {}).get("uid", ""))

    @property
    def precondition_revision(self) -> str:
        """The resourceVersion a delete, or an eviction, was conditional on; empty where there was none."""
        return str((self.delete_options.get("preconditions") or {}).get("resourceVersion", ""))

    @property
    def delete_options(self) -> dict[str, Any]:
        """The options of a delete or an eviction."""
        body = self.request or {}
        return (body.get("deleteOptions") or {}) if self.subresource == "eviction" else body

    @property
    def removes_pod(self) -> bool:
        """Whether it asks for the end of one pod, by a delete or by an eviction."""
        asked = (self.verb, self.subresource)
        return self.resource == "pods" and asked in (("delete", ""), ("create", "eviction"))

    @property
    def target(self) -> str:
        """The node a binding names."""
        return str(((self.request or {}).get("target") or {}).get("name", ""))


class AuditLog:
    """A cluster's audit log, from the time this is made on, or with `whole` from its beginning."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._path = path
        self._offset = 0 if whole else path.stat().st_size

    def events(self, *, about: tuple[str, ...] = (), **wanted: str) -> Iterator[AuditEvent]:
        """Return the events written since this was made, in order, whose fields have these values.

        For example `events(verb="delete", resource="pods", subresource="", namespace=space.namespace)`.
        `about`: only lines with one of these texts in them, such as a namespace; others are not decoded.
        """
        texts = [text.encode() for text in about]
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                if texts and not any(text in line for text in texts):
                    continue
                event = _event(_decode(line))
                if all(getattr(event, field) == value for field, value in wanted.items()):
                    yield event


class _Reference(msgspec.Struct, frozen=True):
    api_group: str = msgspec.field(name="apiGroup", default="")
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    """Empty for one whose credentials were refused."""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    """An audit.k8s.io/v1 Event, as far as it is read here."""

    verb: str
    user: _User
    request_received_timestamp: datetime
    stage_timestamp: datetime
    request_uri: str = msgspec.field(name="requestURI")
    object_ref: _Reference = _Reference()
    response_status: _Status = _Status()
    request_object: dict[str, Any] | list[dict[str, Any]] | None = None
    response_object: dict[str, Any] | None = None


def _as_merged(body: dict[str, Any] | list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """Return a JSON patch as the merge patch that says the same: what it adds to what it tests."""
    if not isinstance(body, list):
        return body
    tested = {one.get("path"): one.get("value") for one in body if one.get("op") == "test"}
    merged: dict[str, Any] = {}
    for one in body:
        value = one.get("value")
        if one.get("op") != "test" and isinstance(value, list):
            value = [added for added in value if added not in (tested.get(one.get("path")) or ())]
        *parents, name = str(one.get("path", "")).strip("/").split("/")
        if one.get("op") != "test" or name == "uid":
            inner = merged
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[name] = value
    return merged


_decode = msgspec.json.Decoder(_Line).decode


def _event(line: _Line) -> AuditEvent:
    reference = line.object_ref
    return AuditEvent(
        verb=line.verb,
        group=reference.api_group,
        resource=reference.resource,
        subresource=reference.subresource,
        namespace=reference.namespace,
        name=reference.name,
        uri=line.request_uri,
        user=line.user.username,
        code=line.response_status.code,
        at=line.request_received_timestamp,
        answered_at=line.stage_timestamp,
        dry_run="dryRun=" in line.request_uri,
        request=_as_merged(line.request_object),
        response=line.response_object,
    )
