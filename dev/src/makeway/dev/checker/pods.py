"""What every pod was, over time, from the answers of the API server."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

from makeway.dev.audit_log import AuditEvent

MARK_TYPE = "DisruptionTarget"
MIRROR = "kubernetes.io/config.mirror"
NEVER_EVICT = "makeway.dev/never-evict"
MARK_REASON = "PreemptionByScheduler"


@dataclass(frozen=True)
class Version:
    """A pod as one answer showed it. `since`: when that request was answered; `by`: who wrote."""

    since: datetime
    by: str
    revision: int
    node: str
    nominated: str
    marked: bool
    leaving: bool
    gone: bool
    never_evict: bool = False


@dataclass
class PodHistory:
    """One incarnation of a pod.

    `daemon`: a DaemonSet controls it; `pinned_to`: the node that it is for. `mirror`: the image of a static
    pod. `group`: the PodGroup that it names.
    """

    namespace: str
    name: str
    uid: str
    priority: int
    daemon: bool = False
    pinned_to: str = ""
    mirror: bool = False
    grace_period_seconds: int | None = None
    preemption_policy: str = ""
    group: str = ""
    versions: list[Version] = field(default_factory=list)
    bindings: list[tuple[datetime, str]] = field(default_factory=list)
    """Accepted bindings: when, and the node."""

    @property
    def described(self) -> str:
        """For people."""
        return f"pod {self.namespace}/{self.name} ({self.uid})"

    def at(self, moment: datetime) -> Version | None:
        """What it was at a moment; None before it is known."""
        index = bisect_right(self.versions, moment, key=lambda version: version.since)
        return self.versions[index - 1] if index else None

    def after(self, moment: datetime) -> Iterator[Version]:
        """The versions that came later than a moment."""
        return (version for version in self.versions if version.since > moment)

    def bound_by(self, moment: datetime) -> bool:
        """Whether it was bound at a moment: by an accepted binding, or one whose caller died too soon."""
        return any(when <= moment for when, _ in self.bindings) or any(
            version.node and version.since <= moment for version in self.versions
        )

    def node_at(self, moment: datetime) -> str:
        """The node it was bound to at a moment; empty where it was not."""
        version = self.at(moment)
        bound = [node for when, node in self.bindings if when <= moment]
        return (version.node if version else "") or (bound[-1] if bound else "")

    @property
    def gone_at(self) -> datetime | None:
        """When it was removed."""
        return next((version.since for version in self.versions if version.gone), None)

    @property
    def leaving_at(self) -> datetime | None:
        """When its deletion began."""
        return next((version.since for version in self.versions if version.leaving), None)


class Pods:
    """Every pod that was seen, by UID."""

    def __init__(self, requests: Iterable[AuditEvent]) -> None:
        self._by_uid: dict[str, PodHistory] = {}
        self._latest: dict[tuple[str, str], str] = {}
        for event in requests:
            if event.resource != "pods":
                continue
            if event.accepted:
                self._read(event)
            elif event.code == HTTPStatus.GATEWAY_TIMEOUT and event.verb == "patch":
                self._read_unanswered(event)
        for pod in self._by_uid.values():
            pod.versions.sort(key=lambda version: (version.since, version.revision))

    def __getitem__(self, uid: str) -> PodHistory:
        return self._by_uid[uid]

    def get(self, uid: str) -> PodHistory | None:
        """One incarnation, or None where none wrote it."""
        return self._by_uid.get(uid)

    def __iter__(self) -> Iterator[PodHistory]:
        return iter(self._by_uid.values())

    def _read(self, event: AuditEvent) -> None:
        if event.subresource == "binding":
            uid = _uid(event.request) or self._latest.get((event.namespace, event.name), "")
            if pod := self._by_uid.get(uid):
                pod.bindings.append((event.answered_at, event.target))
            return
        if event.subresource == "eviction":
            self._evict(event)
            return
        answer = event.response or {}
        items = answer.get("items") or [] if "items" in answer else [answer]
        for item in items:
            if _uid(item):
                self._add(event, item)

    def _read_unanswered(self, event: AuditEvent) -> None:
        """Take a mark, or a nomination, for undone by a patch whose caller died before the answer.

        It is logged as a time-out, though it may have been done; the caller's successor then finds nothing to
        undo. A later answer that shows otherwise counts.
        """
        pod = self._by_uid.get(_uid(event.request))
        if pod is None or not pod.versions:
            return
        last, status = pod.versions[-1], (event.request or {}).get("status") or {}
        unmarks = any(
            one.get("type") == MARK_TYPE and one.get("$patch") == "delete"
            for one in status.get("conditions") or ()
        )
        cleared = "nominatedNodeName" in status and not status["nominatedNodeName"]
        if unmarks or cleared:
            undone = replace(
                last,
                since=event.answered_at,
                by=event.user,
                marked=last.marked and not unmarks,
                nominated="" if cleared else last.nominated,
            )
            pod.versions.append(undone)

    def _evict(self, event: AuditEvent) -> None:
        """The answer shows no pod. One without a grace period is gone at once, without a delete."""
        pod = self._by_uid.get(event.precondition_uid)
        if pod is None or not pod.versions:
            return
        asked = ((event.request or {}).get("deleteOptions") or {}).get("gracePeriodSeconds")
        gone = (pod.grace_period_seconds if asked is None else asked) == 0
        last = replace(pod.versions[-1], since=event.answered_at, by=event.user, leaving=True, gone=gone)
        pod.versions.append(last)

    def _add(self, event: AuditEvent, shown: Mapping[str, Any]) -> None:
        metadata, spec, status = (shown.get(part) or {} for part in ("metadata", "spec", "status"))
        uid = metadata["uid"]
        pod = self._by_uid.get(uid)
        if pod is None:
            pod = self._by_uid[uid] = PodHistory(
                namespace=metadata.get("namespace", ""),
                name=metadata.get("name", ""),
                uid=uid,
                priority=spec.get("priority") or 0,
                grace_period_seconds=spec.get("terminationGracePeriodSeconds"),
                preemption_policy=spec.get("preemptionPolicy") or "",
                daemon=_is_daemon(metadata),
                pinned_to=_pinned_to(spec) if _is_daemon(metadata) else "",
                mirror=MIRROR in (metadata.get("annotations") or {}),
                group=(spec.get("schedulingGroup") or {}).get("podGroupName") or "",
            )
            self._latest[(pod.namespace, pod.name)] = uid
            if node := spec.get("nodeName"):
                pod.bindings.append((event.answered_at, node))
        removing = event.verb in ("delete", "deletecollection")
        leaving = removing or bool(metadata.get("deletionTimestamp"))
        pod.versions.append(
            Version(
                since=event.answered_at,
                by=event.user,
                revision=int(metadata.get("resourceVersion") or 0),
                node=spec.get("nodeName") or "",
                nominated=status.get("nominatedNodeName") or "",
                marked=is_marked(status),
                leaving=leaving,
                gone=leaving
                and not metadata.get("deletionGracePeriodSeconds")
                and not metadata.get("finalizers"),
                never_evict=(metadata.get("annotations") or {}).get(NEVER_EVICT) == "true",
            )
        )


def is_marked(status: Mapping[str, Any]) -> bool:
    """Whether a status, or a patch of one, has the mark that preemption sets."""
    return any(
        condition.get("type") == MARK_TYPE
        and condition.get("status") == "True"
        and condition.get("reason") == MARK_REASON
        for condition in status.get("conditions") or ()
    )


def _uid(shown: Mapping[str, Any] | None) -> str:
    return str(((shown or {}).get("metadata") or {}).get("uid", ""))


def _is_daemon(metadata: Mapping[str, Any]) -> bool:
    owners = metadata.get("ownerReferences") or ()
    return any(
        owner.get("controller") and owner.get("kind") == "DaemonSet" and owner.get("apiVersion") == "apps/v1"
        for owner in owners
    )


def _pinned_to(spec: Mapping[str, Any]) -> str:
    """The one node of a required node affinity of the form that the DaemonSet controller writes."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    match required.get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]:
            return str(node)
    return ""
