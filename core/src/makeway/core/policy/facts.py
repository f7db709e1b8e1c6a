"""The facts of a pod that rules look at: small, comparable, and the same for planner and evictor.

The planner keeps them with every pod; the evictor takes them from the pod it has just read. Sources:
PreemptionToleration (the time of being scheduled), the kubelet's mirror pods, the DaemonSet controller's
ownerReferences, YuniKorn's labels and annotations for queue, application and opting out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from makeway.core.k8s.daemonset_owner import DaemonSetOwner, claimed_daemonset
from makeway.core.k8s.importance import NOT_STARTED, microseconds, moment_of
from makeway.core.k8s.objects import Metadata, Pod
from makeway.core.k8s.queue_labels import asked_for
from makeway.core.policy.lost_work import NEVER_SAVED, checkpointed_at

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""From here on Kubernetes' own classes: system-cluster-critical, system-node-critical."""

NOT_SCHEDULED = NOT_STARTED
"""`scheduled_micros` of a pod whose condition PodScheduled is not True."""

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's image of a static pod; only the kubelet can end the pod behind it."""

NEVER_EVICT = "makeway.dev/never-evict"
"""Annotation: "true" asks never to be a victim. A policy says in which namespaces it is honoured."""

ALLOW_PREEMPTION = "yunikorn.apache.org/allow-preemption"
"""Label or annotation of a pod, annotation of its PriorityClass: "false" opts out, which only ranks last."""

MOST_OWNERS: Final = 16
LONGEST_UID: Final = 128
"""Of ownerReferences that are looked at: whoever makes a pod may write thousands, and UIDs of any length."""

_NOTHING: Mapping[str, str] = {}
_APPLICATION = ("yunikorn.apache.org/app-id", "applicationId")
_READ = frozenset({MIRROR, NEVER_EVICT, ALLOW_PREEMPTION, *_APPLICATION})


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What rules know of one pod. Strings that many pods share are shared.

    * `priority`: that of its groups, where it is in any (`at_priority_of`); `own_priority`: its own, where
      that is another one, else None.
    * `priority_class`: name of its PriorityClass, empty where it has none.
    * `scheduled_micros`: since when it has been scheduled, in microseconds, or NOT_SCHEDULED.
    * `created_micros`: when it was created. `mirror`: the image of a static pod.
    * `daemon`: it says that a DaemonSet controls it, the one of `daemonset_uid` and `daemonset_name`; who
      knows the DaemonSets asks `proven_facts` whether that is so.
    * `never_evict`: it carries that annotation as "true".
    * `opted_out`: by its own label or annotation; its class may opt out too (`opts_out`).
    * `application`: of its label or else its annotation, empty where it has neither.
    * `queue`: the queue that its label names, empty where it names none.
    * `owners`: UIDs in its ownerReferences, as they come, of MOST_OWNERS at the most.
    * `checkpointed_micros`: when it last saved its work, as it says itself, or NEVER_SAVED.
    """

    namespace: str = ""
    priority: int = 0
    priority_class: str = ""
    scheduled_micros: int = NOT_SCHEDULED
    created_micros: int = NOT_STARTED
    mirror: bool = False
    daemon: bool = False
    never_evict: bool = False
    opted_out: bool = False
    application: str = ""
    queue: str = ""
    owners: tuple[str, ...] = ()
    daemonset_uid: str = ""
    daemonset_name: str = ""
    own_priority: int | None = None
    checkpointed_micros: int = NEVER_SAVED

    @property
    def by_itself(self) -> int:
        """Its own priority, whatever that of its groups is."""
        return self.priority if self.own_priority is None else self.own_priority

    @property
    def is_reclaimable(self) -> bool:
        """Whether its room may be taken back; else what is made anew for it would take that first, again."""
        return not self.daemon and self.by_itself <= self.priority

    @property
    def bound_at(self) -> datetime | None:
        """When it was bound, as kube-apiserver notes it, or else made; None where that is not known."""
        micros = self.created_micros if self.scheduled_micros == NOT_SCHEDULED else self.scheduled_micros
        return None if micros == NOT_STARTED else moment_of(micros)


def at_priority_of(facts: PodFacts, groups: int | None) -> PodFacts:
    """Return a pod's facts at the priority of its groups, which counts in place of its own. O(1).

    `groups`: of the highest of its groups, None where it is in none. A system-critical pod's never falls.
    """
    own = facts.by_itself
    priority = own if groups is None else groups
    if own >= SYSTEM_CRITICAL_PRIORITY:
        priority = max(own, priority)
    if priority == facts.priority:
        return facts
    return replace(facts, priority=priority, own_priority=None if priority == own else own)


def facts_of(pod: Pod) -> PodFacts:
    """Take the facts from a pod. Never raises; what is absent has its default."""
    metadata = pod.metadata
    labels = metadata.labels or _NOTHING
    annotations = annotations_read(metadata)
    owners = metadata.owner_references or ()
    claim = claimed_daemonset(metadata)
    return PodFacts(
        namespace=sys.intern(metadata.namespace),
        priority=pod.spec.priority or 0,
        priority_class=sys.intern(pod.spec.priority_class_name or ""),
        scheduled_micros=scheduled_since(pod),
        created_micros=microseconds(metadata.creation_timestamp),
        mirror=MIRROR in annotations,
        daemon=claim is not None,
        never_evict=annotations.get(NEVER_EVICT) == "true",
        opted_out=labels.get(ALLOW_PREEMPTION) == "false" or annotations.get(ALLOW_PREEMPTION) == "false",
        application=sys.intern(_first(_APPLICATION, labels) or _first(_APPLICATION, annotations)),
        queue=sys.intern(asked_for(labels)),
        owners=tuple([sys.intern(one.uid) for one in owners[:MOST_OWNERS] if len(one.uid) <= LONGEST_UID]),
        daemonset_uid="" if claim is None else sys.intern(claim.uid),
        daemonset_name="" if claim is None else sys.intern(claim.name),
        checkpointed_micros=checkpointed_at(metadata),
    )


def proven_facts(facts: PodFacts, labels: Mapping[str, str], daemonset: DaemonSetOwner | None) -> PodFacts:
    """Return the facts of a pod without a claim that is not true.

    `daemonset`: the DaemonSet that the pod claims as it is, None where there is none of that name or UID.
    """
    if not facts.daemon or is_controlled(facts, labels, daemonset):
        return facts
    return replace(facts, daemon=False)


def is_controlled(facts: PodFacts, labels: Mapping[str, str], daemonset: DaemonSetOwner | None) -> bool:
    """Report whether the DaemonSet that a pod claims does control it."""
    return (
        facts.daemon
        and daemonset is not None
        and daemonset.controls(facts.namespace, labels, name=facts.daemonset_name, uid=facts.daemonset_uid)
    )


def opts_out(priority_class: Metadata) -> bool:
    """Report whether a PriorityClass, given by its metadata, opts its pods out by annotation."""
    return (priority_class.annotations or {}).get(ALLOW_PREEMPTION) == "false"


def annotations_read(metadata: Metadata) -> Mapping[str, str]:
    """Return those annotations of a pod that its facts depend on; most pods have none of them."""
    annotations = metadata.annotations
    if not annotations or _READ.isdisjoint(annotations):
        return _NOTHING
    return {name: value for name, value in annotations.items() if name in _READ}


def scheduled_since(pod: Pod) -> int:
    """Return since when a pod has been scheduled, in microseconds, or NOT_SCHEDULED."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled":
            return (
                microseconds(condition.last_transition_time) if condition.status == "True" else NOT_SCHEDULED
            )
    return NOT_SCHEDULED


def _first(keys: tuple[str, str], values: Mapping[str, str]) -> str:
    return values.get(keys[0]) or values.get(keys[1]) or ""
