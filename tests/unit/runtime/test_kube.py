"""The API connection against a small local server that misbehaves in the ways real ones do."""

import asyncio
import gzip
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from makeway.core.k8s.objects import Pod
from makeway.runtime.kube import (
    CONNECTIONS,
    AnswerTooLong,
    Api,
    ApiError,
    ApiUnavailable,
    ConfigurationError,
    api_error,
)
from makeway.runtime.pages import Page
from narrowing import as_a, there
from served import served

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def write_kubeconfig(path: Path, server: str, user: dict[str, str]) -> str:
    file = path / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [
                    {"name": "here", "context": {"cluster": "c", "user": "u"}},
                    {"name": "nowhere", "context": {"cluster": "missing", "user": "u"}},
                ],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(file)


@asynccontextmanager
async def api_of(
    handler: Handler, tmp_path: Path, user: dict[str, str] | None = None, connections: int = CONNECTIONS
) -> AsyncIterator[Api]:
    async with served(handler) as port:
        kubeconfig = write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}", user or {"token": "secret"})
        api = await Api.connect(kubeconfig=kubeconfig, user_agent="makeway-test", connections=connections)
        try:
            yield api
        finally:
            await api.close()


async def read_watch(api: Api, into: list[bytes], idle_timeout_seconds: float = 5) -> None:
    query = {"watch": "1"}
    async with aclosing(api.stream("/w", query=query, idle_timeout_seconds=idle_timeout_seconds)) as heard:
        async for lines in heard:
            into += lines


def answering(**answer: Any) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(**answer)

    return handler


async def test_a_pod_that_nests_as_deep_as_the_api_server_takes_is_read(tmp_path: Path) -> None:
    before, depth = sys.getrecursionlimit(), 10_000
    fields = '{"f:a":' * depth + "{}" + "}" * depth
    pod = (
        f'{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{fields}}}]}},"spec":{{"containers":[]}}}}'
    )
    body = f'{{"metadata":{{}},"items":[{pod}]}}'
    try:
        sys.setrecursionlimit(1000)
        async with api_of(answering(text=body), tmp_path) as api:
            page = Page(await api.request("GET", "/p"))
            (listed,) = page.objects(msgspec.json.Decoder(Pod).decode)
            assert as_a(Pod, listed).metadata.name == "a"
    finally:
        sys.setrecursionlimit(before)


def sending(*parts: bytes, seconds: float = 0, cut: bool = False, length: int = 0) -> Handler:
    """Send parts of such a length, then nothing for as long, and end the answer or cut it."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(length)} if length else None)
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        await asyncio.sleep(seconds)
        if cut:
            there(request.transport).close()
        return response

    return handler


async def error_of(tmp_path: Path, **answer: Any) -> ApiError:
    """What is made of such an answer of the API server."""
    async with api_of(answering(**answer), tmp_path) as api:
        with pytest.raises(ApiError) as caught:
            await api.request("GET", "/x")
    return caught.value


async def test_a_request_carries_token_query_body_and_content_type(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    async def handler(request: web.Request) -> web.Response:
        seen["authorization"] = request.headers["Authorization"]
        seen["type"] = request.headers["Content-Type"]
        seen["agent"] = request.headers["User-Agent"]
        seen["continue"] = request.query["continue"]
        seen["body"] = (await request.read()).decode()
        return web.Response(body=b'{"ok":true}')

    async with api_of(handler, tmp_path) as api:
        body = await api.request(
            "PATCH",
            "/x",
            query={"continue": "a+b=/c"},
            body=b"{}",
            content_type="application/merge-patch+json",
        )

    assert body == b'{"ok":true}'
    assert seen == {
        "authorization": "Bearer secret",
        "type": "application/merge-patch+json",
        "agent": "makeway-test",
        "continue": "a+b=/c",
        "body": "{}",
    }


async def test_a_status_object_is_read_with_its_reason_and_retry_after(tmp_path: Path) -> None:
    status = {
        "kind": "Status",
        "reason": "Conflict",
        "message": "uid mismatch",
        "details": {"retryAfterSeconds": 3},
    }

    error = await error_of(tmp_path, text=json.dumps(status), status=409)

    assert (error.status, error.reason, error.message) == (409, "Conflict", "uid mismatch")
    assert error.retry_after_seconds == 3


async def test_a_plain_text_429_of_priority_and_fairness_is_read(tmp_path: Path) -> None:
    text = "Too many requests, please try again later.\n"

    error = await error_of(tmp_path, status=429, text=text, headers={"Retry-After": "1"})

    assert (error.status, error.reason) == (429, "TooManyRequests")
    assert error.message == text.strip()
    assert error.retry_after_seconds == 1


@pytest.mark.parametrize("asked", ["86400", "9" * 400])
async def test_a_wrong_retry_after_parks_no_client(tmp_path: Path, asked: str) -> None:
    error = await error_of(tmp_path, status=503, headers={"Retry-After": asked})

    assert error.retry_after_seconds == 60


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    error = await error_of(tmp_path, status=302, headers={"Location": "http://127.0.0.1:1/elsewhere"})

    assert "302" in str(error)


async def test_a_slow_answer_is_unavailable(tmp_path: Path) -> None:
    async with api_of(sending(seconds=30), tmp_path) as api:
        with pytest.raises(ApiUnavailable, match="timed out"):
            await api.request("GET", "/x", timeout_seconds=0.05)


async def test_a_cut_body_is_unavailable(tmp_path: Path) -> None:
    async with api_of(sending(b'{"half":', length=100, cut=True), tmp_path) as api:
        with pytest.raises(ApiUnavailable):
            await api.request("GET", "/x")


async def test_an_answer_as_long_as_is_allowed_is_read_whole(tmp_path: Path) -> None:
    async with api_of(answering(body=b"x" * 100_000), tmp_path) as api:
        assert len(await api.request("GET", "/x", most_bytes=100_000)) == 100_000
        with pytest.raises(AnswerTooLong, match="longer than 99999 B"):
            await api.request("GET", "/x", most_bytes=99_999)


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    hung_up = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 10_000)
        except ConnectionError:
            hung_up.set()
        return response

    async with api_of(handler, tmp_path) as api:
        with pytest.raises(AnswerTooLong):
            await api.request("GET", "/x", most_bytes=100_000)

        await asyncio.wait_for(hung_up.wait(), 5)


async def test_what_is_too_long_is_told_by_its_length_after_inflation(tmp_path: Path) -> None:
    packed = answering(body=gzip.compress(b"x" * 1_000_000), headers={"Content-Encoding": "gzip"})

    async with api_of(packed, tmp_path) as api:
        with pytest.raises(AnswerTooLong):
            await api.request("GET", "/x", most_bytes=100_000)


async def test_a_refused_connection_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kubeconfig = write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}", {"token": "t"})
    api = await Api.connect(kubeconfig=kubeconfig, user_agent="makeway-test")

    with pytest.raises(ApiUnavailable):
        await api.request("GET", "/x")

    await api.close()


async def test_a_watch_yields_whole_lines_however_they_are_cut_and_however_long(tmp_path: Path) -> None:
    long = b'{"a":"' + b"x" * 6_000_000 + b'"}'

    parts = (b'{"n":1}\n{"n"', b":2}\n\n", long[:3_000_000], long[3_000_000:], b"\n")
    lines: list[bytes] = []

    async with api_of(sending(*parts), tmp_path) as api:
        await read_watch(api, lines)

    assert lines == [b'{"n":1}', b'{"n":2}', long]


async def test_a_watch_that_ends_inside_a_line_is_unavailable(tmp_path: Path) -> None:
    lines: list[bytes] = []

    async with api_of(sending(b'{"n":1}\n{"n":'), tmp_path) as api:
        with pytest.raises(ApiUnavailable, match="inside a line"):
            await read_watch(api, lines)

    assert lines == [b'{"n":1}']


async def test_a_silent_watch_is_unavailable_after_its_idle_time_out(tmp_path: Path) -> None:
    async with api_of(sending(b'{"n":1}\n', seconds=30), tmp_path) as api:
        with pytest.raises(ApiUnavailable, match="timed out"):
            await read_watch(api, [], idle_timeout_seconds=0.1)


async def test_a_refused_watch_is_an_api_error(tmp_path: Path) -> None:
    expired = json.dumps({"kind": "Status", "reason": "Expired", "message": "too old"})

    async with api_of(answering(text=expired, status=410), tmp_path) as api:
        with pytest.raises(ApiError) as caught:
            await read_watch(api, [])

    assert (caught.value.status, caught.value.reason) == (410, "Expired")


def test_what_a_webhook_says_stays_on_one_line() -> None:
    said = "denied\nmakeway: all well\x1b[2J"
    status = {
        "reason": "Forbidden",
        "message": said,
        "details": {"causes": [{"reason": "a", "message": said}]},
    }

    for error in (api_error(403, json.dumps(status).encode(), None), api_error(403, said.encode(), None)):
        assert {error.message, *error.causes.values()} == {"denied makeway: all well [2J"}


async def test_a_token_file_is_read_again_after_a_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def handler(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer new":
            return web.Response(body=b"welcome")
        return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401)

    async with api_of(handler, tmp_path, {"tokenFile": str(token)}) as api:
        token.write_text("new\n")
        with pytest.raises(ApiError, match="401"):
            await api.request("GET", "/x")
        assert await api.request("GET", "/x") == b"welcome"


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_name_that_a_path_resolves_reaches_no_other_object(tmp_path: Path, name: str) -> None:
    reached: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.json_response({})

    async with api_of(handler, tmp_path) as api:
        with pytest.raises(ApiError, match="404"):
            await api.call(api.core.delete_namespaced_pod, name, "shop")
        with pytest.raises(ApiError, match="404"):
            await api.call(api.core.delete_namespaced_pod, "cart", name)
        with pytest.raises(ApiError, match="404"):
            await api.request("GET", f"/api/v1/namespaces/shop/pods/{name}")
        await api.call(api.core.delete_namespaced_pod, f"a{name}", "shop")

    assert reached == [f"/api/v1/namespaces/shop/pods/a{name}"]


async def test_the_cluster_uid_is_that_of_kube_system(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/namespaces/kube-system"
        return web.json_response({"metadata": {"name": "kube-system", "uid": "u-1"}})

    async with api_of(handler, tmp_path) as api:
        assert await api.cluster_uid() == "u-1"


async def test_a_missing_kubeconfig_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--kubeconfig"):
        await Api.connect(kubeconfig=str(tmp_path / "none"), user_agent="makeway-test")


async def test_a_broken_context_is_a_configuration_error(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1", {"token": "t"})

    for context, said in (("absent", "there is no context absent; see `kubectl config"), ("nowhere", "")):
        with pytest.raises(ConfigurationError, match=f"kubeconfig.*{said}"):
            await Api.connect(kubeconfig=kubeconfig, context=context, user_agent="makeway-test")


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "POST", "a typed call"])
async def test_a_write_whose_answer_is_lost_is_not_sent_again(method: str, tmp_path: Path) -> None:
    pod = "/api/v1/namespaces/a/pods/b"
    seen: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.path))
        if request.method != "GET":
            there(request.transport).abort()
        return web.Response(body=b"{}")

    async with api_of(handler, tmp_path) as api:
        if method == "a typed call":
            await api.call(api.core.read_namespaced_pod, "b", "a")
            with pytest.raises(ApiUnavailable, match="delete_namespaced_pod"):
                await api.call(api.core.delete_namespaced_pod, "b", "a")
        else:
            await api.request("GET", pod)
            with pytest.raises(ApiUnavailable):
                await api.request(method, pod, body=b"{}")

    assert seen == [("GET", pod), ("DELETE" if method == "a typed call" else method, pod)]


async def test_a_typed_call_has_our_deadline_and_our_errors(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path.endswith("/slow"):
            await asyncio.sleep(30)
        return web.Response(status=429, text="later", headers={"Retry-After": "2"})

    async with api_of(handler, tmp_path) as api:
        evict = api.core.create_namespaced_pod_eviction
        with pytest.raises(ApiError) as caught:
            await api.call(evict, "b", "a", {"kind": "Eviction"})
        with pytest.raises(ApiUnavailable, match="timed out"):
            await api.call(api.core.read_namespaced_pod, "slow", "a", timeout_seconds=0.05)

    assert (caught.value.status, caught.value.message, caught.value.retry_after_seconds) == (429, "later", 2)


async def test_a_delete_waits_for_no_connection_where_their_number_is_not_limited(tmp_path: Path) -> None:
    hanging, deleted = asyncio.Semaphore(0), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            deleted.set()
        else:
            hanging.release()
            await deleted.wait()
        return web.Response(body=b"{}")

    async with api_of(handler, tmp_path, connections=0) as api, asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            group.create_task(api.request("PATCH", f"/hang/{number}"))
        for _ in range(CONNECTIONS):
            await hanging.acquire()
        await api.request("DELETE", "/api/v1/namespaces/a/pods/b", timeout_seconds=5)
    assert deleted.is_set()
