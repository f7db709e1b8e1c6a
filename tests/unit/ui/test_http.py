"""The page over HTTP: who may look, under which names, and within which bounds."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientSession

from makeway.ui.edge import app as app_module
from makeway.ui.edge.app import VIEWS
from makeway.ui.edge.gate import Admission
from ui_page import TOKEN, MadeUpPage

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def page() -> Iterator[tuple[MadeUpPage, str]]:
    made_up = MadeUpPage(count=30, nodes=6)
    with made_up.served() as address:
        yield made_up, address


@pytest.fixture
def made_up(page: tuple[MadeUpPage, str]) -> MadeUpPage:
    return page[0]


@pytest.fixture
async def client(page: tuple[MadeUpPage, str]) -> AsyncIterator[ClientSession]:
    """Ask the page by paths."""
    async with ClientSession(page[1], cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


async def got(client: ClientSession, url: str, **headers: str) -> tuple[int, str]:
    async with client.get(url, headers=headers, allow_redirects=False) as response:
        return response.status, await response.text()


async def test_without_the_token_nothing_is_shown(client: ClientSession) -> None:
    paths = [*VIEWS, "/api/now", "/api/events", "/api/cluster", "/api/queues"]
    for path in paths:
        assert (await got(client, path))[0] == 401, path
        assert (await got(client, path, Authorization="Bearer wrong"))[0] == 401, path
    assert (await got(client, "/?token=wrong"))[0] == 401
    assert (await got(client, f"/api/now?token={TOKEN}"))[0] == 401, "not of the page itself"


async def test_the_token_leaves_the_address_for_a_cookie_no_script_can_read(client: ClientSession) -> None:
    async with client.get(f"/timeline?token={TOKEN}", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/timeline")
        cookie = SimpleCookie(response.headers["Set-Cookie"])["makeway-ui"]

    assert (cookie["httponly"], cookie["samesite"]) == (True, "strict")
    assert TOKEN not in cookie.value
    status, text = await got(client, "/api/now", Cookie=f"makeway-ui={cookie.value}")
    assert (status, '"stops"' in text) == (200, True)


async def test_the_filters_of_a_view_stay_in_the_address_without_its_token(client: ClientSession) -> None:
    asked = f"/timeline?result=failed&token={TOKEN}&pod=a%26b"
    async with client.get(asked, allow_redirects=False) as response:
        assert response.headers["Location"] == "/timeline?result=failed&pod=a%26b"


class FormGate:
    """Takes one token, from a form."""

    form = True

    async def review(self, token: str) -> Admission:
        return Admission(token == TOKEN)


@pytest.mark.parametrize(
    ("asked", "login", "shown"),
    [
        (
            "/timeline?result=failed&pod=a%26b",
            "/login?view=%2Ftimeline%3F",
            "/timeline?result=failed&pod=a%26b",
        ),
        ("/queues", "/login?view=%2Fqueues", "/queues"),
        ("/", "/login", "/"),
    ],
)
async def test_who_logs_in_comes_to_the_view_that_was_asked_for(
    client: ClientSession, asked: str, login: str, shown: str
) -> None:
    with MadeUpPage(count=1, nodes=1, gate=FormGate()).served() as address:
        async with client.get(f"{address}{asked}", allow_redirects=False) as response:
            form = response.headers["Location"]
        async with client.post(f"{address}{form}", data={"token": TOKEN}, allow_redirects=False) as response:
            came = response.headers["Location"]

    assert form.startswith(login)
    assert came == shown


class AwayGate:
    """Knows no one: the API server is away."""

    form = True

    async def review(self, token: str) -> Admission:
        return Admission(False, "The API server does not answer: away", answered=False)


async def test_while_the_api_server_is_away_no_one_is_sent_to_log_in(client: aiohttp.ClientSession) -> None:
    with MadeUpPage(count=1, nodes=1, gate=AwayGate()).served() as address:
        for path in ("/queues", "/api/now"):
            assert await got(client, f"{address}{path}", **BEARER) == (
                503,
                "The API server does not answer: away\n",
            )


@pytest.mark.parametrize(
    "view", ["//evil.example/", "https://evil.example/timeline", "/\\evil.example", "/logout"]
)
async def test_a_login_leads_to_no_other_page(client: ClientSession, view: str) -> None:
    with MadeUpPage(count=1, nodes=1, gate=FormGate()).served() as address:
        async with client.post(
            f"{address}/login", params={"view": view}, data={"token": TOKEN}, allow_redirects=False
        ) as response:
            assert response.headers["Location"] == "/"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({}, 200),
    ],
)
async def test_what_comes_from_another_page_is_not_answered(
    client: ClientSession, headers: dict[str, str], status: int
) -> None:
    assert (await got(client, "/api/now", **BEARER, **headers))[0] == status


async def test_a_form_of_another_page_starts_no_simulation(client: ClientSession) -> None:
    async with client.post(
        "/api/simulate", json={"manifest": "kind: Pod"}, headers={"Cookie": "makeway-ui=x"}
    ) as response:
        assert response.status == 403, "no origin, and so not a browser's own"


async def test_every_answer_has_the_headers_that_keep_a_browser_strict(client: ClientSession) -> None:
    for path in ("/", "/static/app.js", "/api/now", "/no-such", "/static/../edge/app.py"):
        async with client.get(path, headers=BEARER) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["X-Frame-Options"] == "DENY"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert "Cache-Control" in response.headers


async def test_only_the_pages_own_files_can_be_read(client: ClientSession) -> None:
    assert (await got(client, "/static/app.css"))[0] == 200
    for path in ("/static/%2e%2e/edge/app.py", "/static//etc/passwd", "/static/", "/static/no-such.js"):
        assert (await got(client, path))[0] == 404, path


async def test_long_answers_are_compressed_and_changes_sent_as_they_come(client: ClientSession) -> None:
    for path, encoding in (("/static/app.js", "gzip"), ("/livez", None), ("/api/events", None)):
        headers = {**BEARER, "Accept-Encoding": "gzip"}
        async with client.get(path, headers=headers) as response:
            assert (response.status, response.headers.get("Content-Encoding")) == (200, encoding), path


def test_no_file_names_another_host_or_has_a_script_or_style_in_its_text() -> None:
    static = Path(app_module.__file__).parent.parent / "static"
    files = [path for path in static.rglob("*") if path.is_file()]
    assert {"index.html", "login.html", "app.js", "app.css", "cluster.js"} <= {path.name for path in files}
    for path in files:
        name, text = path.name, path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, name
        assert "innerHTML" not in text, name
        if name.endswith(".html"):
            assert "<style" not in text
            assert " style=" not in text
            assert "onclick" not in text


async def test_a_body_is_read_up_to_a_bound_whatever_it_is_said_to_be(client: ClientSession) -> None:

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    async with client.post("/api/simulate", data=endless(), headers=BEARER) as response:
        assert response.status == 413


async def test_what_is_asked_wrongly_is_answered_in_a_sentence(client: ClientSession) -> None:
    for what in ("", "nothing", "a/../../../secrets", "../x", "Shop/web", "ord-%00"):
        status, text = await got(client, f"/api/story?what={what}", **BEARER)
        assert (status, text) == (404, "Give a pod as namespace/name, or the id of an order or decision.\n")
    assert (await got(client, "/api/node?name=none", **BEARER))[0] == 404
    assert (await got(client, "/api/pending?pod=shop/none", **BEARER))[0] == 404
    assert (await got(client, f"/api/now?x={'x' * 5000}", **BEARER))[0] == 403
    async with client.post("/api/simulate", data="[]", headers=BEARER) as response:
        assert response.status == 400
    async with client.post("/api/simulate", json={"manifest": "kind: Node"}, headers=BEARER) as response:
        assert response.status == 422
        assert "no pods in it" in await response.text()


async def test_changes_come_as_events_and_so_many_browsers_at_once(
    made_up: MadeUpPage, client: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "MOST_STREAMS", 1)
    revision = made_up.reader.timeline.revision
    url = "/api/events"
    async with client.get(url, headers={**BEARER, "Last-Event-ID": f"{revision - 1}"}) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        found = b""
        while b"event: changes" not in found:
            found += await stream.content.readany()
        assert f"id: {revision}".encode() in found
        status, text = await got(client, url, **BEARER)
        assert (status, "pages are open already" in text) == (503, True)
    until = asyncio.get_running_loop().time() + 30
    status, text = 503, ""
    while status == 503 and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.2)  # until it is seen that the browser has gone
        status, text = await got(client, url, **BEARER, **{"Last-Event-ID": "999999"})
    assert text.endswith("event: reset\ndata: {}\n\n")


async def test_one_reading_of_the_cluster_serves_all_who_look_at_it(
    made_up: MadeUpPage, client: ClientSession
) -> None:
    for path in ("/api/cluster", "/api/cluster?by=kubernetes.io/arch", "/api/node?name=node-0001"):
        assert (await got(client, path, **BEARER))[0] == 200
    assert made_up.cluster.readings == 1
