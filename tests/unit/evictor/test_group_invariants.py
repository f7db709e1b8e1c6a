"""What holds of an order for a group, whatever fails, and however often the evictor dies on the way."""

import asyncio
from datetime import datetime, timedelta
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.objects import Metadata, Node, Pod
from makeway.core.k8s.pod_groups import GroupRecord
from makeway.evictor.act import patches
from makeway.evictor.judge.gang import reads_last
from makeway.evictor.retry import PermanentError
from makeway.runtime.pod_group_api import PodGroupApi
from unit.evictor.building import a_pod, changed
from unit.evictor.fakes import FORBIDDEN, SERVER_ERROR, UNAVAILABLE, FakeRecords, VirtualClock
from unit.evictor.test_group_orders import TRAIN, group_order, on, trainer
from unit.evictor.test_invariants import LOST, THROTTLED, Lost, WatchedCluster, a_victim, carry_out, pods

NAMES = ("a", "b", "c", "d")
NODES = {"a": "n1", "b": "n1", "c": "n2", "d": "n2"}
MEMBERS = ("train-1", "train-2")

mishaps = st.lists(
    st.sampled_from([SERVER_ERROR, UNAVAILABLE, THROTTLED, FORBIDDEN, LOST]), min_size=1, max_size=3
)
scripts = st.dictionaries(
    st.tuples(st.sampled_from(["get_pod", "mark", "dry_run", "delete", "clear_mark"]), st.sampled_from(NAMES))
    | st.tuples(st.sampled_from(["get_pod", "clear_nomination"]), st.sampled_from(MEMBERS))
    | st.tuples(st.sampled_from(["get_node"]), st.sampled_from(["n1", "n2"]))
    | st.tuples(st.just("get_pod_group"), st.just("train")),
    mishaps,
    max_size=5,
)
slowness = st.dictionaries(
    st.tuples(st.sampled_from(["get_pod", "mark", "dry_run", "delete"]), st.sampled_from(NAMES)),
    st.integers(min_value=1, max_value=6),
    max_size=4,
)
leaving = st.none() | st.tuples(
    st.sampled_from(["mark", "dry_run", "delete"]), st.sampled_from(NAMES), st.sampled_from(MEMBERS)
)
"""A member that is gone once so much is asked of a victim; None: both stay."""
pauses = st.none() | st.tuples(st.sampled_from(["read_brake", "get_pod"]), st.integers(0, 30))
"""The process stands still for two seconds after so many requests of a kind; None: it never does."""


class GangCluster(WatchedCluster):
    """Notes when each victim was read and its deletion tried, and judges the first delete of each life."""

    def __init__(self, clock: VirtualClock, *there: Pod) -> None:
        super().__init__(clock, *there)
        self.read: dict[str, datetime] = {}
        self.tried: set[str] = set()
        self.denied: set[str] = set()
        self.begun: set[int] = set()
        self.broken: list[str] = []
        self.pause: tuple[str, int] | None = None

    async def _called(self, operation: str, name: str) -> None:
        asked = self.clock.now()
        if self.pause is not None and self.pause[0] == operation:
            self.pause = (operation, self.pause[1] - 1)
            if self.pause[1] < 0:
                self.pause = None
                self.clock.time += timedelta(seconds=2)
        if operation == "delete" and self.life not in self.begun:
            self.begun.add(self.life)
            self._judge(asked)
        try:
            await super()._called(operation, name)
        except PermanentError:
            if operation == "dry_run":
                self.denied.add(name)
            raise
        if operation == "get_pod":
            self.read[name] = asked
        elif operation == "dry_run":
            self.tried.add(name)
            self.denied.discard(name)  # an evictor that came after the refused one tried again

    def _judge(self, now: datetime) -> None:
        stay = self.staying(NAMES)
        self.broken += [
            f"{name} was read {now - self.read[name]} before"
            for name in stay
            if name not in self.read or now - self.read[name] > reads_last(len(NAMES))
        ]
        if len(stay) > 1:
            self.broken += [f"the deletion of {name} was not tried" for name in stay - self.tried]
        self.broken += [f"the deletion of {name} was refused" for name in self.denied & stay]


@given(
    states=st.lists(pods, min_size=1, max_size=4),
    script=scripts,
    slow=slowness,
    mishap=st.tuples(leaving, pauses),
    deaths=st.lists(st.integers(min_value=0, max_value=120), max_size=3),
)
def test_whatever_happens_nothing_of_a_group_goes_before_all_of_it_would(
    states: list[str],
    script: dict[tuple[str, str], list[Exception | str]],
    slow: dict[tuple[str, str], int],
    mishap: tuple[tuple[str, str, str] | None, tuple[str, int] | None],
    deaths: list[int],
) -> None:
    names = NAMES[: len(states)]
    clock = VirtualClock()
    there = [pod for n, s in zip(names, states, strict=True) if (pod := placed(n, s)) is not None]
    cluster = GangCluster(clock, *there, trainer(1), trainer(2))
    cluster.group_api = PodGroupApi("v1beta1", "v1alpha3")
    cluster.groups[TRAIN] = GroupRecord(key=TRAIN, uid="train-uid", priority=1000, min_count=2)
    for node in ("n1", "n2"):
        cluster.nodes[node] = Node(metadata=Metadata(name=node, uid=f"{node}-uid"))
    for (operation, name), errors in script.items():
        cluster.fail(operation, name, *(Lost() if isinstance(e, str) else e for e in errors))
    gone, pause = mishap
    if gone is not None:
        operation, victim, member = gone
        cluster.before(operation, victim, partial(leave, cluster, member))
    cluster.slow, cluster.pause = slow, pause
    records = FakeRecords()
    order = group_order(*(on(name, NODES[name]) for name in names))
    records.orders["train-uid"] = order

    outcome = asyncio.run(carry_out(order, cluster, records, clock, deaths))

    assert cluster.broken == []
    assert cluster.deleted_uids <= {victim.uid for victim in order.victims}
    assert all(at < order.not_after for _, _, at in cluster.effects)
    assert cluster.deletes_after_refusal == []
    staying = cluster.staying(names)
    members = [cluster.pods[name] for name in MEMBERS if name in cluster.pods]
    nominated = {pod.status.nominated_node_name for pod in members}
    if outcome.result == "succeeded":
        assert not staying
        assert None not in nominated
    elif "not rolled back" not in outcome.message:
        assert nominated <= {None}
        assert not {name for name in staying if cluster.is_marked(name)}
    for told in outcome.victims:
        assert (told.name in staying) == (told.result in ("failed", "notAttempted", "spared"))


def leave(cluster: GangCluster, member: str) -> None:
    """A member goes at once."""
    cluster.pods.pop(member, None)


def placed(name: str, state: str) -> Pod | None:
    """A victim on its node, in a state."""
    mark = patches.mark_message(group_order())
    pod = a_pod(name).marked(message=mark).build() if state == "marked" else a_victim(name, state)
    return None if pod is None else changed(pod, "spec", node_name=NODES[name])
