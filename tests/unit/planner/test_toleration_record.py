"""The record of tolerations: what is written of which classes, what counts of it, and what is told."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import background, turns
from makeway.core.k8s.objects import ConfigMap, Metadata, PriorityClass
from makeway.core.policy import toleration_record
from makeway.core.policy.toleration_record import entry_of
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service import tolerations
from makeway.planner.service.tolerations import TolerationKeeper, revised
from makeway.planner.service.watch import Feed, HandlerGroup
from makeway.planner.snapshot.changes import PutPod
from makeway.runtime.kube import ApiError
from recorded_events import RecordedEvents
from typed_calls import FakeApis, SilentWatch
from unit.planner.building import (
    HIGH,
    LOW,
    ask,
    choices,
    make_class,
    make_pod,
    make_snapshot,
    planned,
    scheduled,
)

STEADY = make_class("steady", HIGH + 1, -1)
PLAIN = make_class("steady")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Api(SilentWatch, FakeApis):
    """One ConfigMap with its version; `refuses`: what a write is answered with."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
        self.version = 1
        self.writes = 0
        self.refuses: ApiError | None = None

    def found(self) -> ConfigMap:
        metadata = Metadata(
            name="makeway-tolerations", namespace="mw", uid="u", resource_version=str(self.version)
        )
        return ConfigMap(metadata=metadata, data=dict(self.data))

    async def request(self, method: str, path: str, *, body: bytes = b"{}", **_: object) -> bytes:
        assert (method, path) == ("PATCH", "/api/v1/namespaces/mw/configmaps/makeway-tolerations")
        self.writes += 1
        if self.refuses is not None:
            raise self.refuses
        change = msgspec.json.decode(body)
        if change["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "the object has been modified")
        for name, text in change["data"].items():
            self.data.pop(name, None)
            if text is not None:
                self.data[name] = text
        self.version += 1
        return b"{}"


class World:
    """A planner's keeper with its snapshot: a pod of class steady on node a, and one without a class on b."""

    def __init__(self, api: Api | None = None) -> None:
        self.api = api or Api()
        self.events = RecordedEvents()
        pods = [make_pod("s", "a", LOW, 400, facts=scheduled(10, "steady")), make_pod("p", "b", LOW + 1, 400)]
        self.snapshot = make_snapshot(["a", "b"], pods)
        observer = PlannerMetrics(CollectorRegistry())
        self.keeper = TolerationKeeper(self.api, self.snapshot, self.events, observer, namespace="mw")
        self.classes = HandlerGroup(
            Feed[PriorityClass](self.snapshot, observer, "priorityclasses"), self.keeper
        )

    def see(self) -> None:
        """Let the list-watch show what is stored."""
        self.keeper.read(self.api.found())

    async def lead(self) -> None:
        """Lead until nothing more is to be done."""
        async with background(self.keeper.keep_forever()):
            for _ in range(3):
                await turns(5)
                self.see()
            await turns(5)

    def chosen(self) -> list[str]:
        """Return the nodes on which a pod may go, best first."""
        return [
            node for node, _ in choices(planned(self.snapshot, ask(make_pod("P", priority=HIGH, size=300))))
        ]


async def test_a_class_that_is_gone_protects_as_it_said_where_it_is_on_record() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    await world.lead()
    assert world.api.data == {"steady": entry_of(STEADY)}

    world.classes.drop(STEADY)

    assert world.chosen() == ["b"]


async def test_a_class_that_is_gone_and_tolerated_nothing_protects_nobody() -> None:
    world = World()
    world.see()
    world.classes.put(PLAIN)
    world.classes.drop(PLAIN)
    await world.lead()

    assert world.chosen() == ["a", "b"]
    assert (world.api.writes, world.events) == (0, [])


def test_a_class_that_is_gone_protects_while_the_record_has_not_been_read() -> None:
    world = World()
    assert world.chosen() == ["b"]

    world.see()
    assert world.chosen() == ["a", "b"]


async def test_it_is_told_once_which_class_is_gone_with_how_many_pods_and_how_to_end_it() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    await world.lead()
    assert world.events == []

    world.classes.drop(STEADY)
    await world.lead()

    ((about, kind, reason, _, note),) = world.events
    assert (about.kind, about.namespace, about.name) == ("ConfigMap", "mw", "makeway-tolerations")
    assert (kind, reason) == ("Warning", "TolerationOutlivesClass")
    assert note.startswith("PriorityClass steady is gone; its annotations still exempt 1 pod of it")
    assert (
        """kubectl patch configmap -n mw makeway-tolerations --type merge -p '{"data":{"steady":null}}'"""
        in note
    )


async def test_an_entry_that_a_person_removes_protects_no_more_and_does_not_come_back() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    await world.lead()
    world.classes.drop(STEADY)
    await world.lead()

    world.api.data.clear()
    world.api.version += 1
    world.see()
    await world.lead()

    assert world.chosen() == ["a", "b"]
    assert world.api.data == {}


@pytest.mark.parametrize("end", [PLAIN, make_class("steady", HIGH + 1, 0)])
async def test_a_class_that_no_longer_tolerates_leaves_the_record(end: PriorityClass) -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    await world.lead()

    world.classes.put(end)
    await world.lead()

    assert world.api.data == {}


async def test_a_class_that_goes_before_it_was_written_is_written_by_whoever_leads_next() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    world.classes.drop(STEADY)
    assert world.chosen() == ["b"]

    await world.lead()

    assert world.api.data == {"steady": entry_of(STEADY)}
    assert [event.reason for event in world.events] == ["TolerationOutlivesClass"]


def test_classes_that_a_new_list_does_not_have_are_gone() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)

    world.classes.retain(set())

    assert world.chosen() == ["b"]


async def test_a_write_that_another_planner_was_ahead_of_is_made_anew_of_what_that_one_left() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    world.api.data = {"other": entry_of(make_class("other", HIGH, -1))}
    world.api.version += 1

    await world.lead()

    assert sorted(world.api.data) == ["other", "steady"]
    assert world.api.writes == 2


async def test_a_write_that_is_refused_is_tried_again() -> None:
    world = World()
    world.see()
    world.classes.put(STEADY)
    world.api.refuses = ApiError(403, "Forbidden", "no right")
    await world.lead()
    assert (world.api.writes > 0, world.api.data) == (True, {})

    world.api.refuses = None
    await world.lead()

    assert list(world.api.data) == ["steady"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_record_that_cannot_be_used_any_more_leaves_the_last_one_in_force(deleted: bool) -> None:
    world = World()
    world.api.data = {"steady": entry_of(STEADY)}
    world.see()

    world.api.data = {"other": "{"}
    world.keeper.read(None if deleted else world.api.found())

    assert world.chosen() == ["b"]
    if not deleted:
        await world.lead()
        assert world.api.writes == 0
        assert [event.reason for event in world.events] == [
            "TolerationRecordUnreadable",
            "TolerationOutlivesClass",
        ]


def aged(name: str, days: int) -> str:
    metadata = Metadata(name=name, annotations=STEADY.metadata.annotations)
    metadata = msgspec.structs.replace(metadata, creation_timestamp=BEGAN + timedelta(days=days))
    return entry_of(PriorityClass(metadata=metadata, value=1))


def test_a_full_record_leaves_out_gone_classes_and_then_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerations, "MOST", 3)
    there = {"old": aged("old", 1), "young": aged("young", 9)}
    gone = {"gone-old": aged("gone-old", 5), "gone-young": aged("gone-young", 6)}

    changes, out = revised({**gone, "old": there["old"]}, there, ())
    assert (changes, out) == ({"gone-old": None, "young": there["young"]}, ["gone-old"])

    again, out = revised({**there, "gone-young": gone["gone-young"]}, there, ())
    assert (again, out) == ({}, [])

    more = {**there, "new": aged("new", 10), "newest": aged("newest", 11)}
    changes, out = revised(there, more, ())
    assert (changes, out) == ({"old": None, "new": more["new"], "newest": more["newest"]}, ["old"])
    assert revised({name: more[name] for name in ("young", "new", "newest")}, more, ())[0] == {}


async def test_a_class_that_leaves_a_full_record_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerations, "MOST", 1)
    world = World()
    world.api.data = {"steady": entry_of(STEADY)}
    world.see()
    world.classes.put(make_class("other", HIGH, -1))

    await world.lead()

    assert list(world.api.data) == ["other"]
    assert world.events[0].reason == "TolerationRecordFull"
    assert "PriorityClass steady is not on it any more" in world.events[0].note
    assert world.chosen() == ["a", "b"]


def test_a_configmap_has_room_for_the_most_classes_with_the_longest_names_and_values() -> None:
    metadata = Metadata(
        annotations=dict.fromkeys(STEADY.metadata.annotations or {}, "9" * 5000), creation_timestamp=BEGAN
    )
    entry = entry_of(PriorityClass(metadata=metadata, value=-2_147_483_648))

    assert toleration_record.MOST * (253 + len(entry)) < 2**20


def test_pods_that_come_after_their_class_went_go_by_the_record_too() -> None:
    world = World()
    world.api.data = {"late": entry_of(make_class("late", HIGH + 1, -1))}
    world.see()

    world.snapshot.apply(PutPod(make_pod("s", "a", LOW, 400, facts=scheduled(10, "late"))))

    assert world.chosen() == ["b"]
