"""Whatever a plan request holds, the planner answers, and what it records can be stored."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.bus import codec
from makeway.bus.decisions import DecisionRecord
from makeway.bus.plan import PlanReply
from makeway.bus.subjects import Subjects
from makeway.dev import samples
from makeway.planner.plan.decision import Decision, record_of
from narrowing import as_a, there
from unit.planner.building import make_pod, make_snapshot
from unit.planner.test_service import Bench

REQUEST: dict[str, Any] = json.loads(codec.encode(samples.MESSAGES["plan-request.full"])) | {
    "clusterUid": "cluster-1",
    "requestId": "req-x",
    "timeoutMilliseconds": 10**9,
}
_POD: dict[str, Any] = REQUEST["classes"][0]["pod"]
JUNK: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 10**30, 1.5, 1e308, "", "x" * 5000, "\u0000", ".", "a.>", "9e30",
    "1e400", "1Ki", "NaN", "9" * 400 + "m", [], {}, [[]], {"a": {}}, ["a", 1],
]  # fmt: skip


class World(Bench):
    """A planner of two nodes with a pod each, whose decisions are looked at."""

    def __init__(self) -> None:
        pods = [make_pod("a", "node-1", 0, 300), make_pod("b", "node-2", 0, 400)]
        super().__init__(make_snapshot(["node-1", "node-2"], pods), behind=True)
        self.decided: list[Decision | DecisionRecord] = []
        self.decisions.put = self.decided.append  # type: ignore[method-assign, assignment]

    async def send(self, data: bytes) -> PlanReply:
        """Ask; the answer must be one, and every record must be fit for its stream."""
        reply = codec.decode(PlanReply, await self.handle(data))
        for decision in self.decided:
            record = record_of(as_a(Decision, decision))
            codec.unwrap_decision(codec.wrap(record, "makeway/planner/test"))
            Subjects().decisions_of("pod", record.preemptor.uid if record.preemptor else record.decision_id)
        self.decided.clear()
        return reply


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a document but the document itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, inner in items for way in ((*prefix, key), *paths(inner, (*prefix, key)))]


def with_junk(request: dict[str, Any], way: tuple[Any, ...], junk: Any) -> bytes:
    """The request with one value replaced."""
    changed = json.loads(json.dumps(request))
    inner = changed
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = junk
    return json.dumps(changed).encode()


@pytest.mark.parametrize("way", paths(REQUEST), ids=lambda way: ".".join(map(str, way)))
async def test_junk_in_any_place_is_answered(way: tuple[Any, ...]) -> None:
    world = World()

    for junk in JUNK:
        await world.send(with_junk(REQUEST, way, junk))


@given(st.binary(max_size=200))
async def test_any_bytes_are_answered(data: bytes) -> None:
    reply = await World().send(data)

    assert there(reply.refusal).reason == "MalformedRequest"


@given(st.randoms(use_true_random=False))
async def test_a_damaged_request_is_answered(source: random.Random) -> None:
    data = bytearray(json.dumps(REQUEST).encode())
    for _ in range(source.randint(1, 4)):
        data[source.randrange(len(data))] = source.randrange(256)

    await World().send(bytes(data))


async def test_an_answer_to_what_was_not_understood_names_the_question() -> None:
    world = World()

    refusal = await world.send(with_junk(REQUEST, ("mode",), 7))
    unknown = await world.send(b"[]")

    assert (refusal.request_id, refusal.status) == ("req-x", "notSynced")
    assert unknown.request_id == codec.UNKNOWN_REQUEST
    assert world.registry.get_sample_value("makeway_planner_decode_errors_total", {"source": "plan"}) == 2


@pytest.mark.parametrize(
    ("gone", "put", "told"),
    [
        (("classes",), {"pod": _POD, "nodes": {}}, "missing required field `classes`"),
        ((), {"classes": []}, "about one pod"),
        ((), {"classes": [{"pod": _POD, "count": 2, "nodes": {}}]}, "about one pod"),
        ((), {"group": {"namespace": "shop", "name": "g", "uid": "g", "priority": 1}}, "about one pod"),
    ],
    ids=["a pod beside classes, as of an older bridge", "no class", "two pods", "a group"],
)
async def test_a_request_that_is_not_about_one_pod_is_declined_with_a_sentence(
    gone: tuple[str, ...], put: dict[str, Any], told: str
) -> None:
    old = {name: value for name, value in REQUEST.items() if name not in gone}

    reply = await World().send(json.dumps(old | put).encode())

    assert (reply.status, reply.offer) == ("notSynced", "")
    assert told in there(reply.refusal).message


async def test_a_request_within_the_bounds_is_answered_soon_however_large() -> None:
    large = with_junk(REQUEST, ("classes", 0, "pod", "x"), [[{}]] * 100_000)

    reply = await World().send(large)

    assert reply.request_id == "req-x"
