"""Carrying out one order: read, judge, then delete its victims one careful step at a time.

The order of things: wait for the orders this one counts on; read everything it names; judge; evict
all victims but the last side by side, some at a time, those first whose disruption budgets are hard, so
that a budget's no costs no other pod its life; read the preemptor, the node and the fence again
while the last is marked; delete it. Each delete comes right after a read of its victim, the mark's answer
counting as one, and names the version that was read, or the UID alone (`contest`); and after a read of the
brake that is no more than a second old. The first thing that goes wrong for good stops everything that has
not begun. What of a unit is left then goes after all where some of it went: a unit goes whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NoReturn, TypeAlias, TypeVar

import structlog
from msgspec.structs import replace

from makeway.bus import tracing
from makeway.bus.messages import EvictionOrder, OutcomeResult, Victim
from makeway.core.daemonset.rule import rules_for
from makeway.core.k8s.daemonset_owner import DaemonSetOwner, claimed_daemonset
from makeway.core.k8s.objects import Node, Pod, PriorityClass
from makeway.core.k8s.pod_groups import MOST_LEVELS, GroupKey, GroupRecord, Membership
from makeway.core.k8s.resource_version import version_of
from makeway.core.policy.rules import PreemptorFacts
from makeway.core.policy.toleration_record import NO_RECORD
from makeway.evictor.act import patches
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.act.events import Events
from makeway.evictor.act.holds import Holds
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.records import Records
from makeway.evictor.judge import decide
from makeway.evictor.judge.groups import (
    LeftOut,
    exempt_by_group,
    first_of_units,
    groups_in,
    key_of,
    left_out,
    membership_of,
)
from makeway.evictor.judge.late_members import LateMembers
from makeway.evictor.judge.members import Members
from makeway.evictor.judge.units import Units
from makeway.evictor.judge.verdicts import (
    Cancelled,
    Delete,
    Deleted,
    Epoch,
    Exempt,
    Expired,
    Failed,
    Gone,
    Proceed,
    Refused,
    Stop,
    Terminating,
    VictimVerdict,
)
from makeway.evictor.limits.caps import MOST_AWAITING, Caps, Reservation, refused_by_cap
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.rates import OverCap
from makeway.evictor.limits.slots import AT_ONCE, Turn
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError, reporter, retrying
from makeway.evictor.shared_reads import LONG_PATIENCE_SECONDS, SharedReads
from makeway.runtime.failpoints import failpoint
from makeway.runtime.pod_group_api import PodGroupApi

AWAIT_POLL_SECONDS = 0.1
"""Between the first looks at the outcome of an awaited order that another process may carry out."""

AWAIT_POLL_LIMIT_SECONDS = 2.0
"""The longest such wait, for orders that take long."""

_RESULTS: Final[dict[type[Deleted | Gone | Terminating | Exempt], str]] = {
    Deleted: "deleted",
    Gone: "gone",
    Terminating: "terminating",
    Exempt: "spared",
}
"""What the log calls a verdict."""

CHECK_LASTS = timedelta(seconds=5)
"""How old a look at preemptor, node and fence may be when an effect begins. A process that was stopped for
longer may have lost its order: another gets it `ACK_WAIT_SECONDS` after the last word from this one, which
is at most `KEEP_SECONDS` older than the look."""

EXTERNAL_CHECK_LASTS = timedelta(seconds=1)
"""The same for a nominator's orders: the scheduler may clear the nomination, and knows of no order."""

PROOF_LASTS = timedelta(seconds=1)
"""How old an order's last mark may be where a watch that has brought it tells which pods a unit has. A watch
that hears nothing from then on misses what is bound later, which a list would have."""

FRESH = timedelta(seconds=1)
"""An order that was stored longer ago may have been begun, though JetStream counts deliveries anew."""

LOST: Final = frozenset({"unavailable", "server-error"})
"""Errors after which a deletion may have been carried out all the same."""

READ_NOTE_SECONDS = 10.0
"""How long an order waits to learn whether it has begun before: longer than NATS takes for another leader.
Where the evictor may not read it, an order is carried out all the same."""

BEGIN_SECONDS = 1.0
"""How long the bus may take to note that pods of units are deleted from here on. It is needed only where this
evictor dies before it ends the order."""

_log = structlog.get_logger()

T = TypeVar("T")


Pending: TypeAlias = tuple[VictimProgress, Delete | None]
"""A victim that is to go, and how it was judged just now; None where that has to be done anew."""


class Halt(Exception):  # noqa: N818 - control flow, not an error
    """Begin nothing more: the execution has stopped."""


@dataclass
class _StoppableClock:
    """An order's turn, whose waits end early when the execution stops, so that no retry outlives it."""

    turn: Turn
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_stopped(self) -> bool:
        return self.stopped.is_set()

    def now(self) -> datetime:
        return self.turn.now()

    async def sleep(self, seconds: float) -> None:
        """Wait to try again."""
        await self._unless_stopped(self.turn.sleep(seconds))

    async def idle(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Wait for what others do."""
        await self._unless_stopped(self.turn.idle(seconds), *([until] if until is not None else []))

    async def _unless_stopped(self, waiting: Coroutine[None, None, None], *events: asyncio.Event) -> None:
        waits: list[Awaitable[object]] = [waiting, *(one.wait() for one in (self.stopped, *events))]
        tasks = {asyncio.ensure_future(one) for one in waits}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class Execution:
    """One order under way. `run` once; then `stop` (None: room was made) and `progress` tell the end."""

    def __init__(
        self,
        order: EvictionOrder,
        *,
        stored_at: datetime,
        cluster: Cluster,
        records: Records,
        turn: Turn,
        metrics: EvictorMetrics,
        events: Events,
        mode_guard: ModeGuard,
        caps: Caps,
        late_members: LateMembers,
        holds: Holds,
        deliveries: int = 1,
    ) -> None:
        self.order = order
        self._stored_at = stored_at
        self.stop: Stop | None = None
        self.progress = {v.uid: VictimProgress(v) for v in order.victims}
        self.preemptor = PreemptorFacts(0)
        self._checked_at = stored_at
        self._open_at = turn.now()
        """When the order was last known to have no outcome: it was looked up just before."""
        self._classes: dict[str, PriorityClass] = {}
        self._record = NO_RECORD
        self._class_names: set[str] = set()
        self._daemonsets: dict[tuple[str, str], DaemonSetOwner | None] = {}
        self._groups: dict[GroupKey, GroupRecord | None] = {}
        self._memberships: dict[str, Membership] = {}  # by victim's UID, as last judged
        self._units = Units(order)
        self._noting = SharedReads(self._note_units)
        self._unfinished: Stop | None = None  # why pods of a unit that has begun stay
        self._unit_look_lasts = PROOF_LASTS
        self._unit_looks = SharedReads(self._look_through_units, LONG_PATIENCE_SECONDS)
        self._finishing = False
        self._marked: dict[str, tuple[int, datetime]] = {}
        """By namespace, the version of the last pod that this delivery has marked, and when."""
        self._rehearsed = False
        self._group_api = PodGroupApi()
        self._cluster = cluster
        self._records = records
        self._turn = turn
        self._clock = _StoppableClock(turn)
        self._metrics = metrics
        self._events = events
        self._mode_guard = mode_guard
        self._caps = caps
        self._late_members = late_members
        self._holds = holds
        self._deliveries = deliveries
        self._reserved: list[Reservation] = []
        self._message = patches.mark_message(order)
        self._told = False
        self._reads = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Carry the order out as far as it can be. Raises nothing but cancellation."""
        unsubscribe = self._mode_guard.subscribe(self._reconsider)
        ended = False
        try:
            await self._until_halted(self._take_up)
            if self.stop is not None and not decide.has_ended_elsewhere(self.stop):
                await self._until_halted(self._finish_units)
            ended = True
        finally:
            unsubscribe()
            self._settle(ended=ended)

    async def _until_halted(self, act: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(Halt):
            await act()

    async def _take_up(self) -> None:
        self._may_begin()
        if self._has_units and (self._deliveries > 1 or self._clock.now() - self._stored_at > FRESH):
            await self._read_note()
        await self._carry_out()

    async def _read_note(self) -> None:
        """Learn whether an earlier delivery has begun to delete pods of units; no answer is taken for no."""
        try:
            async with asyncio.timeout(READ_NOTE_SECONDS):
                begun = await self._until_deadline(lambda: self._records.begun(self.order.order_id))
        except TimeoutError:
            _log.warning("begun_units_not_read", seconds=READ_NOTE_SECONDS)
            return
        if begun is not None:
            self.preemptor = self._units.take_over(begun)

    async def _carry_out(self) -> None:
        await self._wait_for_awaited()
        pending = await self._judge_all()
        if await self._reserve(pending):
            pending = await self._judge_all()
        judged = await self._rehearse(pending)
        if self._has_units and (refused := await self._until_deadline(self._incomplete_unit)) is not None:
            self._halt(refused)
        others, hard = list[Pending](), list[Pending]()
        for one in judged:
            (hard if self._mode_guard.has_hard_budgets(one[0].victim.namespace) else others).append(one)
        self._units.first = first_of_units(progress.victim for progress, _ in judged)
        # One after another: a budget's no to the first costs none of the others its life.
        for number, one in enumerate(hard):
            await self._evict(*one, later=number > 0)
        first = {victim.uid for victim in self._units.first.values()}
        for goes_first in (True, False):
            await side_by_side(
                partial(self._evict, *one, later=bool(hard))
                for one in others[:-1]
                if (one[0].victim.uid in first) == goes_first
            )
        for one in others[-1:]:
            await self._evict(*one, later=len(pending) > 1)

    # ------------------------------------------------------------------------- before the first delete

    async def _wait_for_awaited(self) -> None:
        """Go on when every order that this one counts on has ended well.

        Before it waits, the order is checked by itself, so that one that is not wanted waits for nothing.
        """
        ids = self.order.counts_on
        if not ids:
            return
        wanted = await self._until_deadline(self._check)
        if not isinstance(wanted, Proceed):
            self._halt(wanted)
        with self._caps.awaiting() as allowed:
            if not allowed:
                self._halt(Refused("too-many-awaiting", f"{MOST_AWAITING} orders wait for others already"))
            self._holds.put(self.order, "awaited-orders", self._clock.now())
            await self._await_all(ids)
            self._holds.end(self.order)

    async def _await_all(self, ids: Sequence[str]) -> None:
        poll = AWAIT_POLL_SECONDS
        with self._records.awaiting.of(ids) as ended:
            while True:
                ended.clear()
                results = await self._until_deadline(lambda: self._results(ids))
                state = decide.awaited_state(results)
                if state is None:
                    return
                if isinstance(state, Failed):
                    self._halt(state)
                self._check_time(f"still waiting for {', '.join(state.order_ids)}")
                await self._clock.idle(poll, ended)
                poll = min(AWAIT_POLL_LIMIT_SECONDS, poll * 1.5)

    async def _results(self, ids: Sequence[str]) -> dict[str, OutcomeResult | None]:
        outcomes = await asyncio.gather(*(self._records.outcome(i) for i in ids))
        return {i: o.result if o is not None else None for i, o in zip(ids, outcomes, strict=True)}

    async def _reserve(self, pending: Sequence[Pending]) -> bool:
        """Wait until the policy's caps let these victims go. Return whether the order had to wait."""
        reserved = await self._caps.reserve(
            self.order,
            Counter(progress.victim.namespace for progress, _ in pending),
            self._clock,
            self._turn.place,
            self._may_begin,
            verified=all(judged is not None and judged.bound for _, judged in pending),
            held=self._held_by_cap,
        )
        self._holds.end(self.order)
        if isinstance(reserved, OverCap):
            self._over_cap(reserved)
        self._reserved.append(reserved)
        return reserved.waited

    def _held_by_cap(self, over: OverCap) -> None:
        until = over.room.at if over.room is not None else None
        self._holds.put(self.order, over.cap, self._clock.now(), until)

    def _over_cap(self, over: OverCap) -> NoReturn:
        """The caps let some victims go too late: stop."""
        self._halt(refused_by_cap(over))

    def _settle(self, *, ended: bool) -> None:
        """Tell the caps what was evicted; where this delivery is not the first, by an earlier one as well.

        `ended`: the order is not given to another delivery, which would count that again.
        """
        sent = [one for one in self.progress.values() if one.delete_sent]
        self._caps.settle(self._reserved, Counter(one.victim.namespace for one in sent), self._clock.now())
        if ended and (self._deliveries > 1 or self._units.is_taken_over):
            before = [
                one.victim.namespace
                for one in self.progress.values()
                if isinstance(one.verdict, Gone | Terminating) and not one.delete_sent
            ]
            self._caps.count(Counter(before), self._clock.now(), verified=self.order.kind != "quota")

    async def _judge_all(self) -> list[tuple[VictimProgress, Delete]]:
        """Read and judge everything; the victims to delete, in the order's order."""

        async def read() -> tuple[Proceed | Stop, list[Pod | None]]:
            wanted, pods = await asyncio.gather(self._check(), self._read_victims())
            await self._read_classes_of(pods)
            return wanted, pods

        wanted, pods = await self._until_deadline(read)
        if not isinstance(wanted, Proceed):
            self._halt(wanted)
        self.preemptor = wanted.preemptor
        pending = self._judge_read(pods)
        if self._has_units and (refused := await self._until_deadline(self._incomplete_unit)) is not None:
            self._halt(refused)
        return pending

    def _read_victims(self) -> Awaitable[list[Pod | None]]:
        """Read all victims, begun at once."""
        return asyncio.gather(*(self._read(victim) for victim in self.order.victims))

    async def _read_classes_of(self, pods: Iterable[Pod | None]) -> None:
        """Read the PriorityClasses that pods name."""
        self._class_names = {name for pod in pods if pod and (name := pod.spec.priority_class_name)}
        await self._read_classes()

    def _judge_read(self, pods: Sequence[Pod | None]) -> list[tuple[VictimProgress, Delete]]:
        """Judge all victims by their pods as they were just read; the victims to delete."""
        self._units.find_begun(zip(self.order.victims, pods, strict=True))
        verdicts = {
            uid: self._judge(progress.victim, pod)
            for (uid, progress), pod in zip(self.progress.items(), pods, strict=True)
        }
        pending = []
        for uid, verdict in verdicts.items():
            if isinstance(verdict, Delete):
                pending.append((self.progress[uid], verdict))
            else:
                self.progress[uid].verdict = verdict
        if (refused := decide.first_exempt(verdicts)) is not None:
            self._halt(refused)
        return pending

    @property
    def _has_units(self) -> bool:
        return bool(self._units.names)

    async def _note_units(self, _: str) -> None:
        """Write down that pods of units are deleted from here on, for whoever has the order after this.

        Where that takes longer than `BEGIN_SECONDS` the order goes on without.
        """
        if self._units.noted is not None:
            return
        begun = self._units.note(self.preemptor, self._memberships, self._clock.now())
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await self._records.begin(begun)
        except (TemporaryError, PermanentError, TimeoutError) as error:
            _log.warning("begun_units_not_noted", error=str(error) or f"no answer in {BEGIN_SECONDS:.0f} s")
        self._units.noted = begun  # all that go first wait until it is written

    def _note_that_it_went(self, progress: VictimProgress) -> None:
        if progress.went and progress.victim.unit:
            self._units.begun.add(progress.victim.unit)

    def _is_looked_through(self, unit: str) -> bool:
        """Whether all pods of a unit have been read lately enough for its first one to be deleted."""
        now, lasts = self._clock.now(), self._unit_look_lasts
        return self._finishing or self._units.is_looked_through(unit, now, lasts)

    async def _look_through_units(self, _: str) -> None:
        self._may_begin()
        if (refused := await self._incomplete_unit()) is not None:
            self._halt(refused)

    async def _finish_units(self) -> None:
        """Delete what is left of units of which a pod was deleted, though the order makes no room any more.

        Each pod is judged by itself, as ever; one that stays does not keep the others. The order's time, the
        brake and the mode stop it, and an outcome that another evictor has written.
        """
        if self._units.noted is None:
            return
        self._finishing = True
        self._clock = _StoppableClock(self._turn)
        left = list[VictimProgress]()
        try:
            self._may_begin()
            left = await self._left_of_units()
            if left and not self._reserved:
                await self._reserve([(one, None) for one in left])
            await side_by_side(partial(self._evict, one, None) for one in left)
        finally:
            self._tell_of_units(went=bool(left))

    async def _left_of_units(self) -> list[VictimProgress]:
        """Read the pods of units that may have begun; return those that are left of units that have.

        What their groups say by now does not count, and is not read.
        """
        noted = {unit.unit for unit in self._units.noted.units} if self._units.noted else set[str]()
        concerned = [one for one in self.progress.values() if one.victim.unit in noted]

        async def read() -> list[Pod | None]:
            pods = list(await asyncio.gather(*(self._read(one.victim) for one in concerned)))
            await self._read_classes_of(pods)
            return pods

        pods = await self._until_deadline(read)
        for one, pod in zip(concerned, pods, strict=True):
            if one.may_stay and isinstance(gone := decide.staying(one.victim, pod), Gone | Terminating):
                one.verdict = gone
                self._note_that_it_went(one)
        self._units.find_begun((one.victim, pod) for one, pod in zip(concerned, pods, strict=True))
        left = [one for one in concerned if one.victim.unit in self._units.begun and one.may_stay]
        for one in left:
            one.verdict = one.error = None
        if left:
            _log.info("units_finished", units=sorted(self._units.begun), victims=len(left))
        return left

    def _tell_of_units(self, *, went: bool) -> None:
        """Add to the order's end what became of units that had begun. `went`: the rest of some was to go."""
        assert self.stop is not None  # noqa: S101 - units are finished after the order has stopped
        stay = [o for o in self.progress.values() if o.victim.unit in self._units.begun and o.may_stay]
        if not stay and not went:
            return
        if not stay:
            units = ", ".join(sorted(self._units.begun))
            told = f"the rest of {units}, of which pods had been deleted, went as well"
        else:
            units, first = ", ".join(sorted({one.victim.unit for one in stay})), stay[0]
            why = self._unfinished.message if self._unfinished is not None else str(first.error or "")
            if isinstance(first.verdict, Exempt):
                why = first.verdict.message
            told = f"pods of {units} stay, of which others were deleted ({len(stay)}): {why}"
        self.stop = replace_dataclass(self.stop, message=f"{self.stop.message}; {told}")

    async def _incomplete_unit(self) -> Refused | None:
        """Whether the order leaves a pod of a unit out, by all pods of its namespaces.

        Before the order has marked its victims what is known of them will do, for this is asked again. Then
        the pods are as new as its last mark; where that is older than `PROOF_LASTS`, they are listed. No
        refusal rests on less than a list.
        """
        for namespace in sorted({victim.namespace for victim in self.order.victims if victim.unit}):
            since, marked_at = self._marked.get(namespace, (0, self._stored_at))
            if not self._rehearsed or (since and self._clock.now() - marked_at <= PROOF_LASTS):
                followed = await self._cluster.followed_members(namespace, since)
                if followed is not None and await self._left_out(followed) is None:
                    continue
            left = await self._left_out(await self._cluster.members(namespace))
            if left is not None:
                if left.late:
                    self._late_members.refused(left.unit, self._clock.now())
                return left.refusal()
        if self._rehearsed:
            self._units.looked_through(self._clock.now())
        return None

    async def _left_out(self, members: Members) -> LeftOut | None:
        await self._read_groups(groups_in(members, self.order))
        growing = self._late_members.growing(self._units.names, self._clock.now())
        return left_out(self.order, members, self._groups.get, self._units.begun, growing)

    async def _read_groups(self, keys: Iterable[GroupKey]) -> None:
        """Read PodGroups and their parents; nothing where the API server serves none."""
        self._group_api = await self._cluster.pod_group_api()
        if not self._group_api.version:
            return
        left = set(keys)
        for _ in range(MOST_LEVELS):
            found = await asyncio.gather(*(self._read_group(key) for key in sorted(left)))
            records = [one for one in found if one is not None and one.parent]
            left = {GroupKey(one.key.namespace, one.parent, composite=True) for one in records}

    async def _read_group(self, key: GroupKey) -> GroupRecord | None:
        async with self._reads:
            record = await self._cluster.get_pod_group(self._group_api, key)
        if record is not None and not self._group_api.composites:
            record = replace(record, parent="")
        self._groups[key] = record
        return record

    def _membership(self, victim: Victim, pod: Pod | None) -> Membership | None:
        """What a victim's groups mean for it: once a pod of its unit is deleted, what they meant before."""
        if pod is None:
            return None
        if victim.unit in self._units.begun:
            return self._memberships.get(victim.uid) or self._units.noted_membership(victim.unit)
        found = membership_of(pod, self._groups.get) if self._group_api.version else Membership()
        if exempt_by_group(victim, found) is None:
            self._memberships[victim.uid] = found
        return found

    async def _read(self, victim: Victim) -> Pod | None:
        async with self._reads:
            pod = await self._cluster.get_pod(victim.namespace, victim.name)
            if pod is not None:
                await self._read_daemonset(pod)
        if pod is not None and not self._finishing and (key := key_of(pod)) is not None:
            await self._read_groups([key])
        return pod

    async def _read_owners(self, pods: Iterable[Pod]) -> None:
        """Read the DaemonSets that pods claim, and their groups."""
        found = tuple(pods)
        await asyncio.gather(*(self._read_daemonset(pod) for pod in found))
        if groups := {key for pod in found if (key := key_of(pod)) is not None}:
            await self._read_groups(groups)

    async def _read_daemonset(self, pod: Pod) -> None:
        """Read the DaemonSet that a pod claims, which alone can prove it.

        Where it may not be read nothing is proven: the claim keeps a victim, and privileges no preemptor.
        """
        claim = claimed_daemonset(pod.metadata)
        asked = self.order.kind == "quota" or self._mode_guard.policy.daemon_sets.enabled
        if claim is None or not asked:
            return
        namespace, key = pod.metadata.namespace, (pod.metadata.namespace, claim.name)
        try:
            self._daemonsets[key] = await self._cluster.get_daemonset(namespace, claim.name)
        except PermanentError as error:
            self._daemonsets.pop(key, None)
            _log.warning("daemonset_unreadable", namespace=namespace, daemonset=claim.name, error=str(error))

    async def _read_classes(self) -> None:
        """Read the victims' PriorityClasses, each once: whether a pod is exempt is the class's to say."""
        names = sorted(self._class_names)
        found = await asyncio.gather(*(self._cluster.get_priority_class(name) for name in names))
        self._classes = {name: one for name, one in zip(names, found, strict=True) if one is not None}
        gone = len(self._classes) < len(names)
        self._record = await self._cluster.read_tolerations() if gone else NO_RECORD

    def _judge(self, victim: Victim, pod: Pod | None) -> VictimVerdict:
        """Judge a victim by the rules in force now and what has just been read."""
        return decide.judge(
            self.order,
            victim,
            pod,
            preemptor=self.preemptor,
            rules=rules_for(
                self.preemptor,
                "" if victim.unit else self.order.node,
                self._mode_guard.policy,
                self._classes,
                self._record,
                own_namespace=self._mode_guard.own_namespace,
            ),
            now=self._clock.now(),
            daemonsets=self._daemonsets,
            group=self._membership(victim, pod),
        )

    async def _check(self) -> Proceed | Stop:
        """`_still_wanted`: a no stops everything at once, a yes counts from when it was asked.

        Units that have begun go whoever waits for them.
        """
        asked_at, finishing = self._clock.now(), self._finishing
        wanted = await self._ended_elsewhere() or (
            Proceed(self.preemptor) if finishing else await self._still_wanted()
        )
        if isinstance(wanted, Proceed):
            self._checked_at = max(self._checked_at, asked_at)
        elif finishing == self._finishing:
            self._stop(wanted)
        return wanted

    async def _ended_elsewhere(self) -> Cancelled | None:
        """Whether the order has its outcome: another evictor may have it where this one was stopped for long.

        Its preemptor may be nominated to the same node again, for a later order with other victims. An order
        that is carried out at once is not asked about a second time.
        """
        asked_at = self._clock.now()
        if asked_at - self._open_at <= CHECK_LASTS:
            return None
        ended = await self._records.outcome(self.order.order_id)
        if ended is None:
            self._open_at = asked_at
            return None
        return Cancelled("ended-elsewhere", f"evictor {ended.evictor} has ended the order: {ended.result}")

    async def _still_wanted(self) -> Proceed | Stop:
        """The order against fence, preemptor and node as they are now; the brake is read beside them."""
        preemptor = self.order.preemptor
        assert preemptor is not None  # noqa: S101 - `admit` refused the order otherwise
        reads = await asyncio.gather(
            self._epoch(),
            self._cluster.get_pod(preemptor.namespace, preemptor.name),
            self._cluster.get_node(self.order.node),
            self._cluster.read_brake(),
        )
        epoch: Epoch | None = reads[0]
        pod: Pod | None = reads[1]
        node: Node | None = reads[2]
        priority_class: PriorityClass | None = None
        if pod is not None:
            await self._read_daemonset(pod)
            if self.order.is_external and pod.spec.priority_class_name:
                priority_class = await self._cluster.get_priority_class(pod.spec.priority_class_name)
        return decide.still_wanted(
            self.order,
            stored_at=self._stored_at,
            epoch=epoch,
            preemptor=pod,
            node=node,
            now=self._clock.now(),
            daemonsets=self._daemonsets,
            priority_class=priority_class,
        )

    async def _epoch(self) -> Epoch | None:
        """What the fence holds now: a Lease's transitions; a counter on the bus without leader election."""
        fence = self.order.fence
        if fence.kind == "lease":
            return await self._cluster.lease_epoch(fence.namespace, fence.name)
        return Epoch(await self._records.epoch(fence.name))

    async def _rehearse(self, pending: Sequence[tuple[VictimProgress, Delete]]) -> Sequence[Pending]:
        """Mark pods that go together and try their deletion without effect; return what is left to delete.

        An admission policy or a budget that says no to one is known so before another one is deleted. What
        refuses stops the order here; a rollback takes the marks away. Afterwards all are judged anew (None).
        """
        self._rehearsed = True
        together = self._to_rehearse(pending)
        if len(together) <= 1:
            return pending
        await side_by_side(partial(self._evict, *one, dry_run=True) for one in together)
        self._may_begin()
        for progress, _ in together:
            progress.attempts = 0
        return [(progress, None) for progress, _ in pending if progress.verdict is None]

    def _to_rehearse(
        self, pending: Sequence[tuple[VictimProgress, Delete]]
    ) -> Sequence[tuple[VictimProgress, Delete]]:
        """The victims whose deletion is tried first: those that go with others or not at all."""
        return [one for one in pending if one[0].victim.unit]

    # ---------------------------------------------------------------------------------- the victims

    async def _evict(
        self,
        progress: VictimProgress,
        judged: Delete | None,
        *,
        later: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Evict one victim, trying again what is temporary; a failure stops the whole execution.

        `judged`: by a read made just now, unless others were deleted in between: `later`. Then, at every
        further attempt, and where it was not read yet (None), it is judged anew. `dry_run`: all but the
        deletion; a victim that would be deleted has no verdict then.
        """

        async def attempt() -> Deleted | Gone | Terminating | Exempt | None:
            async with self._turn.work():
                self._may_begin()
                progress.attempts += 1
                known = progress.meet(judged) if judged is not None and progress.attempts == 1 else None
                verdict: VictimVerdict | None = None if later else known
                if verdict is None:
                    verdict = await self._recheck(progress.victim, known)
                    if not dry_run and not self._is_looked_through(progress.victim.unit):
                        await self._unit_looks(self.order.order_id)
                if isinstance(verdict, Delete) and verdict.mark:
                    marked = await self._mark(progress.victim, progress.meet(verdict))
                    verdict = self._judge(progress.victim, marked)
                if not isinstance(verdict, Delete):
                    return verdict
                verdict = progress.meet(verdict)
                if dry_run:
                    return await self._try_delete(progress, verdict)
                with tracing.span("delete", victim=_name(progress.victim), victim_uid=progress.victim.uid):
                    return await self._delete(progress, verdict)

        try:
            progress.verdict = await retrying(
                attempt,
                clock=self._clock,
                deadline=self.order.not_after,
                on_retry=partial(self._trying_again, progress),
            )
        except PermanentError as error:
            progress.error = error
            self._stays(Failed("delete-refused", f"{_name(progress.victim)}: {error}"))
        except TemporaryError as error:
            progress.error = error
            message = f"{_name(progress.victim)}: until notAfter: {error}"
            budget = error.reason == "budget"
            self._stays(Failed("disruption-budget" if budget else "deadline", message))
        except Halt:
            pass
        if isinstance(progress.verdict, Exempt):
            self._stays(Refused("victim-spared", f"{_name(progress.victim)}: {progress.verdict.message}"))
        if progress.verdict is None:
            return
        self._note_that_it_went(progress)
        _log.debug(
            "victim_handled",
            victim=_name(progress.victim),
            victim_uid=progress.victim.uid,
            result=_RESULTS[type(progress.verdict)],
            attempt=progress.attempts,
        )

    def _trying_again(self, progress: VictimProgress, error: TemporaryError, attempt: int) -> None:
        """Room that is not made at once is worth telling whoever waits for it."""
        if error.reason == "conflict":
            progress.contest = progress.contest.after_conflict()
        reporter(self._metrics, "evict")(error, attempt)
        self._holds.put(self.order, error.reason, self._clock.now())
        if not self._told:
            self._told = True
            self._events.making_room(self.order)

    async def _recheck(self, victim: Victim, judged: Delete | None) -> VictimVerdict:
        """Re-check everything right before a later delete: the world has had time to change.

        A victim that was `judged` and is to be marked need not be read a second time: it is marked meanwhile,
        and the answer is judged again. All that was asked is waited for, so that no mark is set after a
        rollback has looked for it.
        """
        if judged is not None and judged.mark:
            reading = asyncio.ensure_future(self._mark(victim, judged))
        else:
            reading = asyncio.ensure_future(self._read(victim))
        wanting = asyncio.ensure_future(self._check())
        classes = asyncio.ensure_future(self._read_classes())
        await asyncio.gather(wanting, reading, classes, return_exceptions=True)
        wanted, pod, _ = wanting.result(), reading.result(), classes.result()
        if not isinstance(wanted, Proceed):
            self._halt(wanted)
        self.preemptor = wanted.preemptor
        return self._judge(victim, pod)

    async def _mark(self, victim: Victim, judged: Delete) -> Pod | None:
        """Mark the victim as it was judged; the pod as it is then, which counts as a read."""
        await failpoint("evictor.before-mark", self.order.order_id)
        await self._cluster.read_brake()
        self._may_act()
        now = self._clock.now()
        marked = await self._cluster.mark(victim, judged.resource_version, self._message, now)
        if marked is not None:
            last = version_of(marked.metadata.resource_version), now
            self._marked[victim.namespace] = max(last, self._marked.get(victim.namespace, last))
        await failpoint("evictor.after-mark", self.order.order_id)
        return marked

    async def _try_delete(self, progress: VictimProgress, judged: Delete) -> Gone | None:
        """Try the deletion of a victim as it was judged last, without effect; None where it would go."""
        victim = progress.victim
        await failpoint("evictor.before-dry-run", self.order.order_id)
        await self._cluster.read_brake()
        self._may_act()
        hard = self._mode_guard.has_hard_budgets(victim.namespace)
        found = await self._cluster.dry_run(victim, judged.resource_version, eviction=hard)
        return None if found else Gone("not-found")

    async def _delete(self, progress: VictimProgress, judged: Delete) -> Deleted | Gone:
        """Delete the victim as it was judged last; through the eviction API where budgets are hard."""
        victim = progress.victim
        await failpoint("evictor.before-delete", self.order.order_id)
        if victim.unit and self._units.noted is None:
            await self._noting(self.order.order_id)
        await self._cluster.read_brake()
        self._may_delete(victim)
        progress.delete_sent = True
        deleted: Deleted | None
        try:
            if self._mode_guard.has_hard_budgets(victim.namespace):
                evicted = await self._cluster.evict(victim, judged.resource_version)
                deleted = Deleted(judged.grace_period_seconds) if evicted else None
            else:
                deleted = await self._cluster.delete(victim, judged.resource_version)
        except TemporaryError as error:
            progress.answer_lost = progress.answer_lost or error.reason in LOST
            raise
        await failpoint("evictor.after-delete", self.order.order_id)
        if deleted is None:
            return Gone("not-found")
        progress.deleted_at = self._clock.now()
        self._note_that_it_went(progress)
        self._events.preempted(self.order, victim)
        return deleted

    # ------------------------------------------------------------------------------------ stopping

    def _may_act(self) -> None:
        """Called right before every effect, with no await in between."""
        self._may_begin()
        lasts = EXTERNAL_CHECK_LASTS if self.order.is_external else CHECK_LASTS
        if (age := self._clock.now() - self._checked_at) > lasts:
            raise TemporaryError(
                "stale", f"preemptor, node and fence were read {age.total_seconds():.0f} s ago"
            )

    def _may_delete(self, victim: Victim) -> None:
        """Called right before a deletion, as `_may_act`."""
        self._may_act()
        if not self._is_looked_through(victim.unit):
            raise TemporaryError("stale", f"the pods of {victim.unit} were read too long ago")

    def _may_begin(self) -> None:
        """Called before whatever may lead to an effect."""
        if self._clock.is_stopped:
            raise Halt
        self._check_time()
        if (refused := self._mode_guard.refusal_of(self.order)) is not None:
            self._halt(refused)

    def _reconsider(self) -> None:
        """Called when the mode may have changed: what waits to be tried again need not wait to be told."""
        if (refused := self._mode_guard.refusal_of(self.order)) is not None:
            self._stop(refused)

    def _check_time(self, doing: str = "") -> None:
        if (late := decide.expired(self.order, self._clock.now())) is not None:
            self._halt(Expired(f"{doing}: {late.message}") if doing else late)

    def _stop(self, stop: Stop) -> None:
        """Let nothing more begin; the first reason stays."""
        if self._finishing:
            self._unfinished = self._unfinished or stop
        self.stop = self.stop or stop
        self._clock.stopped.set()

    def _stays(self, stop: Failed | Refused) -> None:
        """A victim stays for good: the room is not made without it."""
        if not self._finishing:
            self._stop(stop)

    def _halt(self, stop: Stop) -> NoReturn:
        self._stop(stop)
        raise Halt

    # ------------------------------------------------------------------------------------- retrying

    async def _until_deadline(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read until `not_after`; what is refused, or takes longer, stops the execution."""

        async def attempt() -> T:
            async with self._turn.work():
                if self._clock.is_stopped:
                    raise Halt
                return await read()

        try:
            return await retrying(
                attempt,
                clock=self._clock,
                deadline=self.order.not_after,
                on_retry=reporter(self._metrics, "read"),
            )
        except PermanentError as error:
            self._halt(Failed("read-refused", str(error)))
        except TemporaryError as error:
            self._halt(Expired(f"the API server or the bus gave no answer until notAfter: {error}"))


async def side_by_side(acts: Iterable[Callable[[], Awaitable[None]]], at_once: int = AT_ONCE) -> None:
    """Do all of `acts`, so many at the same time, begun in their order."""
    places = asyncio.Semaphore(at_once)

    async def act(one: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await one()

    async with asyncio.TaskGroup() as tasks:
        for one in acts:
            tasks.create_task(act(one))


def _name(victim: Victim) -> str:
    return f"{victim.namespace}/{victim.name}"
