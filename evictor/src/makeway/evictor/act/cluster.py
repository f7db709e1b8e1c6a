"""The evictor's edge to the API server: reads, and the few writes it makes.

Every call raises `TemporaryError` or `PermanentError`; what means "that pod is not there any more"
(404, another UID) is None. Nothing is retried here. Measured against kube-apiserver 1.36.3: a
delete whose preconditions do not hold answers 409, a status patch with another UID in its
metadata 422, with an outdated resourceVersion 409. So 409 and 422 are explained by reading again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from makeway.bus.messages import PodRef, Victim
from makeway.core.k8s.authorship import EVICTOR
from makeway.core.k8s.daemonset_owner import DaemonSetOwner, daemonset_owner
from makeway.core.k8s.objects import Namespace, Node, Pod, PriorityClass
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, group_record
from makeway.core.policy.brake import Brake
from makeway.core.policy.toleration_record import TolerationRecord
from makeway.evictor.act import answers, patches
from makeway.evictor.act.calls import CALL_TIMEOUT_SECONDS, ApiCalls, pod_path
from makeway.evictor.act.toleration_reads import unread_record
from makeway.evictor.judge.members import GroupMember, Members, add_members
from makeway.evictor.judge.verdicts import Deleted, Epoch
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError, classify, is_failed_test
from makeway.runtime.kube import (
    JSON_PATCH,
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    AnswerTooLong,
    Api,
    ApiError,
    ApiUnavailable,
)
from makeway.runtime.paging import PAGE_BYTES, Paging
from makeway.runtime.pod_group_api import PodGroupApi, pod_group_api
from makeway.runtime.shared_reads import LONG_PATIENCE_SECONDS, SharedReads

LIST_SECONDS = 1.0
"""One list of a node's pods, where reading them one by one is the other way."""

GROUP_API_SECONDS = 60.0
"""How long it is taken for granted which pod groups the API server serves."""

CLASS_LASTS_SECONDS = 1.0
"""How old a read of a PriorityClass or a namespace may be that a judgement rests on; as for the brake."""


def _ref(pod: Pod) -> PodRef:
    return PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)


class Cluster:
    """One evictor's connection to the API server; tests have another in its place."""

    def __init__(
        self,
        api: Api,
        metrics: EvictorMetrics,
        brake: Callable[[], Awaitable[Brake]],
        followed: Callable[[str, int], Awaitable[Members | None]] | None = None,
        tolerations: Callable[[], Awaitable[TolerationRecord]] = unread_record,
    ) -> None:
        """`followed`: `FollowedMembers.members`; None: no namespace is followed.

        `tolerations`: `TolerationReads.read`.
        """
        self._api = api
        self._tolerations = tolerations
        self._followed = followed
        self._brake = brake
        self._calls = ApiCalls(api, metrics)
        self._nodes = SharedReads(self._read_node)
        self._priority_classes = SharedReads(self._read_priority_class, lasts=CLASS_LASTS_SECONDS)
        self._namespaces = SharedReads(self._read_namespace, lasts=CLASS_LASTS_SECONDS)
        self._leases = SharedReads(self._read_lease)
        self._daemonsets = SharedReads(self._read_daemonset)
        self._groups = SharedReads(self._read_group)
        self._members = SharedReads(self._read_members, LONG_PATIENCE_SECONDS)
        self._group_api: PodGroupApi | None = None
        self._group_api_at = 0.0

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod under this name now; without a resourceVersion the read is from storage, not a cache."""
        return await self._calls.pod(namespace, name)

    async def get_node(self, name: str) -> Node | None:
        """The metadata of the node under this name now, read once for all who ask before the read begins."""
        return await self._nodes(name)

    async def get_priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass under this name, as it was at most a second ago."""
        return await self._priority_classes(name)

    async def get_namespace(self, name: str) -> Namespace | None:
        """The metadata of the namespace of this name, as it was at most a second ago."""
        return await self._namespaces(name)

    async def read_tolerations(self) -> TolerationRecord:
        """What is on record of PriorityClasses that are gone, read as nodes are."""
        return await self._tolerations()

    async def pod_group_api(self) -> PodGroupApi:
        """Which pod groups are served; asked again where the answer is older than a minute."""
        now = time.monotonic()
        if self._group_api is None or now - self._group_api_at > GROUP_API_SECONDS:
            try:
                self._group_api = await pod_group_api(self._api)
            except (ApiError, ApiUnavailable) as error:
                raise self._calls.failure("pod_group_api", error) from error
            self._calls.rights.allowed("pod_group_api")
            self._group_api_at = now
        return self._group_api

    async def get_pod_group(self, api: PodGroupApi, key: GroupKey) -> GroupRecord | None:
        """The group under this name now, read as nodes are. Raises PermanentError without the right to."""
        return await self._groups((api, key))

    async def _read_group(self, asked: tuple[PodGroupApi, GroupKey]) -> GroupRecord | None:
        api, key = asked
        body = await self._calls.read("get_pod_group", api.path(key))
        return None if body is None else group_record(answers.pod_group(body), composite=key.composite)

    async def members(self, namespace: str) -> Members:
        """Pods of a namespace by the PodGroup that they name, read as nodes are, in pages."""
        return await self._members(namespace)

    async def followed_members(self, namespace: str, since: int) -> Members | None:
        """The same, without a list where the namespace is followed and that far."""
        return None if self._followed is None else await self._followed(namespace, since)

    async def _read_members(self, namespace: str) -> Members:
        members: defaultdict[GroupKey, list[GroupMember]] = defaultdict(list)
        base = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        paging = Paging(lambda query: self._list_pods(f"{base}?{urlencode(query)}", PAGE_BYTES))
        token = ""
        while True:
            try:
                page = answers.grouped_pods(await paging.page(token))
            except AnswerTooLong as error:
                raise classify(error) from error
            add_members(members, page.items)
            if not page.metadata.continue_:
                return members
            token = page.metadata.continue_

    async def pods_on(self, namespace: str, node: str, limit: int, most_bytes: int) -> Sequence[Pod]:
        """Pods of a namespace on a node, or without one (""), now, the first so many by name.

        TemporaryError where it takes longer than `LIST_SECONDS`, or more than `most_bytes`.
        Without a resourceVersion the list is as new as a read from storage. kube-apiserver serves it from its
        cache, which knows the pods of each node: its cost is that of what it returns.
        """
        selector = quote(f"spec.nodeName={node}", safe="")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?fieldSelector={selector}&limit={limit}"
        try:
            return answers.pods(await self._list_pods(path, most_bytes, LIST_SECONDS)).items
        except AnswerTooLong as error:
            raise classify(error) from error

    async def _list_pods(
        self, path: str, most_bytes: int, timeout_seconds: float = CALL_TIMEOUT_SECONDS
    ) -> bytes:
        """Return a list of pods as it came. Raises AnswerTooLong besides."""
        body = await self._calls.read(
            "list_pods", path, timeout_seconds=timeout_seconds, most_bytes=most_bytes
        )
        return body or b"{}"

    async def lease_epoch(self, namespace: str, name: str) -> Epoch | None:
        """`leaseTransitions` of a Lease, read as nodes are; 0 before the first takeover, None without it."""
        return await self._leases((namespace, name))

    async def read_brake(self) -> Brake:
        """The brake, read anew where the last answer is older than a second; one read for all who ask.

        Raises TemporaryError whatever the answer is, also where the right to read it is missing: no victim
        is at fault, and rights are repaired.
        """
        try:
            return await self._brake()
        except (ApiError, ApiUnavailable) as error:
            raise TemporaryError("unavailable", f"the brake cannot be read: {error}") from error

    async def _read_node(self, name: str) -> Node | None:
        path = f"/api/v1/nodes/{quote(name, safe='')}"
        body = await self._calls.read("get_node", path, accept=METADATA_ONLY)
        return None if body is None else answers.node(body)

    async def get_daemonset(self, namespace: str, name: str) -> DaemonSetOwner | None:
        """The DaemonSet under this name now, read as nodes are."""
        return await self._daemonsets((namespace, name))

    async def _read_daemonset(self, key: tuple[str, str]) -> DaemonSetOwner | None:
        namespace, name = key
        path = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/daemonsets/{quote(name, safe='')}"
        body = await self._calls.read("get_daemonset", path)
        return None if body is None else daemonset_owner(answers.daemonset(body))

    async def _read_priority_class(self, name: str) -> PriorityClass | None:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        body = await self._calls.read("get_priority_class", f"{classes}/{quote(name, safe='')}")
        return None if body is None else answers.priority_class(body)

    async def _read_namespace(self, name: str) -> Namespace | None:
        path = f"/api/v1/namespaces/{quote(name, safe='')}"
        body = await self._calls.read("get_namespace", path, accept=METADATA_ONLY)
        return None if body is None else answers.namespace(body)

    async def _read_lease(self, key: tuple[str, str]) -> Epoch | None:
        namespace, name = key
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        body = await self._calls.read("get_lease", f"{leases}/{quote(name, safe='')}")
        if body is None:
            return None
        spec = answers.lease(body).spec
        return Epoch(spec.lease_transitions or 0, since=spec.acquire_time)

    async def mark(
        self,
        victim: Victim,
        resource_version: str,
        message: str,
        now: datetime,
        *,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> Pod | None:
        """Set DisruptionTarget; return the pod as patched. TemporaryError where it has changed.

        `timeout_seconds`: of the write, here and below.
        A strategic merge, so other conditions stay as they are. Without a version, here and below, the pod
        may have changed, as long as it is the same one: that is a JSON patch, and a test of it that does not
        hold is a conflict.
        """
        if resource_version:
            mark = patches.set_mark(victim.uid, resource_version, message, now)
            body = await self._patch_status("mark", victim, mark, STRATEGIC_MERGE_PATCH, timeout_seconds)
            return None if body is None else answers.pod(body)
        read = await self._calls.read("get_pod", pod_path(victim.namespace, victim.name))
        if read is None:
            return None
        conditions = answers.with_conditions(read).status.conditions
        by_uid = patches.set_mark_by_uid(victim.uid, conditions, message, now)
        try:
            body = await self._patch_status("mark", victim, by_uid, JSON_PATCH, timeout_seconds)
        except PermanentError as error:
            if not is_failed_test(error.__cause__):
                raise
            raise TemporaryError("conflict", str(error)) from error
        return None if body is None else answers.pod(body)

    async def delete(
        self, victim: Victim, resource_version: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS
    ) -> Deleted | None:
        """Delete with UID and resourceVersion as preconditions; without a version, the UID."""
        delete, options = self._api.core.delete_namespaced_pod, self._as_read(victim, resource_version)
        body = await self._calls.write("delete", delete, victim, options, timeout_seconds=timeout_seconds)
        if body is None:
            return None
        metadata = answers.delete_answer(body).metadata
        return Deleted((metadata.deletion_grace_period_seconds if metadata is not None else None) or 0)

    async def evict(
        self, victim: Victim, resource_version: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS
    ) -> bool:
        """Ask the eviction API, which counts the budget and deletes in one; preconditions as `delete`.

        It puts its own reason into the DisruptionTarget condition. Pods that are pending or have ended it
        deletes without asking their budget.
        """
        evict = self._api.core.create_namespaced_pod_eviction
        body = self._eviction(victim, self._as_read(victim, resource_version))
        options: dict[str, Any] = {"field_manager": EVICTOR, "timeout_seconds": timeout_seconds}
        return await self._calls.write("evict", evict, victim, body, **options) is not None

    async def dry_run(
        self,
        victim: Victim,
        resource_version: str,
        *,
        eviction: bool,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> bool:
        """Ask what `delete`, or `evict`, would be answered: admission and budgets count, nothing is done."""
        options = self._as_read(victim, resource_version, dry_run=True)
        if eviction:
            call, body = self._api.core.create_namespaced_pod_eviction, self._eviction(victim, options)
        else:
            call, body = self._api.core.delete_namespaced_pod, options
        write = self._calls.write
        return (
            await write("dry_run", call, victim, body, timeout_seconds=timeout_seconds, dry_run="All")
            is not None
        )

    def _as_read(self, victim: Victim, resource_version: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Delete a pod as it was read, and no other; its own grace period stands, as none is given.

        `dry_run`: the API server reads it here of a delete, and of an eviction in the query.
        """
        version = {"resourceVersion": resource_version} if resource_version else {}
        preconditions = {"uid": victim.uid, **version}
        return {"preconditions": preconditions, **({"dryRun": ["All"]} if dry_run else {})}

    def _eviction(self, victim: Victim, options: dict[str, Any]) -> dict[str, Any]:
        named = {"name": victim.name, "namespace": victim.namespace}
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": named,
            "deleteOptions": options,
        }

    async def set_condition(self, pod: Pod, condition: dict[str, Any]) -> None:
        """Set a condition by its type, or remove it, as a compare-and-set as `clear_mark`."""
        patch = patches.set_condition(pod.metadata.uid, pod.metadata.resource_version, condition)
        await self._patch_status("condition", _ref(pod), patch, STRATEGIC_MERGE_PATCH)

    async def clear_mark(self, pod: Pod) -> None:
        """Remove DisruptionTarget, as a compare-and-set on the resourceVersion that was read."""
        patch = patches.clear_mark(pod.metadata.uid, pod.metadata.resource_version)
        await self._patch_status("clear_mark", _ref(pod), patch, STRATEGIC_MERGE_PATCH)

    async def clear_nomination(self, pod: Pod) -> None:
        """Remove `nominatedNodeName`, as a compare-and-set on the resourceVersion that was read."""
        patch = patches.clear_nomination(pod.metadata.uid, pod.metadata.resource_version)
        await self._patch_status("clear_nomination", _ref(pod), patch, MERGE_PATCH)

    async def _patch_status(
        self,
        operation: str,
        pod: PodRef,
        body: object,
        content_type: str,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> bytes | None:
        options: dict[str, Any] = {"_content_type": content_type, "field_manager": EVICTOR}
        options["timeout_seconds"] = timeout_seconds
        return await self._calls.write(
            operation, self._api.core.patch_namespaced_pod_status, pod, body, **options
        )
