"""Requests to the API server, each sent once and counted; what a refusal means."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from makeway.bus.messages import PodRef
from makeway.core.k8s.objects import Pod
from makeway.evictor.act import answers
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import MissingRights, PermanentError, TemporaryError, classify
from makeway.runtime.kube import AnswerTooLong, Api, ApiError, ApiUnavailable

CALL_TIMEOUT_SECONDS: Final = 10.0
"""One request. A slow admission webhook may take as long; the retry reads first, so nothing is lost."""

ADMISSION_SECONDS: Final = 35.0
"""A write to a pod of which the last write was not answered in time: as long as a webhook may take, and the
request itself. The API server gives up admission where its client does, so a retry as short comes to
nothing."""


@lru_cache(maxsize=1024)
def pod_path(namespace: str, name: str) -> str:
    """Return a pod's path at the API server."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


class ApiCalls:
    """One evictor's."""

    def __init__(self, api: Api, metrics: EvictorMetrics) -> None:
        self.api = api
        self.rights = MissingRights()
        self._metrics = metrics

    async def pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod under this name now; without a resourceVersion the read is from storage."""
        body = await self.read("get_pod", pod_path(namespace, name))
        return None if body is None else answers.pod(body)

    async def write(
        self,
        operation: str,
        call: Any,
        pod: PodRef,
        body: object,
        *,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        **options: str,
    ) -> bytes | None:
        """Write to a pod, once; None where it is not this one any more."""
        sent = self.api.call(
            call, pod.name, pod.namespace, body=body, timeout_seconds=timeout_seconds, **options
        )
        return await self.called(operation, sent, pod)

    async def read(
        self,
        operation: str,
        path: str,
        *,
        accept: str = "",
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        most_bytes: int | None = None,
    ) -> bytes | None:
        """Read; None where there is no such object. Raises AnswerTooLong besides."""
        sent = self.api.request(
            "GET", path, accept=accept, timeout_seconds=timeout_seconds, most_bytes=most_bytes
        )
        return await self.called(operation, sent)

    async def called(
        self, operation: str, sent: Awaitable[bytes], incarnation: PodRef | None = None
    ) -> bytes | None:
        """One call's answer; None where its object is not there, or is not `incarnation` any more."""
        try:
            answer = await sent
        except AnswerTooLong:
            self._count(operation, "temporary")
            raise
        except (ApiError, ApiUnavailable) as error:
            if isinstance(error, ApiError) and await self._means_gone(error, incarnation):
                self._count(operation, "gone")
                return None
            failure = self.failure(operation, error)
            self._count(operation, "temporary" if isinstance(failure, TemporaryError) else "permanent")
            raise failure from error
        self.rights.allowed(operation)
        self._count(operation, "ok")
        return answer

    def failure(self, operation: str, error: ApiError | ApiUnavailable) -> TemporaryError | PermanentError:
        """Return what a failed call comes to; a right that was there may be back soon."""
        if isinstance(error, ApiError) and self.rights.may_return(operation, error, time.monotonic()):
            return TemporaryError("unauthorized", str(error))
        return classify(error)

    def _count(self, operation: str, result: str) -> None:
        self._metrics.api_requests.labels(operation, result).inc()

    async def _means_gone(self, error: ApiError, incarnation: PodRef | None) -> bool:
        """Whether a refusal only says that the pod is not there, or is another one by now.

        A 404 alone does not: admission webhooks may refuse a write with any status.
        """
        if incarnation is None:
            return error.status == HTTPStatus.NOT_FOUND
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
            return False
        now = await self.pod(incarnation.namespace, incarnation.name)
        return now is None or now.metadata.uid != incarnation.uid
