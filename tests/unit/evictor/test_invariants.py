"""What holds whatever fails, in whatever order, and however often the evictor dies on the way."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.k8s.objects import Pod
from makeway.evictor.intake.service import Evictor, EvictorSettings
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.slots import Slots
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError
from unit.evictor.building import CLUSTER, NODE, a_pod, make_order, make_victim
from unit.evictor.fakes import (
    FORBIDDEN,
    SERVER_ERROR,
    UNAVAILABLE,
    FakeCluster,
    FakeDelivery,
    FakeRecords,
    VirtualClock,
    parts_of,
)

NAMES = ("a", "b", "c", "d")
THROTTLED = TemporaryError("throttled", "429", retry_after_seconds=2)
LOST = "done, but the answer was lost"

pods = st.sampled_from(["running", "marked", "terminating", "recreated", "absent", "ended"])
mishaps = st.lists(
    st.sampled_from([SERVER_ERROR, UNAVAILABLE, THROTTLED, FORBIDDEN, LOST]), min_size=1, max_size=3
)
scripts = st.dictionaries(
    st.tuples(st.sampled_from(["get_pod", "mark", "delete", "clear_mark"]), st.sampled_from(NAMES))
    | st.tuples(st.sampled_from(["get_pod", "clear_nomination"]), st.just("urgent")),
    mishaps,
    max_size=5,
)
slowness = st.dictionaries(
    st.tuples(st.sampled_from(["mark", "delete"]), st.sampled_from(NAMES)),
    st.integers(min_value=1, max_value=6),
    max_size=4,
)


def a_victim(name: str, state: str) -> Pod | None:
    builder = a_pod(name)
    match state:
        case "marked":
            return builder.marked().build()
        case "terminating":
            return builder.marked().terminating().build()
        case "recreated":
            return builder.uid(f"{name}-second").build()
        case "absent":
            return None
        case "ended":
            return builder.phase("Succeeded").build()
    return builder.build()


class Lost(Exception):  # noqa: N818 - a mishap of the script
    pass


class WatchedCluster(FakeCluster):
    """Notes when each effect was asked for, and on which incarnation it fell."""

    def __init__(self, clock: VirtualClock, *there: Pod) -> None:
        super().__init__(*there)
        self.clock = clock
        self.effects: list[tuple[str, str, datetime]] = []
        self.life = 0
        self.refused_lives: set[int] = set()
        self.deletes_after_refusal: list[str] = []
        self.deleted_uids: set[str] = set()

    async def _called(self, operation: str, name: str) -> None:
        if operation in ("mark", "delete"):
            self.effects.append((operation, name, self.clock.now()))
        if operation == "delete" and self.life in self.refused_lives:
            self.deletes_after_refusal.append(name)
        try:
            await super()._called(operation, name)
        except PermanentError:
            if operation in ("mark", "delete"):
                self.refused_lives.add(self.life)
            raise
        except Lost:
            if operation == "delete" and self._judged(make_victim(name), "") is not None:
                self.leave(name)
            raise UNAVAILABLE from None

    def leave(self, name: str) -> None:
        self.deleted_uids.add(self.pods[name].metadata.uid)
        super().leave(name)

    def staying(self, names: Sequence[str]) -> set[str]:
        """Those of the victims of these names that run on."""
        there = {name: self._judged(make_victim(name), "") for name in names}
        return {
            name
            for name, pod in there.items()
            if pod and pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"
        }


@example(states=["running"], script={}, slow={}, deaths=[20])  # after its delete, before its outcome
@given(
    states=st.lists(pods, min_size=1, max_size=4),
    script=scripts,
    slow=slowness,
    deaths=st.lists(st.integers(min_value=0, max_value=60), max_size=3),
)
def test_whatever_happens_the_order_ends_once_and_leaves_the_cluster_in_order(
    states: list[str],
    script: dict[tuple[str, str], list[Exception | str]],
    slow: dict[tuple[str, str], int],
    deaths: list[int],
) -> None:
    names = NAMES[: len(states)]
    clock = VirtualClock()
    there = [p for n, s in zip(names, states, strict=True) if (p := a_victim(n, s)) is not None]
    cluster = WatchedCluster(clock, *there)
    for (operation, name), errors in script.items():
        cluster.fail(operation, name, *(Lost() if isinstance(e, str) else e for e in errors))
    cluster.slow = slow
    records = FakeRecords()
    order = make_order(*names)
    records.orders["urgent-uid"] = order

    outcome = asyncio.run(carry_out(order, cluster, records, clock, deaths))

    assert cluster.deleted_uids <= {v.uid for v in order.victims}
    assert all(at < order.not_after for _, _, at in cluster.effects)
    assert cluster.deletes_after_refusal == []
    staying = cluster.staying(names)
    if outcome.result == "succeeded":
        assert not staying
        assert cluster.pods["urgent"].status.nominated_node_name == NODE
    elif "not rolled back" not in outcome.message:
        assert cluster.pods["urgent"].status.nominated_node_name is None
        assert not [n for n in staying if cluster.is_marked(n)]
    for victim in outcome.victims:
        assert (victim.name in staying) == (victim.result in ("failed", "notAttempted", "spared"))


async def carry_out(
    order: EvictionOrder,
    cluster: WatchedCluster,
    records: FakeRecords,
    clock: VirtualClock,
    deaths: list[int],
) -> Outcome:
    """Deliver the order to one evictor after the other; all but the last die after so many steps."""
    ended = len(deaths) + 1
    for delivered, steps in enumerate(deaths, start=1):
        delivery = FakeDelivery(order, deliveries=delivered)
        handling = asyncio.create_task(new_evictor(cluster, records, clock).handle(delivery))
        for _ in range(steps):
            await asyncio.sleep(0)
        handling.cancel()
        await asyncio.wait([handling])
        await asyncio.sleep(0)
        cluster.life += 1
        ended = min(ended, delivered) if order.order_id in records.outcomes else ended
    await new_evictor(cluster, records, clock).handle(FakeDelivery(order, deliveries=len(deaths) + 1))
    outcome = records.outcomes[order.order_id]
    assert outcome.deliveries == ended
    return outcome


def new_evictor(cluster: WatchedCluster, records: FakeRecords, clock: VirtualClock) -> Evictor:
    metrics = EvictorMetrics(CollectorRegistry())
    return Evictor(
        EvictorSettings(cluster_uid=CLUSTER, identity="evictor-1"),
        parts_of(cluster, records, clock, metrics, ModeGuard("enforce")),
        clock=clock,
        slots=Slots(32, metrics),
    )
