"""New pods as the API server would store them, or its refusal, or why neither is known."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from makeway.cli.offline.dry_run import DryRun
from makeway.planner.offline.manifests import NewPod
from makeway.runtime.kube import Api, ApiError
from typed_calls import FakeApis

Object = dict[str, Any]


class FakeApi(FakeApis):
    """Stores as an API server with a RuntimeClass and classes does, or answers with an error."""

    def __init__(self, error: ApiError | None = None, *, allowed: bool = True) -> None:
        self.error = error
        self.allowed = allowed
        self.created: list[Object] = []

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> bytes:
        asked = msgspec.json.decode(body)
        if path.endswith("/selfsubjectaccessreviews"):
            return msgspec.json.encode({"status": {"allowed": self.allowed}})
        assert (method, dict(query or {})) == ("POST", {"dryRun": "All"})
        assert path == f"/api/v1/namespaces/{asked['metadata']['namespace']}/pods"
        self.created.append(asked)
        if self.error is not None:
            raise self.error
        asked["spec"].pop("schedulingGroup", None)
        spec = {"priority": 7, "preemptionPolicy": "Never", "serviceAccountName": "default", **asked["spec"]}
        return msgspec.json.encode({**asked, "metadata": {**asked["metadata"], "uid": "new"}, "spec": spec})


def pod(name: str = "web", **spec: Any) -> NewPod:
    return NewPod({"metadata": {"name": name, "uid": "mine"}, "spec": {"containers": [{}], **spec}}, "f")


def stored(api: FakeApi, *pods: NewPod, brought: tuple[tuple[str, str], ...] = ()) -> list[NewPod]:
    async def ask() -> list[NewPod]:
        dry_run = DryRun(cast("Api", api), set(brought), "shop")
        return [await dry_run.stored(one) for one in pods]

    return asyncio.run(ask())


def test_a_pod_is_what_the_api_server_would_store() -> None:
    api = FakeApi()

    (found,) = stored(api, pod())

    assert found.stored
    assert found.manifest["spec"]["preemptionPolicy"] == "Never"
    assert found.manifest["metadata"] == {"name": "web", "namespace": "shop", "uid": "new"}
    assert "uid" not in api.created[0]["metadata"]


def test_pods_that_are_alike_are_asked_about_once() -> None:
    api = FakeApi()

    found = stored(api, pod("a"), pod("b"), pod("c", nodeSelector={"x": "y"}))

    assert [one.manifest["metadata"]["name"] for one in found] == ["a", "b", "c"]
    assert "uid" not in found[1].manifest["metadata"]
    assert len(api.created) == 2


def test_a_refusal_is_in_the_api_servers_words_and_names_each_pod() -> None:
    words = 'pods "a" is forbidden: exceeded quota: team'

    found = stored(FakeApi(ApiError(403, "Forbidden", words)), pod("a"), pod("b"))

    assert [one.refusal for one in found] == [words, words.replace('"a"', '"b"')]


@pytest.mark.parametrize(
    ("api", "brought", "why"),
    [
        (FakeApi(allowed=False), (), "no right to create pods in namespace shop"),
        (FakeApi(ApiError(409, "AlreadyExists", "")), (), "it is there already, and pending"),
        (
            FakeApi(ApiError(404, "NotFound", 'namespaces "shop" not found')),
            (("Namespace", "shop"),),
            "namespace shop is not there yet",
        ),
        (
            FakeApi(ApiError(400, "BadRequest", 'admission webhook "x" does not support dry run')),
            (),
            'admission webhook "x" does not support dry run',
        ),
    ],
)
def test_where_it_cannot_be_asked_the_pod_stays_as_written_and_it_is_said(
    api: FakeApi, brought: tuple[tuple[str, str], ...], why: str
) -> None:
    found = stored(api, pod("a"), pod("b"), brought=brought)

    for one in found:
        assert not one.stored
        assert one.refusal == ""
        assert one.note == f"not judged: what the API server would add or refuse: {why}"
    assert "namespace" not in found[0].manifest["metadata"]


@pytest.mark.parametrize(
    ("spec", "brought", "kept", "gone"),
    [
        (
            {"priorityClassName": "shop"},
            ("PriorityClass", "shop"),
            {"priorityClassName": "shop"},
            ("priority", "preemptionPolicy"),
        ),
        (
            {"serviceAccountName": "web"},
            ("ServiceAccount", "web"),
            {"serviceAccountName": "web"},
            ("serviceAccount",),
        ),
        ({"priority": 9}, ("Service", "web"), {"priority": 9}, ("preemptionPolicy",)),
    ],
)
def test_what_the_files_bring_is_not_asked_for(
    spec: Object, brought: tuple[str, str], kept: Object, gone: tuple[str, ...]
) -> None:
    api = FakeApi()

    (found,) = stored(api, pod(**spec), brought=(brought,))

    assert not spec.keys() & api.created[0]["spec"].keys()
    assert kept.items() <= found.manifest["spec"].items()
    assert not found.manifest["spec"].keys() & set(gone)


def test_a_pod_keeps_its_group_where_the_api_server_knows_none() -> None:
    group = {"podGroupName": "train"}

    (found,) = stored(FakeApi(), pod(schedulingGroup=group))

    assert found.manifest["spec"]["schedulingGroup"] == group


@pytest.mark.parametrize("status", [401, 429])
def test_an_api_server_that_says_nothing_of_the_pod_is_an_error(status: int) -> None:
    with pytest.raises(ApiError):
        stored(FakeApi(ApiError(status, "", "")), pod())
