"""The journal that takes notes of a snapshot's changes and of decisions, and what a recording begins with.

A note is one append of a value that never changes; the recorder that writes the journal down does all the
rest later. Pure state.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import Message, Placement
from makeway.core.k8s.nodes import RequiredNodes
from makeway.planner.plan.decision import Decision, QuotaInputs
from makeway.planner.plan.result import Plan
from makeway.planner.recording import entries
from makeway.planner.recording.entries import AnyEntry, ChangingSet, InFlight
from makeway.planner.snapshot import changes
from makeway.planner.snapshot.state import Snapshot

MOST_WAITING: Final = 200_000
"""Entries that may wait to be written; a writer so far behind ends the recording and begins another."""


class Journal:
    """What has been noted and not yet been written. `name`: of the recording that is on, empty for none.

    `undecided`: the namespaces whose pods are just being matched with their budgets. A replay matches them at
    once, so what is decided meanwhile is in no recording.
    """

    def __init__(self, undecided: Callable[[], Set[str]] = frozenset) -> None:
        self._undecided = undecided
        self._waiting: deque[AnyEntry | Decision] = deque()
        self.end()

    def __len__(self) -> int:
        """How many entries wait."""
        return len(self._waiting)

    def begin(self, name: str) -> None:
        """Begin a recording; what waits of another is forgotten."""
        self._waiting.clear()
        self._nominations = ChangingSet[Placement]()
        self._in_flight = ChangingSet[InFlight]()
        self.overflowed = False
        self.name = name

    def end(self) -> None:
        """Note nothing more, and forget what waits."""
        self.begin("")

    def note(self, entry: AnyEntry | Decision) -> None:
        """Note an entry, where a recording is on."""
        if not self.name:
            return
        self._waiting.append(entry)
        if len(self._waiting) > MOST_WAITING:
            self.end()
            self.overflowed = True

    def decided(self, decision: Decision) -> Decision:
        """Note a decision; return it with the name of the recording that it is in."""
        result = decision.result
        apart = decision.held_back or (not isinstance(result, Plan) and result.changed)
        if apart or not self._notes_decisions():
            return decision
        self.note(decision)
        return replace(decision, recording=self.name)

    def quota_decided(self, record: DecisionRecord, inputs: QuotaInputs) -> DecisionRecord:
        """Note a decision about a quota; return its record with the name of the recording that it is in."""
        if not self._notes_decisions():
            return record
        self.note(inputs)
        return msgspec.structs.replace(record, recording=self.name)

    def _notes_decisions(self) -> bool:
        return bool(self.name) and not self._undecided()

    def take(self, most: int) -> list[AnyEntry]:
        """Take the oldest entries."""
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        return [self._decided(one) if isinstance(one, Decision) else one for one in taken]

    def _decided(self, decision: Decision) -> entries.Decided:
        """Write down what a decision was made from; all classes of a group have the same in flight."""
        question, refusal = decision.asked, decision.refusal
        again_at = refusal.retry_at if refusal is not None and decision.looked_at_again else None
        in_flight: defaultdict[str, list[str]] = defaultdict(list)
        for uid, order in question.in_flight.items():
            in_flight[order].append(uid)
        request: Message = msgspec.structs.replace(decision.request, nominations=())
        return entries.Decided(
            decision_id=decision.decision_id,
            at=decision.at,
            request=msgspec.json.encode(request),
            nominations=self._nominations.become(question.nominations),
            in_flight=self._in_flight.become((order, tuple(uids)) for order, uids in in_flight.items()),
            leaving=question.leaving,
            unfit_since=question.unfit_since,
            again_at=again_at,
            left_out=question.left_out,
        )


def contents(snapshot: Snapshot, cluster_uid: str, planner: str, at: datetime) -> Iterator[AnyEntry]:
    """Return entries that make the snapshot as it is when the first is taken.

    Taking the first costs O(pods), about 1 ms for 50,000.
    """
    nodes, pods = list(snapshot.nodes.values()), list(snapshot.pods.values())
    complete = entries.SnapshotComplete(
        snapshot.revision,
        tuple((one.pod, one.revision) for one in snapshot.departures.values()),
        tuple(snapshot.budgets.revisions.items()),
    )
    exemptions, queues = snapshot.exemptions, snapshot.queues
    first: list[AnyEntry] = [entries.Began(cluster_uid, planner, at)]
    first += [changes.PutPriorityClass(one) for one in exemptions.classes.values()]
    record = exemptions.record
    first.append(changes.PutTolerationRecord(tuple(record.classes.values()) if record.known else None))
    first.append(changes.Enforce(exemptions.policy, exemptions.revision, exemptions.source))
    first.append(changes.Adopt(queues.tree, queues.revision, queues.source))
    first += [changes.PutNamespace(one) for one in snapshot.namespaces.values()]
    budgets = (snapshot.budgets.get(key) for key in sorted(snapshot.budgets.revisions))
    first += [changes.PutBudget(budget) for budget in budgets if budget is not None]
    storage = snapshot.volumes
    claims, volumes = list(storage.claims.items()), list(storage.volumes.items())
    first += [
        changes.PutStorageClass(name, storage.classes.get(name, RequiredNodes()), name in storage.waiting)
        for name in sorted(storage.classes.keys() | storage.waiting)
    ]
    first += [changes.PutDevices(snapshot.devices), changes.KnowVolumes(storage.known)]
    first += [changes.PutDaemonSet(one) for _, one in sorted(snapshot.daemonsets.items.items())]
    first.append(changes.KnowDaemonSets(snapshot.daemonsets.known))
    groups = snapshot.groups
    first += [changes.PutPodGroup(record) for _, record in sorted(groups.records.items())]
    first.append(changes.KnowPodGroups(groups.followed, groups.listed, groups.composites))
    yield from first
    yield from (changes.PutClaim.of(key, claim) for key, claim in claims)
    yield from (changes.PutVolume(name, volume) for name, volume in volumes)
    yield from (changes.PutNode(node) for node in nodes)
    yield from (changes.PutPod(pod) for pod in pods)
    yield complete
