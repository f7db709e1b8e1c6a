"""The API server's answers to the evictor, decoded; what is not what was asked for is taken for no answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from makeway.core.k8s.objects import DaemonSet, Namespace, Node, Pod, PriorityClass
from makeway.core.k8s.pod_groups import PodGroup
from makeway.evictor.judge.members import GroupedPod
from makeway.evictor.retry import TemporaryError
from makeway.runtime.pages import PageMetadata

_T = TypeVar("_T")


class _LeaseSpec(msgspec.Struct, rename="camel"):
    lease_transitions: int | None = None
    acquire_time: datetime | None = None


class _Lease(msgspec.Struct):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _Pods(msgspec.Struct):
    items: tuple[Pod, ...] = ()


class _GroupedPods(msgspec.Struct):
    metadata: PageMetadata = msgspec.field(default_factory=PageMetadata)
    items: tuple[GroupedPod, ...] = ()


class _RawStatus(msgspec.Struct):
    conditions: tuple[dict[str, Any], ...] | None = None


class _PodWithConditions(msgspec.Struct):
    """A pod of which only the conditions are wanted, each as it came."""

    status: _RawStatus = msgspec.field(default_factory=_RawStatus)


class _DeleteAnswer(msgspec.Struct):
    """A Pod, or a Status where the pod went at once."""

    metadata: _DeleteMetadata | None = None


class _DeleteMetadata(msgspec.Struct, rename="camel"):
    deletion_grace_period_seconds: int | None = None


def _decoder(type_: type[_T]) -> Callable[[bytes], _T]:
    """Decode an answer; one that is not what was asked for is treated like no answer."""
    decode = msgspec.json.Decoder(type_).decode

    def checked(body: bytes) -> _T:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise TemporaryError("server-error", f"unreadable {type_.__name__}: {error}") from error

    return checked


pod = _decoder(Pod)
node = _decoder(Node)
lease = _decoder(_Lease)
namespace = _decoder(Namespace)
priority_class = _decoder(PriorityClass)
daemonset = _decoder(DaemonSet)
pod_group = _decoder(PodGroup)
pods = _decoder(_Pods)
grouped_pods = _decoder(_GroupedPods)
delete_answer = _decoder(_DeleteAnswer)
with_conditions = _decoder(_PodWithConditions)
