"""What is in force, whatever sources offer: texts, rubbish, nothing; and what is said of it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from makeway.core.config.document import ConfigError
from makeway.core.k8s.event import NOTE_LIMIT, cut
from makeway.core.k8s.objects import ConfigMap, Metadata
from makeway.core.policy.document import Policy, parse_policy
from makeway.runtime.config import Config, ConfigContent, ConfigKind, revision_of
from makeway.runtime.config_events import ConfigEvents
from makeway.runtime.config_metrics import ConfigMetrics
from makeway.runtime.config_sources import ConfigMapSource
from recorded_events import RecordedEvents

HEAD = "apiVersion: makeway.dev/v1\nkind: Policy\n"
OBSERVE = HEAD + "mode: observe\n"
PROTECT = HEAD + "protection: {namespaces: [kube-system]}\n"
BAD = HEAD + "mode: enforced\n"


class World:
    """A policy, and the ConfigMap that it is read from."""

    def __init__(self, remembered: str = "", parse: Callable[[str, str], Policy] = parse_policy) -> None:
        self.registry = CollectorRegistry()
        metrics = ConfigMetrics(self.registry)
        kind = ConfigKind("policy", "makeway-policy", "policy.yaml", parse, Policy())
        self.config: Config[Policy] = Config(kind, metrics, remembered=remembered)
        self.recorder = RecordedEvents()
        self.events = ConfigEvents(self.config, self.recorder)
        self.events.begin()
        self.source = ConfigMapSource(Nowhere(), self.config, metrics, namespace="makeway-system")

    def write(self, text: str, key: str = "policy.yaml", uid: str = "uid-1") -> None:
        self.source.put(configmap({key: text}, uid))
        self.settle()

    def delete(self, uid: str = "uid-1") -> None:
        self.source.drop(configmap({}, uid))
        self.settle()

    def listed(self, *uids: str) -> None:
        self.source.retain(set(uids))
        self.settle()

    def settle(self) -> None:
        asyncio.run(self.source.settle())

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"makeway_config_{name}", {"config": "policy", **labels})


class Nowhere:
    """An API server that nobody asks."""

    async def request(self, *args: Any, **options: Any) -> bytes:
        raise AssertionError("nobody asks")

    def stream(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("nobody asks")


def configmap(data: dict[str, str], uid: str) -> ConfigMap:
    metadata = Metadata(name="makeway-policy", namespace="makeway-system", uid=uid)
    return ConfigMap(metadata=metadata, data=data)


def test_nothing_is_decided_before_anything_was_read() -> None:
    world = World()

    assert world.config.unsynced() == "the policy has not been read yet"


def test_an_accepted_text_is_in_force_and_said_so() -> None:
    world = World()

    world.write(OBSERVE)

    assert (world.config.current.mode, world.config.unsynced()) == ("observe", "")
    assert world.config.revision == revision_of(OBSERVE)
    assert [event[1:3] for event in world.recorder] == [("Normal", "ConfigAccepted")]
    assert world.metric("last_reload_successful") == 1
    assert world.metric("info", revision=world.config.revision) == 1


def test_a_refused_text_leaves_the_last_good_one_in_force_and_says_what_is_wrong() -> None:
    world = World()
    world.write(OBSERVE)

    world.write(BAD)

    assert (world.config.current.mode, world.config.unsynced()) == ("observe", "")
    _, event_type, reason, _, note = world.recorder[-1]
    assert (event_type, reason) == ("Warning", "ConfigRefused")
    assert "makeway-policy/policy.yaml:3: mode: 'enforced' is not allowed; write one of enforce, " in note
    assert f"policy {revision_of(OBSERVE)} stays effective" in note
    assert world.metric("last_reload_successful") == 0
    assert world.metric("info", revision=revision_of(OBSERVE)) == 1


def test_the_same_text_again_is_no_reload() -> None:
    world = World()

    for _ in range(3):
        world.write(OBSERVE)

    assert world.metric("reloads_total", result="accepted") == 1
    assert len(world.recorder) == 1


def test_a_key_that_is_not_there_is_refused_with_the_one_that_is_meant() -> None:
    world = World()

    world.write(OBSERVE, key="policy.yml")

    assert "has no key policy.yaml; did you mean policy.yml?" in world.config.unsynced()


def test_a_deleted_object_protects_whom_it_protected() -> None:
    world = World()
    world.write(PROTECT)

    world.delete()
    world.listed()

    assert world.config.current.protection.namespaces == ("kube-system",)
    assert [event[1:3] for event in world.recorder[1:]] == [("Warning", "ConfigGone")]
    assert world.metric("last_reload_successful") == 0

    world.write(PROTECT, uid="uid-2")
    assert world.metric("last_reload_successful") == 1


def test_an_object_that_another_has_replaced_is_not_missed() -> None:
    world = World()
    world.write(PROTECT)
    world.write(OBSERVE, uid="uid-2")

    world.delete("uid-1")

    assert world.config.verdict is not None
    assert (world.config.verdict.result, world.config.current.mode) == ("accepted", "observe")


def test_where_there_never_was_a_policy_none_is_needed() -> None:
    world = World()

    world.listed()

    assert (world.config.unsynced(), world.config.revision, world.config.current) == ("", "", Policy())
    assert world.recorder == []


def test_who_starts_after_a_policy_was_deleted_waits_until_it_is_said_that_there_shall_be_none() -> None:
    world = World(remembered="sha256:1234")

    world.listed()

    assert "policy sha256:1234 was effective and ConfigMap makeway-system/makeway-policy is gone" in (
        world.config.unsynced()
    )

    world.write(HEAD)
    assert (world.config.unsynced(), world.config.current.mode) == ("", "enforce")


def test_who_starts_with_a_text_that_is_refused_waits_and_says_why() -> None:
    world = World()

    world.write(BAD)

    assert "mode: 'enforced' is not allowed" in world.config.unsynced()
    world.write(BAD + "modus: x\nlimit: 3\n")
    assert world.config.unsynced().endswith("write one of enforce, observe, off (and 2 more)")
    assert (world.config.current, world.config.revision) == (Policy(), "")


def test_who_begins_to_speak_speaks_of_the_last_verdict_first_and_of_each_once() -> None:
    world = World()
    world.events.end()
    world.write(OBSERVE)
    world.write(BAD)
    assert world.recorder == []

    world.events.begin()
    world.events.begin()

    assert [event.reason for event in world.recorder] == ["ConfigRefused"]


def test_a_note_is_cut_to_what_the_api_server_takes() -> None:
    note = cut("\n".join(f"line {n} ä" for n in range(300)))

    assert len(note.encode()) <= NOTE_LIMIT
    assert note.endswith("ä …")
    assert cut("short") == "short"
    assert len(cut("ä" * 5000).encode()) <= NOTE_LIMIT


steps = st.lists(
    st.sampled_from([OBSERVE, PROTECT, HEAD, BAD, "", "mode: [", "delete", "relist"]) | st.text(max_size=20),
    max_size=12,
)


@given(steps)
def test_what_is_in_force_is_always_the_last_text_that_would_be_accepted(texts: list[str]) -> None:
    world = World()
    good = ""
    for text in texts:
        if text == "delete":
            world.delete()
        elif text == "relist":
            world.listed("uid-1")
        else:
            world.write(text)
            if accepted(text):
                good = text

    assert world.config.revision == (revision_of(good) if good else "")
    assert world.config.current.mode == (parse_policy(good, "").mode if good else "enforce")
    assert world.metric("info", revision=world.config.revision) == 1


def accepted(text: str) -> bool:
    try:
        parse_policy(text, "policy.yaml")
    except ConfigError:
        return False
    return True


async def test_a_large_text_is_read_beside_the_loop_and_a_deletion_meanwhile_comes_after_it() -> None:
    begun, end = threading.Event(), threading.Event()

    def slow(text: str, source: str) -> Policy:
        begun.set()
        assert end.wait(10)
        return parse_policy(text, source)

    world = World(parse=slow)
    world.source.put(configmap({"policy.yaml": OBSERVE}, "uid-1"))
    reading = asyncio.create_task(world.source.settle())
    await asyncio.to_thread(begun.wait, 10)

    world.source.drop(configmap({}, "uid-1"))
    assert world.config.unsynced() == "the policy has not been read yet"
    end.set()
    await reading

    assert [event.reason for event in world.recorder] == ["ConfigAccepted", "ConfigGone"]
    assert world.config.current.mode == "observe"


def test_an_offer_without_an_object_has_no_events() -> None:
    world = World()

    world.config.offer(ConfigContent(source="policy.yaml", text=OBSERVE))

    assert world.recorder == []
