"""The sides of an order as rules of who may preempt whom, and queues, look at them, by what was read last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Pod
from makeway.core.policy.exemption import PREEMPTION_RULE
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.preemption import (
    UNREAD,
    Party,
    Table,
    asks_for_namespaces,
    asks_for_queues,
    namespace_labels,
)
from makeway.core.policy.rules import PreemptorFacts
from makeway.core.queues.quota_exemption import QuotaExemption, kept_from_quotas
from makeway.evictor.act.reads import Reads
from makeway.evictor.act.work import OrderWork
from makeway.evictor.judge.verdicts import Exempt, Proceed, Stop
from makeway.evictor.limits.queue_guard import QueueClaim, claim_of
from makeway.evictor.retry import TemporaryError

_CHANGED = "the policy's rules of who may preempt whom have just changed"


class Parties:
    """One order's. A rule that is new asks for what was not read before it: its pods stay until that is."""

    def __init__(self, work: OrderWork, reads: Reads) -> None:
        self._parts = work.parts
        self._reads = reads
        self._asked_for_queues = False
        """Whether a rule did when it was read who preempts."""
        self._preempting: tuple[Pod, ...] = ()
        self._claim: QueueClaim | None = None
        """What they claim, once that was asked."""

    @property
    def table(self) -> Table:
        """The rules that are in force."""
        return self._parts.mode_guard.policy.preemption.table

    def of(self, pod: Pod | None) -> Party:
        """Return a pod as the rules look at it; UNREAD where there is none, or no rule."""
        if pod is None or not self.table:
            return UNREAD
        metadata = pod.metadata
        namespace = self._reads.namespaces.get(metadata.namespace)
        return Party(
            namespace_labels(metadata.namespace, None) if namespace is None else namespace,
            metadata.labels or {},
            pod.spec.priority_class_name or "",
            self._parts.queue_guard.path_of(pod) if asks_for_queues(self.table) else "",
            microseconds(pod.status.start_time),
        )

    async def preempting(
        self, found: Proceed | Stop, pods: Iterable[Pod | None], labels: Mapping[str, str] | None = None
    ) -> Proceed | Stop:
        """Keep who preempts, and add it to what was found of the order. `labels`: of the group that does.

        Raises TemporaryError where a rule asks for queues that cannot be read.
        """
        self._asked_for_queues = asks_for_queues(self.table)
        there = [pod for pod in pods if pod is not None]
        self._preempting, self._claim = tuple(there), None
        if not isinstance(found, Proceed) or not self.table:
            return found
        if unknown := self._unknown_queues():
            raise TemporaryError("unavailable", unknown)
        await self._reads.labels_of(pod.metadata.namespace for pod in there)
        parties = [self.of(pod) for pod in there]
        if labels is not None:
            # One member is asked of those that differ in nothing that rules look at.
            alike = {(one.priority_class, one.queue): one._replace(labels=labels) for one in parties}
            parties = [*alike.values()]
        return Proceed(replace(found.preemptor, parties=tuple(parties)))

    def reclaimed(self, pod: Pod, victim: PodFacts) -> str:
        """Return what the queue that preempts takes back with a pod of its priority; empty where nothing."""
        guard = self._parts.queue_guard
        if not guard.reclaims():
            return ""
        self._claim = self._claim or claim_of(self._preempting)
        return guard.reclaimed(self._claim, victim.priority, pod, victim)

    def unread(self, preemptor: PreemptorFacts, pod: Pod | None) -> Exempt | None:
        """Return that a pod stays where the rules ask for what was not read; else None."""
        if not self.table:
            return None
        asks_anew = asks_for_queues(self.table) and not self._asked_for_queues
        namespaces = {preemptor.namespace, *([] if pod is None else [pod.metadata.namespace])}
        lacking = _CHANGED if asks_anew or not preemptor.parties else self._lacking(namespaces)
        return Exempt(PREEMPTION_RULE, lacking) if lacking else None

    def kept_from_quotas(self, pod: Pod) -> QuotaExemption | None:
        """Return which rule keeps a pod from every quota; None where none does."""
        if not self.table:
            return None
        if lacking := self._lacking({pod.metadata.namespace}):
            return QuotaExemption(PREEMPTION_RULE, lacking)
        return kept_from_quotas(self.table, self.of(pod))

    def _lacking(self, namespaces: set[str]) -> str:
        """Return why it is not known what the rules ask for; empty where it is."""
        if asks_for_namespaces(self.table) and not namespaces <= self._reads.namespaces.keys():
            return _CHANGED
        return self._unknown_queues()

    def _unknown_queues(self) -> str:
        unknown = self._parts.queue_guard.unknown() if asks_for_queues(self.table) else ""
        return f"the queues cannot be read: {unknown}" if unknown else ""
