"""What each component may say and hear on the bus, as subjects of a NATS server's permissions.

The least that works, and the one place that says so: the chart's nats-server gets these lists, and so does
whoever sets up accounts on an existing installation (docs/reference/nats-permissions.md). No component reads
another's answers, as each has an inbox of its own; people share one. Only the evictors take orders from
their consumer, and no user may delete or purge a stream.

Permissions cannot say where an answer goes: who asks the JetStream API names a reply subject, and what it
names may be one of a stream's. So the viewer is in an account of its own, which imports exactly what it may
ask: what the server answers stays in that account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from makeway.bus.streams.configs import EVICTOR_CONSUMER, epochs_config, stream_configs
from makeway.bus.streams.named_consumers import STREAMS, NamedConsumer, stream_of
from makeway.bus.subjects import PEOPLE, READER, Subjects, answers, inbox

_API: Final = "$JS.API"

ACCOUNT: Final = "MAKEWAY"
VIEWERS_ACCOUNT: Final = "MAKEWAY_VIEWERS"
VIEWERS: Final = frozenset({"viewer"})
"""Users of the viewers' account; all others are in the first."""


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """One user's. `denied` is taken from `publish`."""

    purpose: str
    publish: tuple[str, ...]
    denied: tuple[str, ...] = ()
    subscribe: tuple[str, ...]


def permissions(subjects: Subjects) -> Mapping[str, Permissions]:
    """The permissions of every user under one prefix, by its name."""
    epochs = f"KV_{subjects.epochs_bucket}"
    streams = _streams(subjects)
    keeps = tuple(subject for stream in streams for subject in _keeps(stream))
    looks = tuple(f"{_API}.STREAM.INFO.{stream}" for stream in streams)
    consumed = tuple(stream_of(subjects, kind) for kind in STREAMS)
    makes = tuple(subject for stream in consumed for subject in _makes(subjects, stream))
    # The scheduler's own consumers have names that cannot be guessed; the evictors' is known.
    theirs = tuple(
        f"{_API}.CONSUMER.{operation}.{subjects.orders_stream}.{EVICTOR_CONSUMER}{rest}"
        for operation, rest in (("CREATE", ""), ("CREATE", ".>"), ("MSG.NEXT", ""), ("DELETE", ""))
    )
    return {
        "planner": Permissions(
            purpose="answers plan requests, publishes what is effective, stores orders of pods and quotas",
            publish=(
                subjects.control,
                subjects.repairs,
                subjects.orders,
                subjects.decisions,
                subjects.recordings,
                subjects.quarantined("planner"),
                *looks,
                *_reads(subjects.orders_stream),
                *_reads(subjects.outcomes_stream),
                *_reads(subjects.decisions_stream),
                *_last(subjects.control_stream),
                *_last(epochs),
                # How far named consumers have read.
                *(f"{_API}.CONSUMER.LIST.{stream}" for stream in consumed),
                # It asks the schedulers whose pods their queue gate holds.
                subjects.status,
                *answers("planner"),
            ),
            subscribe=(
                f"{inbox('planner')}.>",
                subjects.plan,
                subjects.plan_group,
                subjects.commit,
                subjects.queues,
                subjects.status,
                *subjects.passing("planner").values(),
            ),
        ),
        "evictor": Permissions(
            purpose="takes orders, writes their outcomes",
            publish=(
                subjects.begun_orders,
                subjects.outcomes,
                subjects.quarantined("evictor"),
                *looks,
                *_reads(subjects.orders_stream),
                *_reads(subjects.outcomes_stream),
                *_reads(subjects.control_stream),
                *_last(subjects.begun_stream),
                *_last(epochs),
                # Its own consumer, by name and with its filter.
                f"{_API}.CONSUMER.CREATE.{subjects.orders_stream}.{EVICTOR_CONSUMER}.{subjects.orders}",
                *(
                    f"{_API}.CONSUMER.{operation}.{subjects.orders_stream}.{EVICTOR_CONSUMER}"
                    for operation in ("INFO", "MSG.NEXT", "DELETE")
                ),
                *acknowledgements(subjects.orders_stream, EVICTOR_CONSUMER),
                *answers("evictor"),
            ),
            subscribe=(
                f"{inbox('evictor')}.>",
                subjects.repairs,
                subjects.status,
                *subjects.passing("evictor").values(),
            ),
        ),
        "scheduler": Permissions(
            purpose="asks for plans, commits orders for pods and pod groups, follows outcomes",
            publish=(
                subjects.plan,
                subjects.plan_group,
                subjects.commit,
                *_follows(subjects.orders_stream),
                *_follows(subjects.outcomes_stream),
                *_follows(subjects.control_stream),
                *answers("scheduler"),
            ),
            denied=theirs,
            subscribe=(f"{inbox('scheduler')}.>", subjects.status),
        ),
        "nominator": Permissions(
            purpose="asks for plans and for orders, beside a scheduler without the plugin",
            publish=(
                subjects.plan,
                subjects.commit,
                subjects.verify,
                *looks,
                *_reads(subjects.orders_stream),
                *_reads(subjects.outcomes_stream),
                *_reads(subjects.control_stream),
                *answers("nominator"),
            ),
            subscribe=(
                f"{inbox('nominator')}.>",
                subjects.status,
                *subjects.passing("nominator").values(),
            ),
        ),
        "shadow": Permissions(
            purpose="verifies plans for the nominator with a scheduler's filters, and writes nothing",
            publish=(subjects.plan, *answers("shadow")),
            subscribe=(f"{inbox('shadow')}.>", subjects.verify, subjects.status),
        ),
        "streams": Permissions(
            purpose="sets the streams and named consumers up",
            publish=(f"{_API}.INFO", *keeps, *makes),
            denied=theirs,
            subscribe=(f"{inbox('streams')}.>",),
        ),
        "viewer": Permissions(
            purpose="for people, and for the page: everything that only reads",
            publish=tuple(subject for subject, _ in viewers_services(subjects).values()),
            subscribe=(f"{inbox(PEOPLE)}.>",),
        ),
    }


def consumer_permissions(subjects: Subjects, consumer: NamedConsumer) -> Permissions:
    """Return what the login of a named consumer may, in the viewers' account: fetch from it, acknowledge."""
    return Permissions(
        purpose=f"for a program of yours: fetches from the consumer {consumer.name}, and acknowledges",
        publish=tuple(local for _, local, _ in consumer_rules(subjects, consumer)),
        subscribe=(f"{inbox(consumer.user)}.>",),
    )


def viewers_services(subjects: Subjects) -> Mapping[str, tuple[str, bool]]:
    """Return what the viewers' account imports: by its subject, the one over there, and whether many answer.

    The JetStream API has another prefix there, since the server answers on its own in every account.
    """
    asks = {subject: (subject, True) for subject in (subjects.queues, subjects.status)}
    for subject in _reads_all(subjects):
        local = f"{subjects.viewers_api}{subject.removeprefix(_API)}"
        asks[subject] = (local, ".DIRECT.GET." in subject)
    return asks


def consumers_services(
    subjects: Subjects, consumers: Iterable[NamedConsumer]
) -> Mapping[str, tuple[str, bool]]:
    """Return what the viewers' account imports for named consumers, as `viewers_services`."""
    found = (rule for consumer in consumers for rule in consumer_rules(subjects, consumer))
    return {subject: (local, many) for subject, local, many in found}


def server_accounts(
    subjects: Subjects,
    users: Mapping[str, Mapping[str, Any]],
    consumers: Iterable[NamedConsumer] = (),
) -> dict[str, Any]:
    """Return the `accounts` of a nats-server's configuration; `users`: each as it stands there."""
    services = {**viewers_services(subjects), **consumers_services(subjects, consumers)}
    exports = [
        {
            "service": subject,
            "accounts": [VIEWERS_ACCOUNT],
            **({"response_type": "Stream"} if many else {}),
        }
        for subject, (_, many) in services.items()
    ]
    imports = [
        {"service": {"account": ACCOUNT, "subject": subject}, **({"to": local} if local != subject else {})}
        for subject, (local, _) in services.items()
    ]
    ours = [user for name, user in users.items() if not _views(name)]
    theirs = [user for name, user in users.items() if _views(name)]
    return {
        ACCOUNT: {"jetstream": "enabled", "users": ours, "exports": exports},
        VIEWERS_ACCOUNT: {"users": theirs, "imports": imports},
    }


def server_permissions(given: Permissions) -> dict[str, Any]:
    """Return a user's `permissions` in a nats-server's configuration."""
    publish: dict[str, Any] = {"allow": list(given.publish)}
    if given.denied:
        publish["deny"] = list(given.denied)
    return {"publish": publish, "subscribe": {"allow": list(given.subscribe)}}


def _views(user: str) -> bool:
    return user in VIEWERS or user.startswith(READER)


def _streams(subjects: Subjects) -> tuple[str, ...]:
    return tuple(config["name"] for config in (*stream_configs(subjects), epochs_config(subjects)))


def _reads_all(subjects: Subjects) -> tuple[str, ...]:
    """Read every stream, and see how the evictors' consumer is."""
    consumer = f"{_API}.CONSUMER.INFO.{subjects.orders_stream}.{EVICTOR_CONSUMER}"
    return (*(subject for stream in _streams(subjects) for subject in _reads(stream)), consumer)


def _keeps(stream: str) -> tuple[str, ...]:
    """Make a stream, and bring it back where it drifts."""
    return tuple(f"{_API}.STREAM.{operation}.{stream}" for operation in ("INFO", "CREATE", "UPDATE"))


def _makes(subjects: Subjects, stream: str) -> tuple[str, ...]:
    """Make named consumers of a stream, with its own filter, see them all, and take them away."""
    return (
        f"{_API}.CONSUMER.LIST.{stream}",
        f"{_API}.CONSUMER.CREATE.{stream}.*.{subjects.of_stream(stream)}",
        f"{_API}.CONSUMER.DELETE.{stream}.*",
    )


def _last(stream: str) -> tuple[str, ...]:
    """Read a subject's last message, from the stream's leader or, in Go, from any of its servers."""
    return (f"{_API}.STREAM.MSG.GET.{stream}", f"{_API}.DIRECT.GET.{stream}.>")


def _reads(stream: str) -> tuple[str, ...]:
    """Read all of a stream, by direct gets, and single messages."""
    return (f"{_API}.STREAM.INFO.{stream}", *_last(stream), f"{_API}.DIRECT.GET.{stream}")


def _follows(stream: str) -> tuple[str, ...]:
    """Follow a stream with consumers of one's own.

    Without the subject `CONSUMER.CREATE.<stream>`: there the request alone names the consumer, which may be
    another's.
    """
    return (
        *_reads(stream),
        f"{_API}.CONSUMER.CREATE.{stream}.>",
        *(f"{_API}.CONSUMER.{operation}.{stream}.*" for operation in ("INFO", "MSG.NEXT", "DELETE")),
    )


def acknowledgements(stream: str, consumer: str) -> tuple[str, str]:
    """Return the subjects on which the messages of one consumer are acknowledged.

    Without the server's domain and account, and with both. The number of tokens tells the two forms apart:
    with any number, `$JS.ACK.*.*.ORDERS.audit.>` would be the first form of every other consumer as well,
    and an acknowledgement may ask for that consumer's next message.
    """
    return f"$JS.ACK.{stream}.{consumer}.*.*.*.*.*", f"$JS.ACK.*.*.{stream}.{consumer}.*.*.*.*.>"


def consumer_rules(subjects: Subjects, consumer: NamedConsumer) -> Iterator[tuple[str, str, bool]]:
    """Yield what a consumer's login may ask: to fetch, and to acknowledge.

    Each as its subject, that in the viewers' account, and whether many messages answer.
    """
    for kind in consumer.streams:
        fetch = f"CONSUMER.MSG.NEXT.{stream_of(subjects, kind)}.{consumer.name}"
        yield f"$JS.API.{fetch}", f"{subjects.viewers_api}.{fetch}", True
        for ack in acknowledgements(stream_of(subjects, kind), consumer.name):
            yield ack, ack, False
