"""What is done for the units of an order, which go whole: looking their pods through, noting that they go.

What is left of a unit that has begun goes whoever waits for its room by then. One pod of each goes before
all others, and is noted on the bus before: for an evictor that takes the order over the unit has begun where
that pod has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from makeway.bus.messages import Begun, BegunUnit, Victim
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupKey, Membership
from makeway.core.k8s.resource_version import version_of
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.reads import Reads
from makeway.evictor.act.work import OrderWork
from makeway.evictor.judge import decide, gang
from makeway.evictor.judge.groups import LeftOut, exempt_by_group, groups_in, left_out, membership_of
from makeway.evictor.judge.members import Members
from makeway.evictor.judge.verdicts import Exempt, Gone, Refused, Terminating
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.shared_reads import LONG_PATIENCE_SECONDS, SharedReads

PROOF_LASTS: Final = timedelta(seconds=1)
"""How old an order's last mark may be where a watch that has brought it tells which pods a unit has. A watch
that hears nothing from then on misses what is bound later, which a list would have."""

FRESH: Final = timedelta(seconds=1)
"""An order that was stored longer ago may have been begun, though JetStream counts deliveries anew."""

READ_NOTE_SECONDS: Final = 10.0
"""How long an order waits to learn whether it has begun before: longer than NATS takes for another leader.
Where the evictor may not read it, an order is carried out all the same."""

BEGIN_SECONDS: Final = 1.0
"""How long the bus may take to note that pods of units are deleted from here on. It is needed only where this
evictor dies before it ends the order."""

_log = structlog.get_logger()


class UnitWork:
    """One order's; of one without units nothing is read or written."""

    def __init__(self, work: OrderWork, reads: Reads) -> None:
        self.first_marked = False
        """Whether the units' pods have been marked: that tells how far a watch has to have come."""
        self.is_taken_over = False
        """Whether an earlier delivery has noted that pods of units are deleted."""
        self.first: Mapping[str, Victim] = {}
        """By unit, the pod that goes before all others of it."""
        self._work = work
        self._reads = reads
        self._names = frozenset(victim.unit for victim in work.order.victims if victim.unit)
        self._noted: Begun | None = None  # that pods of units are deleted, by this delivery or an earlier one
        self._begun = set[str]()  # units of which a delivery of the order has deleted a pod
        self._looked_at: datetime | None = None
        self._memberships: dict[str, Membership] = {}  # by victim's UID, as last judged
        self._marked: dict[str, tuple[int, datetime]] = {}  # version and time of the last mark, by namespace
        self._noting = SharedReads(self._note)
        self._looking = SharedReads(self._look_through, LONG_PATIENCE_SECONDS)
        reading = gang.reads_last(len(work.order.victims))
        # Behind a barrier, victims are read after it.
        self._look_lasts = 2 * reading if work.terms.barrier else PROOF_LASTS

    def has_begun(self, unit: str) -> bool:
        """Report whether a pod of a unit has been deleted for the order."""
        return unit in self._begun

    # ------------------------------------------------------------------------------- what has begun

    async def read_note(self) -> None:
        """Learn whether an earlier delivery has begun to delete pods of units; no answer is taken for no."""
        work = self._work
        again = work.deliveries > 1 or work.clock.now() - work.stored_at > FRESH
        if not self._names or not again:
            return
        try:
            async with asyncio.timeout(READ_NOTE_SECONDS):
                begun = await work.until_deadline(lambda: work.parts.records.begun(work.order.order_id))
        except TimeoutError:
            _log.warning("begun_units_not_read", seconds=READ_NOTE_SECONDS)
            return
        if begun is not None:
            self._noted, self.is_taken_over = begun, True
            work.preemptor = PreemptorFacts(begun.priority, begun.namespace, begun.daemonset_node)

    def find_begun(self, found: Iterable[tuple[Victim, Pod | None]]) -> None:
        """Find the units of which an earlier delivery has deleted a pod. `found`: victims and pods now."""
        if self._noted is None or not self.is_taken_over:
            return
        first = {unit.first for unit in self._noted.units}
        for victim, pod in found:
            if victim.uid in first and not isinstance(decide.staying(victim, pod), Pod):
                self._begun.add(victim.unit)

    async def note(self) -> None:
        """Write down that pods of units are deleted from here on, for whoever has the order after this."""
        if self._noted is None:
            await self._noting(self._work.order.order_id)

    async def _note(self, _: str) -> None:
        """Where that takes longer than `BEGIN_SECONDS` the order goes on without."""
        if self._noted is not None:
            return
        order, preemptor = self._work.order, self._work.preemptor
        memberships = {unit: self._memberships.get(victim.uid) for unit, victim in self.first.items()}
        begun = Begun(
            order_id=order.order_id,
            cluster_uid=order.cluster_uid,
            at=self._work.clock.now(),
            units=tuple(
                BegunUnit(unit=unit, first=self.first[unit].uid, priority=found.priority if found else None)
                for unit, found in memberships.items()
            ),
            priority=preemptor.priority,
            namespace=preemptor.namespace,
            daemonset_node=preemptor.daemonset_node,
        )
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await self._work.parts.records.begin(begun)
        except (TemporaryError, PermanentError, TimeoutError) as error:
            _log.warning("begun_units_not_noted", error=str(error) or f"no answer in {BEGIN_SECONDS:.0f} s")
        self._noted = begun  # all that go first wait until it is written

    def went(self, progress: VictimProgress) -> None:
        """Take note of what became of a victim."""
        if progress.went and progress.victim.unit:
            self._begun.add(progress.victim.unit)

    # ------------------------------------------------------------------------------ are they whole

    def marked(self, victim: Victim, pod: Pod, at: datetime) -> None:
        """Take note of a mark."""
        last = version_of(pod.metadata.resource_version), at
        self._marked[victim.namespace] = max(last, self._marked.get(victim.namespace, last))

    def are_looked_through(self, unit: str) -> bool:
        """Report whether all pods of a unit have been read lately enough for its first one to be deleted."""
        if not unit or unit in self._begun or self._work.is_finishing:
            return True
        return self._looked_at is not None and self._work.clock.now() - self._looked_at <= self._look_lasts

    async def look_through(self, unit: str) -> None:
        """Read all pods of the units where that is due."""
        if not self.are_looked_through(unit):
            await self._looking(self._work.order.order_id)

    async def _look_through(self, _: str) -> None:
        self._work.may_begin()
        if (refused := await self._incomplete()) is not None:
            self._work.halt(refused)

    async def are_whole(self) -> None:
        """Stop where the order leaves a pod of a unit out, by all pods of its namespaces."""
        if self._names and (refused := await self._work.until_deadline(self._incomplete)) is not None:
            self._work.halt(refused)

    async def _incomplete(self) -> Refused | None:
        """Return that the order leaves a pod of a unit out.

        Before the order has marked its victims what is known of them will do, for this is asked again. Then
        the pods are as new as its last mark; where that is older than `PROOF_LASTS`, they are listed. No
        refusal rests on less than a list.
        """
        work, cluster = self._work, self._work.parts.cluster
        for namespace in sorted({victim.namespace for victim in work.order.victims if victim.unit}):
            since, marked_at = self._marked.get(namespace, (0, work.stored_at))
            if not self.first_marked or (since and work.clock.now() - marked_at <= PROOF_LASTS):
                followed = await cluster.followed_members(namespace, since)
                if followed is not None and await self._left_out(followed) is None:
                    continue
            left = await self._left_out(await cluster.members(namespace))
            if left is not None:
                if left.late:
                    work.parts.late_members.refused(left.unit, work.clock.now())
                return left.refusal()
        if self.first_marked:
            # Counted from here: a list of a large namespace takes longer than it may be old.
            self._looked_at = work.clock.now()
        return None

    async def _left_out(self, members: Members) -> LeftOut | None:
        order = self._work.order
        await self._reads.groups_of(groups_in(members, order))
        growing = self._work.parts.late_members.growing(self._names, self._work.clock.now())
        return left_out(order, members, self._reads.groups.get, self._begun, growing)

    def membership(self, victim: Victim, pod: Pod | None) -> Membership | None:
        """Return what a victim's groups mean for it; once a pod of its unit has gone, what they meant."""
        if pod is None:
            return None
        if victim.unit in self._begun:
            return self._memberships.get(victim.uid) or self._noted_membership(victim.unit)
        found = membership_of(pod, self._reads.groups.get) if self._reads.group_api.version else Membership()
        if exempt_by_group(victim, found) is None:
            self._memberships[victim.uid] = found
        return found

    def _noted_membership(self, unit: str) -> Membership | None:
        """Return what the groups of a unit's pods meant when an order began to delete them."""
        kind, _, name = unit.partition(" ")
        namespace, _, name = name.partition("/")
        for one in self._noted.units if self._noted is not None else ():
            if one.unit == unit:
                return Membership(GroupKey(namespace, name, kind == "CompositePodGroup"), one.priority)
        return None

    # --------------------------------------------------------------------------- what is left of them

    def concerned(self) -> list[VictimProgress]:
        """Return the victims of units that may have begun."""
        noted = {unit.unit for unit in self._noted.units} if self._noted else set[str]()
        return [one for one in self._work.progress.values() if one.victim.unit in noted]

    def left(self, concerned: list[VictimProgress], pods: list[Pod | None]) -> list[VictimProgress]:
        """Return those that are left of units that have begun, by their pods as they were just read.

        What their groups say by now does not count, and is not read.
        """
        for one, pod in zip(concerned, pods, strict=True):
            if one.may_stay and isinstance(gone := decide.staying(one.victim, pod), Gone | Terminating):
                one.verdict = gone
                self.went(one)
        self.find_begun((one.victim, pod) for one, pod in zip(concerned, pods, strict=True))
        left = [one for one in concerned if one.victim.unit in self._begun and one.may_stay]
        for one in left:
            one.verdict = one.error = None
        if left:
            _log.info("units_finished", units=sorted(self._begun), victims=len(left))
        return left

    def tell(self, *, went: bool) -> None:
        """Add to the order's end what became of units that had begun. `went`: the rest of some was to go."""
        work, begun = self._work, self._begun
        assert work.stop is not None  # noqa: S101 - units are finished after the order has stopped
        stay = [one for one in work.progress.values() if one.victim.unit in begun and one.may_stay]
        if not stay and not went:
            return
        if not stay:
            told = f"the rest of {', '.join(sorted(begun))}, of which pods had been deleted, went as well"
        else:
            units, first = ", ".join(sorted({one.victim.unit for one in stay})), stay[0]
            why = work.unfinished.message if work.unfinished is not None else str(first.error or "")
            if isinstance(first.verdict, Exempt):
                why = first.verdict.message
            told = f"pods of {units} stay, of which others were deleted ({len(stay)}): {why}"
        work.stop = replace(work.stop, message=f"{work.stop.message}; {told}")
