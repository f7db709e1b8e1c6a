"""Messages that no part of makeway has written: forged orders, outcomes, control states, replays, and junk.

Each forged order is wrong in one way and about what is really there, so that none may be carried out. A
control state that was believed would show in what is not preempted any more, or in what the checker finds.
The judge leaves all of them out of the history: what is deleted for one was never ordered.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import nats
import nats.errors
import nats.js.errors
from msgspec import structs

from builders_bus import make_order, make_outcome, make_preemptor, victim_of
from campaign.grammar import HOSTILE
from makeway.bus import codec, ids
from makeway.bus.control import ControlState, Unplanned
from makeway.bus.envelope import Envelope
from makeway.bus.messages import EvictionOrder, Fence, Outcome, Preemptor, Victim
from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.bus.signing.signatures import kind_of
from makeway.bus.subjects import Subjects, inbox
from makeway.core.k8s.objects import Pod
from makeway.dev.checker.history import Streams
from makeway.dev.scheduler import LEASE_NAME, LEASE_NAMESPACE
from makeway.dev.site import NATS_PASSWORD

LIMITED = "camp-quota"
"""The one queue with a maximum, and its namespace."""
LOGINS = ("planner", "evictor", "scheduler", "streams", "viewer")
RIGHTFUL = 0.7
"""How often a forger has the login of the part whose message it forges."""
SOURCE = "makeway/scheduler/forger"


_TRIES = 5
"""So often a message that was not acknowledged is published once more."""


@dataclass(frozen=True)
class _Sent:
    """A forged message and the id by which JetStream knows it again."""

    kind: str
    login: str
    subject: str
    data: bytes
    message_id: str
    tries: int = 0


class Forger:
    """Sends forged messages, each with one of the logins.

    `keys`: those of the cluster where it signs. A forger has that of another kind, and signatures of other
    messages, but never the key of the kind that it forges.

    sent: the places of those that a stream took, by its name. beyond: those that a stream took from a login
    that may not write there.
    """

    def __init__(
        self, url: str, cluster_uid: str, seed: int, keys: Mapping[SigningKind, SigningKey] | None = None
    ) -> None:
        self._url = url
        self._keys = keys or {}
        self._cluster_uid = cluster_uid
        self._chance = random.Random(seed + 2)
        self._subjects = Subjects()
        self.sent: set[tuple[str, int]] = set()
        self.beyond: list[str] = []
        self._unsure: list[_Sent] = []
        self.counts: Counter[str] = Counter()

    async def send(self, kind: str, pods: list[Pod], streams: Streams) -> None:
        """Send one of a kind; nothing where NATS is away, or there is nothing to forge it from."""
        message = self._message(kind, pods, streams)
        if message is None:
            return
        subject, data = message
        writer = _writer(subject)
        login = writer if self._chance.random() < RIGHTFUL else self._chance.choice(LOGINS)
        await self._publish(_Sent(kind, login, subject, data, uuid4().hex))

    async def make_sure(self) -> None:
        """Find out what became of messages that a JetStream without a quorum did not acknowledge.

        One that was stored is not stored again, and one that was not is now.
        """
        unsure, self._unsure = self._unsure, []
        for one in unsure:
            await self._publish(one)

    async def _publish(self, sent: _Sent) -> None:
        kind, login, subject = sent.kind, sent.login, sent.subject
        writer = _writer(subject)
        address = self._url.removeprefix("nats://")
        try:
            connection = await nats.connect(
                f"nats://{login}:{NATS_PASSWORD}@{address}",
                connect_timeout=2,
                allow_reconnect=False,
                inbox_prefix=inbox(login),
                error_cb=_denied,
            )
        except (OSError, nats.errors.Error):
            self.counts["not sent"] += 1
            if sent.tries:
                self._unsure.append(sent)
            return
        try:
            headers = {"Nats-Msg-Id": sent.message_id}
            stored = await connection.jetstream(timeout=2).publish(subject, sent.data, headers=headers)
        except (nats.errors.Error, nats.js.errors.Error):
            self.counts["not stored" if login == writer else f"not stored, by {login}"] += 1
            if login == writer and sent.tries < _TRIES:
                self._unsure.append(replace(sent, tries=sent.tries + 1))
        else:
            self.sent.add((stored.stream, stored.seq))
            self.counts[f"forged {kind}"] += 1
            if login != writer:
                self.beyond.append(f"{login} wrote to {subject}")
        finally:
            await connection.close()

    def _message(self, kind: str, pods: list[Pod], streams: Streams) -> tuple[str, bytes] | None:
        match kind:
            case "order" | "quota-order":
                order = (self._order if kind == "order" else self._quota_order)(pods, streams)
                if order is None:
                    return None
                subject = self._subjects.order(order)
                return subject, self.sealed(order, subject)
            case "outcome":
                return self._outcome()
            case "control":
                state = self.control()
                return self._subjects.control, self.sealed(state, self._subjects.control)
            case "replayed-order" if streams.orders:
                stored = self._chance.choice(streams.orders[-50:])
                return stored.subject, self.sealed(stored.message, stored.subject)
            case "replayed-outcome" if streams.outcomes:
                ended = self._chance.choice(streams.outcomes[-50:])
                return ended.subject, self.sealed(ended.message, ended.subject)
            case "junk":
                subject = self._chance.choice(
                    (
                        self._subjects.orders_of("pod", "junk"),
                        self._subjects.orders_of("quota", "root.junk"),
                        self._subjects.outcome("ord-junk"),
                    )
                )
                return subject, self._chance.randbytes(self._chance.choice((0, 1, 100, 100_000)))
        return None

    def sealed(self, message: EvictionOrder | Outcome | ControlState, subject: str) -> bytes:
        """Return a message unsigned; where there are keys also signed by that of another kind, or changed."""
        kind, envelope = kind_of(message), codec.envelope_of(message, SOURCE, at=datetime.now(UTC))
        others = [key for other, key in self._keys.items() if other is not kind]
        match self._chance.choice(("unsigned", "another kind's key", "changed")) if others else "unsigned":
            case "another kind's key":
                envelope = self._chance.choice(others).sign(envelope, kind, subject)
            case "changed" if kind in self._keys:
                signed = self._keys[kind].sign(_changed(envelope), kind, subject)
                envelope = structs.replace(envelope, keyid=signed.keyid, signature=signed.signature)
        return codec.encode(envelope)

    def control(self) -> ControlState:
        """Return a control state of no planner, which switches preemption off, for good, or lifts all limits.

        Where nothing is signed, the planner's login may say what it likes; there it is wrong in itself.
        """
        now = int(datetime.now(UTC).timestamp() * 1000)
        state = ControlState(revision=now, mode="off", cluster_uid=self._cluster_uid)
        wrong: tuple[dict[str, Any], ...] = (
            {"revision": 2**63 - 1},
            {"revision": now + 2 * 3_600_000},
            {"cluster_uid": "another"},
        )
        believable: tuple[dict[str, Any], ...] = (
            {},
            {"revision": now + 600_000},
            {"mode": "enforce", "unplanned": Unplanned()},
        )
        return structs.replace(state, **self._chance.choice(wrong + believable if self._keys else wrong))

    def _outcome(self) -> tuple[str, bytes]:
        now = datetime.now(UTC)
        order = make_order(order_id=ids.order_id(now), cluster_uid=self._cluster_uid, victims=())
        outcome = make_outcome(order, result="failed", evictor="forger", started_at=now, finished_at=now)
        subject = self._subjects.outcome(outcome.order_id)
        return subject, self.sealed(outcome, subject)

    def _quota_order(self, pods: list[Pod], streams: Streams) -> EvictionOrder | None:
        """A quota's order for pods of others, or of a queue without a maximum."""
        others = [pod for pod in pods if pod.metadata.namespace not in (LIMITED, HOSTILE)]
        order = self._order(others, streams)
        if order is None:
            return None
        known = [stored.message.fence for stored in streams.orders if stored.message.kind == "quota"]
        fence = Fence(kind="lease", namespace="makeway-system", name="makeway-planner", epoch=0)
        return structs.replace(
            order,
            kind="quota",
            preemptor=None,
            node="",
            node_uid="",
            queue=self._chance.choice((f"root.{LIMITED}", "root.camp-a", "root.none", "root")),
            fence=known[-1] if known else fence,
        )

    def _order(self, pods: list[Pod], streams: Streams) -> EvictionOrder | None:
        """An order that is wrong in one way: nobody may carry it out."""
        bound = [pod for pod in pods if pod.spec.node_name and pod.metadata.deletion_timestamp is None]
        low = [pod for pod in bound if (pod.spec.priority or 0) <= 10]
        if len(bound) < 2 or not low:
            return None
        now, victim, running = datetime.now(UTC), self._chance.choice(low), self._chance.choice(bound)
        named = {"namespace": running.metadata.namespace, "name": running.metadata.name}
        preemptor = make_preemptor(running.metadata.uid, **named, priority=2**31 - 1)
        known = [stored.message.fence for stored in streams.orders if stored.message.kind == "pod"]
        fence = Fence(kind="lease", namespace=LEASE_NAMESPACE, name=LEASE_NAME, epoch=0)
        order = make_order(
            order_id=ids.order_id(now),
            cluster_uid=self._cluster_uid,
            fence=known[-1] if known else fence,
            writer=SOURCE,
            created_at=now,
            not_after=now + timedelta(seconds=20),
            preemptor=preemptor,
            node=victim.spec.node_name or "",
            victims=(_victim(victim),),
        )
        ghost = Preemptor(namespace="camp-a", name="ghost", uid="ghost", priority=9, scheduler_name="x")
        wrong: tuple[dict[str, Any], ...] = (
            {},  # its preemptor is bound already
            {"preemptor": ghost},
            {"cluster_uid": "another"},
            {"not_after": now - timedelta(seconds=1)},
            {"not_after": now + timedelta(days=9)},
            {"fence": Fence(kind="lease", namespace="kube-system", name="nobodys", epoch=9)},
            {"fence": Fence(kind="lease", namespace=LEASE_NAMESPACE, name=LEASE_NAME, epoch=10**6)},
            {"fence": Fence(kind="kv", name="makeway", epoch=2**40)},
            {"node": "nowhere"},
            {"node_uid": "forged"},
            {"victims": tuple(_victim(pod) for pod in bound[:200])},
        )
        return structs.replace(order, **self._chance.choice(wrong))


def _writer(subject: str) -> str:
    """Whose login may write to a stream's subject."""
    kinds = {".orders.": "planner", ".outcomes.": "evictor", ".control": "planner"}
    return next(login for part, login in kinds.items() if part in subject)


def _changed(envelope: Envelope) -> Envelope:
    """Return an envelope with other data."""
    return structs.replace(envelope, data=msgspec.Raw(bytes(envelope.data) + b" "))


async def _denied(error: Exception) -> None:
    """A denied publish has no answer, which is what counts."""


def _victim(pod: Pod) -> Victim:
    return structs.replace(victim_of(pod), priority=-(2**31), grace_period_seconds=0)
