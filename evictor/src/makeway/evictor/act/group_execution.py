"""Carrying out an order for a pod group: nothing is deleted before everything would be.

The members come in together or not at all, so a victim that turns out to stay has cost the others their lives
for nothing. Hence a barrier before the first delete: the group, its members and their nodes, every unit and
every victim are read; each victim is marked and its deletion tried without effect, so that an admission
policy's no is known; then all is read once more, the victims last. The first delete begins within a second of
that read. What is refused until then refuses the order, and a rollback takes marks and nominations back.

Then units go whole, then all but the last victim of each node, then those, each after a re-check. Pods whose
budgets are hard go first, one after another. The first failure stops the rest, but for what is left of a unit
that has begun.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog

from makeway.bus.messages import EvictionOrder, OrderMember, Victim
from makeway.core.k8s.objects import Node, Pod
from makeway.core.k8s.pod_groups import GroupKey, group_of, membership
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.act.execution import Execution, side_by_side
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.judge import decide, gang
from makeway.evictor.judge.groups import POD_GROUP, first_of_units
from makeway.evictor.judge.verdicts import Cancelled, Delete, Exempt, Failed, Proceed, Stop, VictimVerdict
from makeway.evictor.retry import TemporaryError
from makeway.evictor.shared_reads import LONG_PATIENCE_SECONDS, SharedReads
from makeway.runtime.failpoints import failpoint

_log = structlog.get_logger()

LISTED: Final = 4
"""So many victims of one namespace on one node are read by a list of its pods there, of at most so many times
as many; so many members by a list of those without a node."""

LISTED_BYTES: Final = 32 * 1024
"""How long such a list may be for each pod that it is for: what others put on the node decides neither how
long it takes nor how large it is."""

CONFIRMATIONS: Final = 5
"""How often all victims are read anew for a read that is young enough, before the order is given up."""


class GroupExecution(Execution):
    """One order for a pod group under way; used as an `Execution`, which has the other `parts`."""

    def __init__(self, order: EvictionOrder, **parts: Any) -> None:
        super().__init__(order, **parts)
        self._looks = SharedReads(self._look, LONG_PATIENCE_SECONDS)
        self._confirmations = SharedReads(self._judge_again, LONG_PATIENCE_SECONDS)
        self._looked_at: datetime | None = None
        self._look_lasts = gang.reads_last(len(order.members))
        self._read_at: datetime | None = None  # the victims, all of them
        self._read_lasts = gang.reads_last(len(order.victims))
        self._unit_look_lasts = 2 * self._read_lasts  # victims are read after it
        self._unlisted = set[tuple[str, str]]()  # namespaces and nodes
        self._seen: tuple[Mapping[str, Pod | None], Mapping[str, Node | None]] = {}, {}  # members, nodes
        self._barrier_passed = False
        self._begun = False

    async def _carry_out(self) -> None:
        await self._wait_for_awaited()
        pending = await self._judge_all()
        if await self._reserve(pending):
            pending = await self._judge_all()
        await self._rehearse(pending)
        judged = {progress.victim.uid: judgement for progress, judgement in await self._confirm()}
        await failpoint("evictor.barrier-passed", self.order.order_id)
        self._barrier_passed = True
        left = [victim for victim in self.order.victims if victim.uid in judged]
        self._units.first = first_of_units(left)
        hard = [victim for victim in left if self._mode_guard.has_hard_budgets(victim.namespace)]
        for number, victim in enumerate(hard):
            await self._evict(self.progress[victim.uid], judged[victim.uid], later=number > 0)
        kept = {victim.uid for victim in hard}
        for later, phase in gang.in_phases([victim for victim in left if victim.uid not in kept]):
            await side_by_side(
                partial(self._evict, self.progress[victim.uid], judged[victim.uid], later=later)
                for victim in phase
            )

    # ------------------------------------------------------------------------------------- the barrier

    def _to_rehearse(
        self, pending: Sequence[tuple[VictimProgress, Delete]]
    ) -> Sequence[tuple[VictimProgress, Delete]]:
        return pending

    async def _confirm(self) -> list[tuple[VictimProgress, Delete]]:
        """Read and judge everything anew, until that took no longer than it may last."""
        reads = 0
        while True:
            pending = await self._judge_all()
            # Read now, it need not be between here and the first deletion.
            await self._until_deadline(self._cluster.read_brake)
            took, reads = self._age(), reads + 1
            if took <= self._read_lasts or not pending:
                return pending
            if reads == CONFIRMATIONS:
                seconds, most = took.total_seconds(), self._read_lasts.total_seconds()
                message = (
                    f"it took {seconds:.1f} s to read {len(self.progress)} victims, at most {most:.0f} s"
                )
                self._halt(Failed("reads-too-slow", message))

    async def _judge_all(self) -> list[tuple[VictimProgress, Delete]]:
        """Read and judge everything, the victims last; those to delete, in the order's order."""
        wanted = await self._until_deadline(partial(self._looks, self.order.order_id))
        if not isinstance(wanted, Proceed):
            self._halt(wanted)
        self.preemptor = wanted.preemptor
        if self._units.is_taken_over:
            pods = await self._until_deadline(self._read_victims)
            self._units.find_begun(zip(self.order.victims, pods, strict=True))
        if self._has_units and (refused := await self._until_deadline(self._incomplete_unit)) is not None:
            self._halt(refused)

        async def read() -> tuple[datetime, list[Pod | None]]:
            begun, pods = self._clock.now(), await self._read_victims()
            await self._read_classes_of(pods)
            return begun, pods

        self._read_at, pods = await self._until_deadline(read)
        return self._judge_read(pods)

    async def _read_victims(self) -> list[Pod | None]:
        """Read all victims: many of one node together, and by itself what no list has."""
        by_place: defaultdict[tuple[str, str], list[Victim]] = defaultdict(list)
        for victim in self.order.victims:
            by_place[victim.namespace, victim.node].append(victim)
        lists = await asyncio.gather(
            *(
                self._list(place, len(victims))
                for place, victims in by_place.items()
                if self._is_listed(place, len(victims))
            )
        )
        listed = {pod.metadata.uid: pod for pods in lists for pod in pods}
        found = {victim.uid: pod for victim in self.order.victims if (pod := listed.get(victim.uid))}
        others = [victim for victim in self.order.victims if victim.uid not in found]
        _, read = await asyncio.gather(
            self._read_owners(found.values()), asyncio.gather(*(self._read(victim) for victim in others))
        )
        pods = found | {victim.uid: pod for victim, pod in zip(others, read, strict=True)}
        return [pods[victim.uid] for victim in self.order.victims]

    def _is_listed(self, place: tuple[str, str], wanted: int) -> bool:
        return wanted >= LISTED and place not in self._unlisted

    async def _list(self, place: tuple[str, str], wanted: int) -> Sequence[Pod]:
        """Read pods of a namespace on a node; none where that fails, and then not again for this order."""
        try:
            async with self._reads:
                return await self._cluster.pods_on(*place, LISTED * wanted, LISTED_BYTES * wanted)
        except TemporaryError as error:
            self._unlisted.add(place)
            _log.warning("node_pods_not_listed", namespace=place[0], node=place[1], error=str(error))
            return ()

    async def _judge_again(self, _: str) -> None:
        await self._judge_all()

    def _age(self) -> timedelta:
        """How long ago all victims were read."""
        return timedelta.max if self._read_at is None else self._clock.now() - self._read_at

    def _may_delete(self, victim: Victim) -> None:
        super()._may_delete(victim)
        if not self._has_begun() and not self._finishing and self._age() > self._read_lasts:
            raise TemporaryError("stale", "the victims were read too long ago for the first to be deleted")

    def _has_begun(self) -> bool:
        """Whether a victim has been deleted. O(victims) until one was."""
        self._begun = self._begun or any(one.went for one in self.progress.values())
        return self._begun

    async def _recheck(self, victim: Victim, judged: Delete | None) -> VictimVerdict:
        """As for any order; before the first deletion all victims are read anew where that is due."""
        passed = self._barrier_passed and not self._finishing
        if passed and not self._has_begun() and self._age() > self._read_lasts:
            await self._confirmations(self.order.order_id)
        return await super()._recheck(victim, judged)

    # ------------------------------------------------------------------------- the group and its members

    async def _check(self) -> Proceed | Stop:
        """As for any order, but that one look serves all who ask within a moment."""
        if self._looked_at is not None and self._clock.now() - self._looked_at <= self._look_lasts:
            return Proceed(self.preemptor)
        return await self._looks(self.order.order_id)

    async def _look(self, _: str) -> Proceed | Stop:
        asked_at = self._clock.now()
        wanted = await super()._check()
        if isinstance(wanted, Proceed):
            self.preemptor = wanted.preemptor
            self._looked_at = asked_at
        return wanted

    async def _still_wanted(self) -> Proceed | Stop:
        """The order against its fence, its PodGroup, members and nodes; the brake is read too."""
        group = self.order.group
        assert group is not None  # noqa: S101 - `admit` refused the order otherwise
        epoch, _ = await asyncio.gather(self._epoch(), self._cluster.read_brake())
        stop = decide.fenced(self.order, stored_at=self._stored_at, epoch=epoch, now=self._clock.now())
        if stop is not None:
            return stop
        key = GroupKey(group.namespace, group.name)
        await self._read_groups([key])
        record = self._groups.get(key) if self._group_api.version else None
        names = gang.nodes_named(self.order)
        members, nodes = await asyncio.gather(
            self._read_members(group.namespace), asyncio.gather(*(self._read_node(name) for name in names))
        )
        self._seen = members, dict(zip(names, nodes, strict=True))
        unwanted = gang.unwanted(self.order, record, *self._seen)
        if unwanted is not None:
            return unwanted
        found = membership(key, self._groups.get)
        if found.unknown:
            return Cancelled("group-gone", found.unknown)
        return Proceed(PreemptorFacts(found.priority or 0, group.namespace))

    async def _read_members(self, namespace: str) -> dict[str, Pod | None]:
        """Read the members, by UID: those that wait by one list where they are many, as victims of a node."""
        members = self.order.members
        place = namespace, ""
        waiting = await self._list(place, len(members)) if self._is_listed(place, len(members)) else ()
        found: dict[str, Pod | None] = {pod.metadata.uid: pod for pod in waiting}
        others = [member for member in members if member.uid not in found]
        pods = await asyncio.gather(*(self._read_member(member) for member in others))
        return found | {member.uid: pod for member, pod in zip(others, pods, strict=True)}

    async def _read_member(self, member: OrderMember) -> Pod | None:
        async with self._reads:
            return await self._cluster.get_pod(member.namespace, member.name)

    async def _read_node(self, name: str) -> Node | None:
        async with self._reads:
            return await self._cluster.get_node(name)

    def _judge(self, victim: Victim, pod: Pod | None) -> VictimVerdict:
        group = self.order.group
        if (
            pod is not None
            and group is not None
            and (pod.metadata.namespace, group_of(pod)) == (group.namespace, group.name)
            and pod.metadata.uid == victim.uid
        ):
            # The name says so; a plan may have been made before its owner made a group of that name anew.
            return Exempt(POD_GROUP, "the order names a pod of its own group as a victim")
        verdict = super()._judge(victim, pod)
        if not isinstance(verdict, Delete) or pod is None:
            return verdict
        return gang.closes_nothing(victim, pod, self.order, *self._seen) or verdict
