"""What the evictor's writes are on the wire: the API server's part, as kubernetes-asyncio sends it."""

import re
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from builders_bus import NOW, make_victim
from makeway.core.policy.brake import RELEASED, Brake
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.judge.verdicts import Deleted
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.kube import ApiError, api_error
from typed_calls import FakeApis

VICTIM = make_victim("web-1", namespace="shop", uid="uid-1")
POD = "/api/v1/namespaces/shop/pods/web-1"
AS_READ = {"preconditions": {"uid": "uid-1", "resourceVersion": "42"}}
BY = {"fieldManager": "makeway-evictor"}


class Server(FakeApis):
    """Notes what is sent, and answers with a pod whose grace period is 7 s."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if "body" in options:
            options["body"] = msgspec.json.decode(options["body"])
        self.sent.append((method, path, options))
        metadata = {"name": "web-1", "namespace": "shop", "uid": "uid-1", "deletionGracePeriodSeconds": 7}
        return msgspec.json.encode({"metadata": metadata, "spec": {}})


async def _no_brake() -> Brake:
    return RELEASED


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def edge(server: Server) -> Cluster:
    return Cluster(server, EvictorMetrics(CollectorRegistry()), _no_brake)  # type: ignore[arg-type]


async def test_a_delete_names_uid_and_version_and_no_grace_period(server: Server, edge: Cluster) -> None:
    assert await edge.delete(VICTIM, "42") == Deleted(7)
    assert server.sent == [("DELETE", POD, {"body": AS_READ})]


async def test_without_a_version_a_delete_names_the_uid_alone(server: Server, edge: Cluster) -> None:
    assert await edge.delete(VICTIM, "") == Deleted(7)
    assert server.sent == [("DELETE", POD, {"body": {"preconditions": {"uid": "uid-1"}}})]


async def test_without_a_version_a_mark_is_for_the_pod_that_was_read(server: Server, edge: Cluster) -> None:
    assert await edge.mark(VICTIM, "", "why", NOW)
    [(_, _, _), (method, path, options)] = server.sent
    assert (method, path) == ("PATCH", f"{POD}/status")
    assert options["content_type"] == "application/json-patch+json"
    tests = {one["path"]: one["value"] for one in options["body"] if one["op"] == "test"}
    unread = {"/metadata/deletionTimestamp": None, "/status/conditions": None}
    assert tests == {"/metadata/uid": "uid-1", **unread}
    assert options["body"][-1]["path"] == "/status/conditions"
    assert [one["type"] for one in options["body"][-1]["value"]] == ["DisruptionTarget"]


SAID = "ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not this one"
WEBHOOK = 'admission webhook "keep.example.com" denied the request: not this one'


@pytest.mark.parametrize(
    ("message", "causes", "passes"),
    [
        ("the server rejected our request due to an error in our request", [], True),
        (f'pods "web-1" is forbidden: {SAID}', [{"message": SAID}], False),
        (WEBHOOK, [], False),
        ('Pod "web-1" is invalid', [{"reason": "FieldValueInvalid", "message": "no"}], False),
    ],
    ids=["test", "policy", "webhook", "invalid"],
)
async def test_a_mark_by_uid_that_admission_denies_is_refused_and_one_whose_test_fails_is_a_conflict(
    message: str, causes: list[dict[str, str]], *, passes: bool
) -> None:
    status = {"reason": "Invalid", "message": message, "details": {"name": "web-1", "causes": causes}}
    refusal = api_error(422, msgspec.json.encode(status), None)

    class Refusing(Server):
        async def request(self, method: str, path: str, **options: Any) -> bytes:
            if method == "PATCH":
                raise refusal
            return await super().request(method, path, **options)

    edge = Cluster(Refusing(), EvictorMetrics(CollectorRegistry()), _no_brake)  # type: ignore[arg-type]

    with pytest.raises(TemporaryError if passes else PermanentError, match=re.escape(message)):
        await edge.mark(VICTIM, "", "why", NOW)


@pytest.mark.parametrize("there", [True, False])
async def test_a_webhook_that_refuses_with_404_makes_no_pod_that_is_there_gone(*, there: bool) -> None:
    class Refusing(Server):
        async def request(self, method: str, path: str, **options: Any) -> bytes:
            if method != "GET" or not there:
                raise ApiError(404, "NotFound", WEBHOOK)
            return await super().request(method, path, **options)

    edge = Cluster(Refusing(), EvictorMetrics(CollectorRegistry()), _no_brake)  # type: ignore[arg-type]

    if there:
        with pytest.raises(PermanentError, match=re.escape(WEBHOOK)):
            await edge.delete(VICTIM, "42")
    else:
        assert await edge.delete(VICTIM, "42") is None


async def test_an_eviction_names_the_pod_as_it_was_judged(server: Server, edge: Cluster) -> None:
    assert await edge.evict(VICTIM, "42")
    [(method, path, options)] = server.sent
    assert (method, path, options["query"]) == ("POST", f"{POD}/eviction", BY)
    assert options["body"] == {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"namespace": "shop", "name": "web-1"},
        "deleteOptions": AS_READ,
    }


@pytest.mark.parametrize(("eviction", "path"), [(False, POD), (True, f"{POD}/eviction")])
async def test_a_dry_run_has_no_effect_however_the_server_reads_it(
    server: Server, edge: Cluster, path: str, *, eviction: bool
) -> None:
    assert await edge.dry_run(VICTIM, "42", eviction=eviction)
    [(_, sent_to, options)] = server.sent
    options_sent = options["body"].get("deleteOptions", options["body"])
    assert (sent_to, options["query"]) == (path, {"dryRun": "All"})
    assert options_sent == {**AS_READ, "dryRun": ["All"]}


async def test_a_mark_is_a_strategic_merge_of_a_status_as_the_evictor(server: Server, edge: Cluster) -> None:
    marked = await edge.mark(VICTIM, "42", "why", NOW)

    assert marked is not None
    [(method, path, options)] = server.sent
    assert (method, path, options["query"]) == ("PATCH", f"{POD}/status", BY)
    assert options["content_type"] == "application/strategic-merge-patch+json"
    assert options["body"]["metadata"] == {"uid": "uid-1", "resourceVersion": "42"}
    assert options["body"]["status"]["conditions"][0]["type"] == "DisruptionTarget"

    await edge.clear_nomination(marked)
    [_, (_, path, options)] = server.sent
    assert (path, options["content_type"]) == (f"{POD}/status", "application/merge-patch+json")
    assert options["body"]["status"] == {"nominatedNodeName": None}
