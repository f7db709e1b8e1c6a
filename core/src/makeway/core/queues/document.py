"""The form of queues.yaml: YuniKorn's, so that a file from there can be taken over.

Everything YuniKorn knows is known here; what has no meaning here is accepted, and `ignored` names it.
Three keys are makeway's own: `namespaces` of a queue, since a pod in Kubernetes has a namespace but no
submitter that a label could not forge (YuniKorn's `submitacl` is about users and groups),
`quota.preemption.miss`, and `unplaced` of the partition. Source: yunikorn-core, pkg/common/configs.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from makeway.core.policy.document import NamespaceOrAll

DELAY: Final = "quota.preemption.delay"
MISS: Final = "quota.preemption.miss"
POLICY: Final = "preemption.policy"

Amount = Annotated[
    str, Meta(extra={"expected": "an amount such as 10, 500m (of vcore) or 20Gi", "scalar": True})
]
Property = Annotated[str, Meta(extra={"expected": "a single value", "scalar": True})]
Percent = Annotated[int, Meta(ge=0, le=100)]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-zA-Z0-9_:#/@-]{1,64}\Z",
        extra={"expected": "one part of a queue's path: letters, digits and any of _ : # / @ -"},
    ),
]


class QueuesSection(msgspec.Struct, frozen=True, kw_only=True, rename="lower", forbid_unknown_fields=True):
    """Base of the file's parts. YuniKorn writes its keys in lower case."""


class Resources(QueuesSection, frozen=True):
    """What a queue is sure of, and what it may use.

    Attributes:
        guaranteed: No preemption takes the queue below it, by resource.
        max: The queue never uses more, by resource; pods that would wait. A resource that is not named
            has no limit.
        quota_delay: How long after `max` was lowered running pods are evicted, so that it comes into
            effect: whole seconds, or a duration such as 5m. 0: never.
        quota_miss: How much may be left over of what had to go when the process began, in percent, where
            guarantees and pods that may not be evicted leave no other way; more than that, and no pod is
            evicted.
    """

    guaranteed: dict[str, Amount] = {}
    max: dict[str, Amount] = {}
    quota_delay: timedelta | None = msgspec.field(default=None, name=DELAY)
    quota_miss: Percent | None = msgspec.field(default=None, name=MISS)


class QueueEntry(QueuesSection, frozen=True):
    """One queue.

    Attributes:
        name: One part of its path.
        parent: Whether there will be queues below it. Not needed.
        resources: What it is sure of, and what it may use.
        namespaces: The namespaces whose pods may use this queue and those below it; `"*"` for every one.
            Absent: as the queue above, and pods of all namespaces may use root.
        properties: As in YuniKorn; those that mean something here are `quota.preemption.delay` and
            `quota.preemption.miss`, as under `resources`, and `preemption.policy`, for reclaim alone: with
            `fence` this queue and those below it take nothing back from queues outside it; with `disabled`
            no other queue takes back what this one and those below it use; `default` ends that below.
        queues: The queues below it. Pods run in queues that have none.
        maxapplications: Accepted, without a meaning here.
        adminacl: Accepted, without a meaning here.
        submitacl: Accepted, without a meaning here; see `namespaces`.
        childtemplate: Accepted, without a meaning here: queues are not made on the way.
        limits: Accepted, without a meaning here.
    """

    name: Name
    parent: bool | None = None
    resources: Resources = Resources()
    namespaces: tuple[NamespaceOrAll, ...] | None = None
    properties: dict[str, Property] = {}
    queues: tuple[QueueEntry, ...] = ()
    maxapplications: Any = None
    adminacl: Any = None
    submitacl: Any = None
    childtemplate: Any = None
    limits: Any = None


class PartitionPreemption(QueuesSection, frozen=True):
    """Preemption for the whole partition.

    Attributes:
        quotapreemptionenabled: Whether a lowered `max` evicts running pods at all.
        enabled: Whether a queue below its guarantee takes back what others use of it: its pods displace pods
            of equal priority in queues above theirs. Absent: no. Preemption by priority is on in any case.
    """

    quotapreemptionenabled: bool = False
    enabled: bool | None = None


class Partition(QueuesSection, frozen=True, kw_only=True):
    """The one partition.

    Attributes:
        name: `default`.
        queues: The queues; where the one topmost queue is not called root, they are all below root.
        preemption: Preemption for all queues.
        unplaced: What becomes of a pod that no queue takes: its label names none that its namespace may use,
            or it has none, and its namespace has queues of its own. `hold`: it waits. `default`: it counts in
            root.default. Absent: hold where any queue has a max, else default.
        placementrules: Accepted, without a meaning here: the pod's label or its namespace decides.
        limits: Accepted, without a meaning here.
        nodesortpolicy: Accepted, without a meaning here: nodes are kube-scheduler's.
        usergroupresolver: Accepted, without a meaning here.
    """

    name: Property = "default"
    queues: tuple[QueueEntry, ...]
    preemption: PartitionPreemption = PartitionPreemption()
    unplaced: Literal["hold", "default"] | None = None
    placementrules: Any = None
    limits: Any = None
    nodesortpolicy: Any = None
    usergroupresolver: Any = None


class QueuesFile(QueuesSection, frozen=True):
    """The whole file.

    Attributes:
        partitions: Exactly one.
        checksum: Accepted, without a meaning here.
    """

    partitions: tuple[Partition, ...]
    checksum: Any = None


_NO_MEANING: Final = {
    QueueEntry: ("maxapplications", "adminacl", "submitacl", "childtemplate", "limits"),
    Partition: ("placementrules", "limits", "nodesortpolicy", "usergroupresolver"),
}


def ignored(part: QueuesSection) -> Iterator[str]:
    """Name the keys of one part that are there and have no meaning here; not those of parts in it."""
    for name in _NO_MEANING.get(type(part), ()):
        if getattr(part, name) not in (None, "", [], {}):
            yield name
    if isinstance(part, QueueEntry):
        yield from (f"properties.{name}" for name in part.properties if name not in (DELAY, MISS, POLICY))
