"""The aggregated API server over TLS: whose word counts, what is refused, and what each refusal says."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from makeway.cli.apiserver.answering import Answerer
from makeway.cli.apiserver.front_proxy import FrontProxy, front_proxy_of
from makeway.cli.apiserver.limits import TurnLimits
from makeway.cli.apiserver.question import MOST_BYTES, ROOT
from makeway.cli.apiserver.server import AskServer, listening, tls_context
from makeway.dev.pki import Authority
from makeway.runtime.kube import ApiUnavailable
from typed_calls import FakeApis

WHY = f"{ROOT}/namespaces/shop/explanations/cart"
USER = {"X-Remote-User": "jane", "X-Remote-Group": "tenants"}
NOT_FOUND = "import sys; print('makeway: there is no pod shop/cart', file=sys.stderr); sys.exit(1)"


class FakeApi(FakeApis):
    """Answers reviews: `allowed` None where the API server does not answer."""

    def __init__(self) -> None:
        self.allowed: bool | None = True
        self.reviews: list[dict[str, Any]] = []

    async def request(self, method: str, path: str, *, body: bytes) -> bytes:
        assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
        if self.allowed is None:
            raise ApiUnavailable("away")
        self.reviews.append(json.loads(body)["spec"])
        return json.dumps({"status": {"allowed": self.allowed}}).encode()


class Client:
    """Asks as whoever has a certificate."""

    def __init__(self, authority: Authority, port: int, api: FakeApi) -> None:
        self._authority = authority
        self._port = port
        self.api = api

    async def ask(
        self, path: str, name: str = "front-proxy", headers: dict[str, str] = USER, **request: Any
    ) -> tuple[int, dict[str, Any], str]:
        """Return status, document and Retry-After."""
        context = ssl.create_default_context(cafile=str(self._authority.certificate))
        if name:
            pair = self._authority.client(name)
            context.load_cert_chain(pair.certificate, pair.key)
        url = f"https://localhost:{self._port}{path}"
        method = "POST" if request else "GET"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, ssl=context, **request) as answer,
        ):
            return answer.status, await answer.json(), answer.headers.get("Retry-After", "")


def proxy(authority: Authority) -> FrontProxy:
    return front_proxy_of(
        {
            "requestheader-client-ca-file": authority.certificate.read_text(),
            "requestheader-allowed-names": '["front-proxy"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
        }
    )


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Give a server whose command knows no pod."""
    authority, api = Authority(tmp_path / "pki"), FakeApi()
    serving = authority.serving("serving")
    trusted = proxy(authority)
    answerer = Answerer({}, command=(sys.executable, "-c", NOT_FOUND))
    server = AskServer.of(api, trusted, answerer, CollectorRegistry(), TurnLimits(burst=2))  # type: ignore[arg-type] # the edge
    runner = await listening(server, "127.0.0.1:0", tls_context(trusted, serving.certificate, serving.key))
    yield Client(authority, runner.addresses[0][1], api)
    await runner.cleanup()


async def test_a_user_is_believed_from_the_front_proxy_alone(client: Client) -> None:
    with pytest.raises(aiohttp.ClientError):
        await client.ask(WHY, name="")
    for name, headers in (("another", USER), ("front-proxy", {})):
        status, said, _ = await client.ask(WHY, name, headers)
        assert (status, said["reason"]) == (401, "Unauthorized")
    assert client.api.reviews == []


async def test_a_review_names_the_user_with_groups_and_the_pod(client: Client) -> None:
    status, said, _ = await client.ask(WHY)

    assert (status, said["message"]) == (404, "there is no pod shop/cart")
    (review,) = client.api.reviews
    assert (review["user"], review["groups"]) == ("jane", ["tenants"])
    assert review["resourceAttributes"]["name"] == "cart"
    assert review["resourceAttributes"]["namespace"] == "shop"


async def test_without_the_right_nothing_is_asked(client: Client) -> None:
    client.api.allowed = False

    status, said, _ = await client.ask(WHY)

    assert (status, said["kind"]) == (403, "Status")
    assert "user jane may not get pods cart in namespace shop" in said["message"]


async def test_where_rights_cannot_be_judged_nothing_is_told_and_the_turn_is_given_back(
    client: Client,
) -> None:
    client.api.allowed = None
    first, _, _ = await client.ask(WHY)
    client.api.allowed = True
    second, _, _ = await client.ask(WHY)

    assert (first, second) == (503, 404)


async def test_who_asks_too_often_is_told_when_to_ask_again(client: Client) -> None:
    await client.ask(WHY)
    await client.ask(WHY)
    status, _, after = await client.ask(WHY)
    other, _, _ = await client.ask(WHY, headers={"X-Remote-User": "joe"})

    assert status == 429
    assert int(after) >= 1
    assert other == 404


async def test_a_question_that_is_too_large_is_refused(client: Client) -> None:
    path = f"{ROOT}/namespaces/shop/simulations"

    status, _, _ = await client.ask(path, data=b"x" * (MOST_BYTES + 1))

    assert status == 413


async def test_discovery_tells_of_the_group_and_its_resources(client: Client) -> None:
    _, groups, _ = await client.ask("/apis")
    _, listed, _ = await client.ask(ROOT)

    assert groups["groups"][0]["name"] == "ask.makeway.dev"
    assert {one["name"] for one in listed["resources"]} == {"explanations", "queues", "simulations"}


async def test_many_users_are_answered_two_at_a_time(client: Client) -> None:
    asked = [client.ask(WHY, headers={"X-Remote-User": f"user-{number}"}) for number in range(14)]

    statuses = [status for status, _, _ in await asyncio.gather(*asked)]

    assert set(statuses) <= {404, 429}
    assert statuses.count(404) >= 10


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    trusted = proxy(Authority(tmp_path / "pki"))

    with pytest.raises(ValueError, match=r"serving certificate .*tls.crt"):
        tls_context(trusted, tmp_path / "tls.crt", tmp_path / "tls.key")
