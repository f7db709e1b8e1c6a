"""Namespaces from which units go are followed, and what a watch has not proven is listed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import background
from makeway.core.k8s.pod_groups import GroupKey
from makeway.evictor.act import following
from makeway.evictor.act.following import MOST_FOLLOWED, UNUSED_SECONDS, FollowedMembers
from makeway.evictor.judge.members import Members
from makeway.evictor.metrics import EvictorMetrics
from makeway.runtime.kube import ApiError
from narrowing import there

KEY = GroupKey("default", "g")


def pod(name: str, version: int, *, node: str = "n1", group: str = "g", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"{name}-uid",
            "resourceVersion": str(version),
        },
        "spec": {"nodeName": node, "schedulingGroup": {"podGroupName": group}},
        "status": {"phase": "Running"} | status,
    }


class PodsApi:
    """Lists what it was given, and has a watch tell what is put into it."""

    def __init__(self, *pods: dict[str, Any], refuses: bool = False) -> None:
        self.pods = pods
        self.refuses = refuses
        self.paths: list[str] = []
        self.watching = 0
        self._events: asyncio.Queue[bytes] = asyncio.Queue()

    def tell(self, kind: str, what: dict[str, Any]) -> None:
        self._events.put_nowait(msgspec.json.encode({"type": kind, "object": what}))

    async def request(self, method: str, path: str, **_: object) -> bytes:
        self.paths.append(path)
        if self.refuses:
            raise ApiError(403, "Forbidden", "pods is forbidden")
        return msgspec.json.encode({"metadata": {"resourceVersion": "10"}, "items": self.pods})

    async def stream(self, path: str, **_: object) -> AsyncIterator[list[bytes]]:
        self.watching += 1
        try:
            yield []
            while True:
                yield [await self._events.get()]
        finally:
            self.watching -= 1


@asynccontextmanager
async def following_with(api: PodsApi) -> AsyncIterator[FollowedMembers]:
    followed = FollowedMembers(api, EvictorMetrics(CollectorRegistry()))
    async with background(followed.run()):
        await asyncio.sleep(0)
        yield followed


async def known(followed: FollowedMembers, since: int = 0) -> Members:
    """Ask until the first list is in."""
    for _ in range(500):
        if (members := await followed.members("default", since)) is not None:
            return members
        await asyncio.sleep(0.01)
    raise AssertionError("never listed")


def names(members: Members | None) -> list[str]:
    return sorted(member.name for member in there(members).get(KEY, ()))


async def test_the_first_to_ask_lists_and_those_after_it_ask_the_watch() -> None:
    api = PodsApi(pod("a", 5), pod("b", 6), pod("ended", 7, phase="Succeeded"), pod("waits", 8, node=""))
    async with following_with(api) as followed:
        assert await followed.members("default", 0) is None
        assert names(await known(followed)) == ["a", "b"]
    assert api.paths == ["/api/v1/namespaces/default/pods"]
    assert api.watching == 0


async def test_changes_are_followed() -> None:
    api = PodsApi(pod("a", 5), pod("b", 6))
    async with following_with(api) as followed:
        await known(followed)
        api.tell("ADDED", pod("c", 11))
        api.tell("DELETED", pod("a", 12))
        api.tell("MODIFIED", pod("b", 13, phase="Failed"))

        assert names(await followed.members("default", 13)) == ["c"]


async def test_a_pod_is_of_one_group_alone_whatever_the_watch_told_before() -> None:
    api = PodsApi(pod("a", 5))
    async with following_with(api) as followed:
        await known(followed)
        api.tell("MODIFIED", pod("a", 11, group="other"))

        members = there(await followed.members("default", 11))

        assert list(members) == [GroupKey("default", "other")]


async def test_an_answer_waits_until_the_watch_has_come_so_far() -> None:
    api = PodsApi(pod("a", 5))
    async with following_with(api) as followed:
        await known(followed)
        asked = asyncio.create_task(followed.members("default", 12))
        api.tell("ADDED", pod("b", 11))
        await asyncio.sleep(0.02)
        assert not asked.done()
        api.tell("MODIFIED", pod("a", 12))

        assert names(await asked) == ["a", "b"]


async def test_a_watch_that_does_not_come_so_far_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PROOF_SECONDS", 0.05)
    async with following_with(PodsApi(pod("a", 5))) as followed:
        await known(followed)

        assert await followed.members("default", 11) is None


async def test_where_a_pod_cannot_be_read_nothing_is_known() -> None:
    """It may be a member: the list that is read instead fails by it, and keeps the unit."""
    api, unreadable = PodsApi(pod("a", 5)), pod("b", 11)
    unreadable["metadata"]["deletionTimestamp"] = "soon"
    async with following_with(api) as followed:
        await known(followed)
        api.tell("ADDED", unreadable)
        api.tell("MODIFIED", pod("a", 12))

        assert await followed.members("default", 11) is None


async def test_where_pods_may_not_be_listed_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PROOF_SECONDS", 60.0)
    async with following_with(PodsApi(refuses=True)) as followed:
        began = time.monotonic()
        for _ in range(5):
            assert await followed.members("default", 0) is None
            await asyncio.sleep(0)
        assert time.monotonic() - began < following.PROOF_SECONDS


async def test_what_is_not_asked_about_is_not_followed_any_more() -> None:
    api = PodsApi(pod("a", 5))
    async with following_with(api) as followed:
        await known(followed)
        followed.forget_unused(time.monotonic() + UNUSED_SECONDS - 1)
        assert await followed.members("default", 0) is not None

        followed.forget_unused(time.monotonic() + UNUSED_SECONDS + 1)
        await asyncio.sleep(0.01)

        assert api.watching == 0
        assert await followed.members("default", 0) is None


async def test_so_many_namespaces_are_followed_and_no_more() -> None:
    api = PodsApi()
    async with following_with(api) as followed:
        for number in range(MOST_FOLLOWED + 5):
            await followed.members(f"ns-{number}", 0)
        await asyncio.sleep(0.05)

        assert len(api.paths) == MOST_FOLLOWED


async def test_before_it_runs_nothing_is_followed() -> None:
    api = PodsApi()

    assert await FollowedMembers(api, EvictorMetrics(CollectorRegistry())).members("default", 0) is None
    assert api.paths == []
