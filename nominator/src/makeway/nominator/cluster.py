"""The nominator's edge to the API server: reads, and the one field that it writes.

Every write names UID and resourceVersion of the pod as it was read, and its field manager, by which a
nomination of the nominator's is told from another's. Raises ApiError and ApiUnavailable; what means "that pod
is another one by now" is `Changed`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from makeway.bus.messages import Victim
from makeway.core.k8s.authorship import NOMINATOR, ManagedPod, writers_of_nomination
from makeway.core.k8s.nodes import UNSCHEDULABLE, keeps_out
from makeway.core.k8s.objects import ENDED_PHASES, Node, Pod
from makeway.runtime.kube import MERGE_PATCH, Api, ApiError, ApiUnavailable, read_object

_SECONDS: Final = 5.0


class Changed(Exception):  # noqa: N818 - it names a state
    """The pod has changed since it was read, or is another one under that name."""


_pod = msgspec.json.Decoder(Pod).decode
_node = msgspec.json.Decoder(Node).decode
_managed = msgspec.json.Decoder(ManagedPod).decode


class StoredPod(msgspec.Struct, frozen=True):
    """A pod as it was read just now, and the bytes of the answer."""

    pod: Pod
    raw: bytes

    def nominated_by_us(self) -> bool:
        """Report whether its nomination is the nominator's, by metadata.managedFields."""
        if not self.pod.status.nominated_node_name:
            return False
        try:
            return NOMINATOR in writers_of_nomination(_managed(self.raw))
        except msgspec.ValidationError:
            return False  # more entries than are read


class NominatorApi:
    """One process's."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        """Return the pod under this name, straight from storage."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        body = await read_object(self._api, path, timeout_seconds=_SECONDS)
        return None if body is None else _decoded(lambda: StoredPod(_pod(body), body))

    async def node(self, name: str) -> Node | None:
        """Return the node under this name; None where there is none, or it is being deleted."""
        path = f"/api/v1/nodes/{quote(name, safe='')}"
        body = await read_object(self._api, path, timeout_seconds=_SECONDS)
        node: Node | None = None if body is None else _decoded(lambda: _node(body))
        return None if node is None or node.metadata.deletion_timestamp is not None else node

    async def keeps_out(self, namespace: str, name: str, node: str) -> bool:
        """Report whether a node is gone, or lets a waiting pod in no more: by its cordon, or its taints."""
        stored, there = await self.pod(namespace, name), await self.node(node)
        if stored is None or stored.pod.spec.node_name:
            return False
        cordon = (UNSCHEDULABLE,) if there is not None and there.spec.unschedulable else ()
        tolerations = stored.pod.spec.tolerations or ()
        return there is None or keeps_out((*(there.spec.taints or ()), *cordon), tolerations)

    async def has_left(self, victim: Victim) -> bool:
        """Report whether a victim is gone, or has ended and takes no room."""
        stored = await self.pod(victim.namespace, victim.name)
        if stored is None or stored.pod.metadata.uid != victim.uid:
            return True
        return stored.pod.status.phase in ENDED_PHASES

    async def nominate(self, stored: Pod, node: str) -> None:
        """Nominate a pod as it was read. Raises Changed."""
        await self._patch(stored, node)

    async def clear_nomination(self, stored: Pod) -> None:
        """Remove the nomination of a pod as it was read. Raises Changed."""
        await self._patch(stored, None)

    async def _patch(self, stored: Pod, node: str | None) -> None:
        meta = stored.metadata
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"nominatedNodeName": node},
        }
        try:
            await self._api.call(
                self._api.core.patch_namespaced_pod_status,
                meta.name,
                meta.namespace,
                body,
                field_manager=NOMINATOR,
                timeout_seconds=_SECONDS,
                _content_type=MERGE_PATCH,
            )
        except ApiError as error:
            if error.status == HTTPStatus.UNPROCESSABLE_ENTITY and "uid" not in error.message:
                raise
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
                raise Changed(str(error)) from error
            raise


def _decoded(read: Any) -> Any:
    try:
        return read()
    except msgspec.DecodeError as error:
        raise ApiUnavailable(f"an answer that cannot be read: {error}") from error
