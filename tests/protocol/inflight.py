"""The plugin's in-flight state: what is known of each order, moved on by the exported table alone.

It follows plugin/orders/inflight.go and lookup.go call by call; what leads to which phase the table says.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from makeway.bus.messages import Outcome
from protocol.table import Table

LIVE = ("storing", "committed", "orphaned")
REVERTS = ("reverting", "clearing")


@dataclass
class Entry:
    """One preemptor with an order: a pod, or a group with `members`. Times by the process's own clock."""

    order_id: str
    uid: str
    name: str
    node: str
    created_at: float
    opens_at: float
    victims: list[str]
    awaited: dict[str, str]
    members: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    phase: str = "absent"
    gated: bool = False
    held: bool = False
    held_until: float = 0.0
    failed_cycles: int = 0
    remaining: dict[str, float | None] = field(default_factory=dict)
    not_before: float = 0.0
    reserved_until: float = 0.0
    early: int = 0
    beside: tuple[str, ...] = ()
    nomination_taken: bool = False
    revert_at: float = 0.0
    reason: str = ""
    own: bool = False
    was_stored: bool = False

    def __post_init__(self) -> None:
        self.remaining = dict.fromkeys((*self.victims, *self.awaited))

    @property
    def places(self) -> dict[str, str]:
        """The pods that are nominated for it, each with its node."""
        if not self.members:
            return {self.uid: self.node}
        return {uid: node for uid, node in self.members.items() if uid not in self.done}

    def loses_places(self, uid: str, node: str, *, overdue: bool) -> bool:
        """Note where the API shows a pod nominated; whether the order has lost its places by that."""
        if self.members.get(uid, self.node) == node:
            self.shown.add(uid)
            self.taken.discard(uid)
        elif uid in self.shown or overdue or self.phase in REVERTS:
            self.taken.add(uid)
        all_lost = self.members.keys() <= self.taken | self.done
        return uid in self.taken and (self.phase == "leaving" or (all_lost and self.phase in REVERTS))


@dataclass(frozen=True)
class Activation:
    """A pod to be tried again, after its nomination is deleted where `revert` is set."""

    order_id: str
    uid: str
    places: dict[str, str]
    revert: bool
    reason: str
    unpublished: bool = False
    of_group: bool = False


class InFlight:
    """The state of one process."""

    def __init__(self, table: Table, notify: Callable[[], None], note: Callable[[str], None]) -> None:
        self._table = table
        self._seconds = table.seconds
        self._notify = notify
        self._note = note
        self.by_pod: dict[str, Entry] = {}
        self.by_order: dict[str, str] = {}
        self.by_member: dict[str, str] = {}
        self.outcomes: dict[str, Outcome] = {}

    def get(self, order_id: str) -> Entry | None:
        """The entry of an order."""
        uid = self.by_order.get(order_id)
        return self.by_pod.get(uid) if uid is not None else None

    def of(self, uid: str) -> Entry | None:
        """The entry of a pod, which may be a member's group's."""
        return self.by_pod.get(uid) or self.by_pod.get(self.by_member.get(uid, ""))

    def _happens(self, entry: Entry, event: str) -> bool:
        step = self._table.step(entry.phase, event)
        if step is None:
            return False
        to, effects = step
        for effect in effects:
            if effect == "close gate":
                entry.gated = True
            elif effect == "open gate":
                entry.gated = False
        if to != entry.phase:
            self._note(f"{entry.order_id} {entry.phase} -> {to} by {event}")
            if to == "absent":
                del self.by_order[entry.order_id]
                del self.by_pod[entry.uid]
                for uid in entry.members:
                    if self.by_member.get(uid) == entry.uid:
                        del self.by_member[uid]
            entry.phase = to
            entry.was_stored = entry.was_stored or to in ("committed", "leaving")
            self._notify()
        return True

    def _put(self, entry: Entry) -> None:
        old = self.by_pod.get(entry.uid)
        if old is not None:
            self._happens(old, "replaced")
        self.by_pod[entry.uid] = entry
        self.by_order[entry.order_id] = entry.uid
        self.by_member |= dict.fromkeys(entry.members, entry.uid)

    def begin(self, entry: Entry) -> None:
        """A pod is nominated."""
        entry.own = True
        self._put(entry)
        self._happens(entry, "nominated")

    def commit(self, order_id: str, opens_at: float) -> None:
        """The stream has taken the order."""
        entry = self.get(order_id)
        if entry is not None and self._happens(entry, "stored"):
            entry.opens_at = opens_at

    def succeed(self, order_id: str, now: float, until: float, left: Callable[[str], bool]) -> None:
        """Its victims are deleted or leaving."""
        entry = self.get(order_id)
        if entry is None or not self._happens(entry, "succeeded"):
            return
        if entry.phase == "leaving":
            entry.opens_at, entry.held_until = until, now + self._seconds["leavingHold"]
            for uid, seen in entry.remaining.items():
                if seen is None and left(uid):
                    entry.remaining[uid] = now

    def fail(self, order_id: str, reason: str, now: float, wait: float) -> Entry | None:
        """The order came to nothing; the entry where that is news."""
        entry = self.get(order_id)
        if entry is None or not self._happens(entry, "failed") or entry.phase != "reverting":
            return None
        self._revert_from(entry, reason, now + wait)
        return entry

    def _revert_from(self, entry: Entry, reason: str, at: float) -> None:
        entry.reason, entry.revert_at, entry.nomination_taken = reason, at, False
        entry.opens_at = at + self._seconds["gateSlack"]

    def happened(self, order_id: str, event: str) -> bool:
        """An event of the table alone: superseded, reverted."""
        entry = self.get(order_id)
        return entry is not None and self._happens(entry, event)

    def activation_failed(self, order_id: str, at: float) -> None:
        """A revert came to nothing, and is handed out again."""
        entry = self.get(order_id)
        if entry is not None and self._happens(entry, "revertFailed"):
            entry.not_before = at

    def adopt(self, entry: Entry, now: float) -> bool:
        """Take over a live order that this process did not write."""
        if self.get(entry.order_id) is not None or now >= entry.opens_at:
            return False
        existing = self.by_pod.get(entry.uid)
        if existing and existing.phase != "released" and existing.created_at > entry.created_at:
            return False
        self._put(entry)
        self._happens(entry, "adopted")
        return True

    def deleted(self, uid: str, now: float) -> None:
        """The informer reported a pod deleted."""
        for entry in self.by_pod.values():
            if uid in entry.remaining and entry.remaining[uid] is None:
                entry.remaining[uid] = now
                self._notify()

    def nominated_to(self, uid: str, node: str, now: float) -> None:
        """Where the API shows a preemptor nominated."""
        entry = self.of(uid)
        if entry is None or entry.phase not in ("leaving", *REVERTS) or entry.nomination_taken:
            return
        overdue = now - entry.created_at >= self._seconds["shownWithin"]
        if entry.loses_places(uid, node, overdue=overdue):
            entry.nomination_taken = True
            self._notify()

    def pod_event(self, uid: str, event: str) -> None:
        """preemptorGone, cycleEnded."""
        entry = self.by_pod.get(uid)
        if entry is None and event == "preemptorGone" and (entry := self.of(uid)) is not None:
            entry.done.add(uid)
            entry = None if entry.places else entry
        if entry is not None:
            self._happens(entry, event)

    def activated(self, uid: str, now: float) -> None:
        """It is activated once more."""
        entry = self.of(uid)
        if entry is not None and entry.phase == "released":
            entry.reserved_until = now + self._seconds["releasedLasts"]

    def gate(self, uid: str, now: float) -> bool:
        """Whether PreEnqueue holds a pod."""
        entry = self.by_pod.get(uid)
        closed = entry is not None and entry.gated and now < entry.opens_at
        if entry is not None and closed:
            entry.held = True
        return closed

    def refuse(
        self, uid: str, now: float, still_there: Callable[[str, str], bool], beside: Iterable[str]
    ) -> bool:
        """Whether a pod that failed a cycle may not preempt now, since it has an order.

        Removing pods may help on every node. `beside`: pods of no lower priority that are nominated there.
        """
        entry = self.by_pod.get(uid)
        if entry is None or (entry.phase == "leaving" and now >= entry.opens_at):
            return False
        event, delay = "cycleFailed", self._seconds["earlyRetryDelay"]
        most = self._table.counts["earlyRetries"]
        met = any(still_there(entry.node, victim) for victim in (*entry.victims, *entry.awaited))
        too_early = entry.phase == "released" and entry.early < most and met
        has_room = entry.phase == "released" or (entry.phase == "leaving" and not entry.remaining)
        others = tuple(beside)
        waits = has_room and not too_early and self._make_room(others)
        if entry.phase == "released" and now < entry.opens_at and (too_early or waits):
            event = "cycleTooEarly"
        if entry.phase == "leaving" and entry.nomination_taken:
            event = "nominationGone"
        self._happens(entry, event)
        if event == "cycleTooEarly" and not waits:
            entry.beside = ()
            entry.not_before = now + delay * 2**entry.early
            entry.early += 1
        elif entry.phase == "leaving":
            if waits:
                entry.beside = others
                entry.early += 1
            if now - entry.held_until >= self._seconds["longestLeavingHold"]:
                entry.failed_cycles = 0
            hold = self._seconds["leavingHold"] * 2**entry.failed_cycles
            entry.held_until = now + min(hold, self._seconds["longestLeavingHold"])
            entry.failed_cycles = min(entry.failed_cycles + 1, 10)
            self._notify()
        return entry.phase != "absent"

    def _make_room(self, uids: Iterable[str]) -> bool:
        return any(
            entry.phase in REVERTS or (entry.phase in (*LIVE, "leaving") and bool(entry.remaining))
            for entry in map(self.of, uids)
            if entry is not None
        )

    def due(self, now: float) -> tuple[list[Activation], float | None]:
        """Let happen what time brings about; whom to activate, and when to look again."""
        activations: list[Activation] = []
        again: list[float] = []
        for entry in tuple(self.by_pod.values()):
            while event := self._due(entry, now, again):
                before = entry.phase
                step = self._table.step(before, event)
                if step is None:
                    break
                self._happens(entry, event)
                why = f"{event} in {before}"
                if entry.phase == "reverting":
                    self._revert_from(entry, why, now)
                if entry.phase == "released":
                    entry.reserved_until = now + self._seconds["releasedLasts"]
                if "activate" in step[1] or ("activate if held" in step[1] and entry.held):
                    entry.held = False
                    activations.append(Activation(entry.order_id, entry.uid, entry.places, False, why))
                if "revert" in step[1]:
                    activations.append(
                        Activation(
                            entry.order_id,
                            entry.uid,
                            entry.places,
                            True,
                            entry.reason,
                            unpublished=not entry.was_stored,
                            of_group=bool(entry.members),
                        )
                    )
        activations.sort(key=lambda a: a.order_id)
        return activations, min(again, default=None)

    def _due(self, entry: Entry, now: float, again: list[float]) -> str:
        def late(at: float) -> str:
            if now < at:
                again.append(at)
                return ""
            return "expired"

        match entry.phase:
            case "storing" | "committed" | "orphaned":
                return late(entry.opens_at)
            case "leaving":
                if entry.nomination_taken:
                    return "nominationGone"
                if (
                    now < entry.opens_at
                    and self._gone(entry, now, again)
                    and not self._make_room(entry.beside)
                ):
                    return "victimsGone"
                leaving = None in entry.remaining.values() or self._make_room(entry.beside)
                if entry.gated and now < entry.opens_at and leaving:
                    if now >= entry.held_until:
                        return "holdEnded"
                    again.append(min(entry.held_until, entry.opens_at))
                    return ""
                return late(entry.opens_at)
            case "released":
                return late(entry.reserved_until)
            case "reverting":
                if now < entry.not_before:
                    again.append(entry.not_before)
                    return ""
                return "nominationGone" if entry.nomination_taken else late(entry.revert_at)
        return ""

    def _gone(self, entry: Entry, now: float, again: list[float]) -> bool:
        for uid, seen in tuple(entry.remaining.items()):
            if seen is None:
                continue
            if now < (at := seen + self._seconds["settle"]):
                again.append(at)
            else:
                del entry.remaining[uid]
        if entry.remaining:
            return False
        if now < entry.not_before:
            again.append(entry.not_before)
            return False
        return True

    def nominated(self) -> dict[str, str]:
        """The places that preemptors with an order hold: UID to node."""
        held = (e for e in self.by_pod.values() if e.phase not in (*REVERTS, "orphaned"))
        return {uid: node for one in held for uid, node in one.places.items()}
