"""The page over HTTP: who may look, which view is asked for, and the stream of what changes.

Everything under /api is JSON and for those whom the gate admits; so are the views. Style, scripts and the
form to log in are for anyone: they say nothing of the cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from makeway.bus.errors import BusError
from makeway.planner.offline.manifests import ManifestError
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.ui.edge.answers import encoded, failed, json_answer
from makeway.ui.edge.cluster import BusyError
from makeway.ui.edge.gate import MOST_TOKEN, Admission, Gate, Sessions
from makeway.ui.edge.guard import App, Guard, TooLargeError
from makeway.ui.edge.sources import NotThereError, Sources
from makeway.ui.model.timeline import Changes

VIEWS: Final = ("/", "/timeline", "/story", "/cluster", "/queues", "/observe", "/simulate")
LIVE: Final = "/livez"
MOST_STREAMS: Final = 64
"""Browsers that are told of changes at once."""

_PAGE: Final = 500
"""Entries of one answer: few enough for a browser to read without a pause."""

_EVENTS_AT_ONCE: Final = 200
_LOOK_SECONDS: Final = 1.0
"""How soon it is seen that a browser has gone away."""

_LOOKS: Final = 15
"""So many looks without a change, and something is said, so that no proxy takes the connection for dead."""

_STATIC: Final = Path(__file__).parent.parent / "static"

Endpoint = Callable[[Request], Awaitable[Response]]

_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Site:
    """How the page is served. `cookie`: its name. `secure`: browsers reach it by HTTPS alone."""

    gate: Gate
    hosts: tuple[str, ...]
    cookie: str = "makeway-ui"
    secure: bool = False


def page_app(site: Site, sources: Sources) -> App:
    """Return the whole of it as an ASGI application."""
    page = _Page(site, sources)
    api: Mapping[str, Endpoint] = {
        "/api/session": page.session,
        "/api/now": page.now,
        "/api/events": page.events,
        "/api/story": page.story,
        "/api/cluster": page.cluster,
        "/api/node": page.node,
        "/api/pending": page.pending,
        "/api/queues": page.queues,
        "/api/observed": page.observed,
    }
    routes = [
        *(Route(path, page.admitted(page.view)) for path in VIEWS),
        *(Route(path, page.admitted(endpoint, api=True)) for path, endpoint in api.items()),
        Route("/api/simulate", page.admitted(page.simulate, api=True), methods=["POST"]),
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/login", page.login, methods=["GET", "POST"]),
        Route("/logout", page.logout, methods=["POST"]),
        Route(LIVE, page.live),
    ]
    compressed = Middleware(GZipMiddleware, minimum_size=2048, compresslevel=5)
    return Guard(Starlette(routes=routes, middleware=[compressed]), site.hosts, live=(LIVE,))


class _Page:
    """The endpoints. `streams`: how many browsers are told of changes now."""

    def __init__(self, site: Site, sources: Sources) -> None:
        self._site = site
        self._sources = sources
        self._sessions = Sessions()
        self._streams = 0

    # ------------------------------------------------------------------------------- who may look

    def admitted(self, endpoint: Endpoint, *, api: bool = False) -> Endpoint:
        """Let an endpoint answer those whom the gate admits, and say why to others."""

        async def answer(request: Request) -> Response:
            given = request.query_params.get("token", "")
            if given and not api and not self._site.gate.form:
                return await self._enter(request, given)
            admission = await self._review(request)
            if not admission.admitted:
                if not api and self._site.gate.form and admission.answered:
                    then = "" if (view := _view(request)) == "/" else f"?{urlencode({'view': view})}"
                    return RedirectResponse(f"/login{then}", HTTPStatus.SEE_OTHER)
                return _refused(admission)
            if not api:
                return await endpoint(request)
            return await _answered(endpoint, request)

        return answer

    async def _enter(self, request: Request, token: str) -> Response:
        """Take the token out of the address, and remember it in a cookie."""
        admission = await self._site.gate.review(token[:MOST_TOKEN])
        return self._logged_in(token, _view(request)) if admission.admitted else _refused(admission)

    async def _review(self, request: Request) -> Admission:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._site.gate.review(token.strip()[: MOST_TOKEN + 1])
        known = self._sessions.token(request.cookies.get(self._site.cookie, ""))
        if known is not None:
            return await self._site.gate.review(known)
        if self._site.gate.form:
            return Admission(False, "Log in first.")
        return await self._site.gate.review("")

    def _logged_in(self, token: str, path: str) -> Response:
        response = RedirectResponse(path, HTTPStatus.SEE_OTHER)
        response.set_cookie(
            self._site.cookie,
            self._sessions.begin(token),
            httponly=True,
            secure=self._site.secure,
            samesite="strict",
            path="/",
        )
        return response

    async def login(self, request: Request) -> Response:
        """Show the form, or take a token from it."""
        if not self._site.gate.form:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if request.method != "POST":
            return FileResponse(_STATIC / "login.html")
        try:
            form = parse_qs((await request.body()).decode(), max_num_fields=8)
        except (TooLargeError, ValueError):
            return failed(HTTPStatus.BAD_REQUEST, "This is no form that the page sends.")
        token = (form.get("token") or [""])[0].strip()
        admission = await self._site.gate.review(token[: MOST_TOKEN + 1])
        if not admission.admitted:
            return _refused(admission, " Go back, and give another token." if admission.answered else "")
        _log.info("ui_logged_in", user=admission.user)
        return self._logged_in(token, _own_view(request.query_params.get("view", "")))

    async def logout(self, request: Request) -> Response:
        """Forget the browser's token."""
        self._sessions.end(request.cookies.get(self._site.cookie, ""))
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(self._site.cookie, path="/")
        return response

    # -------------------------------------------------------------------------------------- files

    async def view(self, request: Request) -> Response:
        """Every view is the same file: its scripts look at the address."""
        return FileResponse(_STATIC / "index.html")

    async def live(self, request: Request) -> Response:
        """Say that the process answers."""
        return Response("ok\n", media_type="text/plain")

    # --------------------------------------------------------------------------------------- data

    async def session(self, request: Request) -> Response:
        """Who looks, and whether they can log out."""
        admission = await self._review(request)
        return json_answer({"user": admission.user, "form": self._site.gate.form})

    async def now(self, request: Request) -> Response:
        """Who answers, and whether pods are evicted now."""
        return json_answer(self._sources.now())

    async def events(self, request: Request) -> Response:
        """Send all entries, and what changes, as server-sent events, as long as the browser listens.

        A browser that has a revision already gets what has changed since.
        """
        if self._streams >= MOST_STREAMS:
            busy = f"{MOST_STREAMS} pages are open already; this one has no timeline."
            return failed(HTTPStatus.SERVICE_UNAVAILABLE, busy, {"Retry-After": "30"})
        return StreamingResponse(
            self._changes(request, _number(request.headers.get("last-event-id", ""))),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _changes(self, request: Request, revision: int) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            reader = self._sources.reader
            yield b"retry: 3000\n\n"
            for changes in reader.timeline.whole(_EVENTS_AT_ONCE) if not revision else ():
                revision = changes.revision
                yield _event(changes)
            while (await self._review(request)).admitted:
                changes = reader.timeline.since(revision, _EVENTS_AT_ONCE)
                if changes.reset:
                    yield b"event: reset\ndata: {}\n\n"
                    return
                if changes.revision != revision:
                    revision = changes.revision
                    yield _event(changes)
                if changes.more:
                    continue
                for _ in range(_LOOKS):
                    if await reader.changed(revision, _LOOK_SECONDS):
                        break
                    if await request.is_disconnected():
                        return
                else:
                    yield b": still here\n\n"
        finally:
            self._streams -= 1

    async def story(self, request: Request) -> Response:
        """All that is known of a pod, an order or a decision."""
        return json_answer(await self._sources.story(request.query_params.get("what", "")))

    async def cluster(self, request: Request) -> Response:
        """The grid of nodes."""
        label = request.query_params.get("by", "")[:316]
        return json_answer(await self._sources.cluster.grid(label))

    async def node(self, request: Request) -> Response:
        """One node in full."""
        name = request.query_params.get("name", "")[:253]
        found = await self._sources.cluster.node(name)
        return json_answer(found) if found else failed(HTTPStatus.NOT_FOUND, "There is no such node.")

    async def pending(self, request: Request) -> Response:
        """What stands in the way of a pending pod."""
        return json_answer(await self._sources.standing(request.query_params.get("pod", "")))

    async def queues(self, request: Request) -> Response:
        """The tree of queues."""
        return json_answer(await self._sources.queues())

    async def observed(self, request: Request) -> Response:
        """What comparing has found."""
        return json_answer(self._sources.observed(_PAGE))

    async def simulate(self, request: Request) -> Response:
        """What would become of pods."""
        asked = msgspec.json.decode(await request.body(), type=_Simulated)
        pods = await self._sources.simulate(asked.manifest, asked.namespace)
        return json_answer({"pods": pods})


class _Simulated(msgspec.Struct):
    manifest: str
    namespace: str = "default"


def _refused(admission: Admission, then: str = "") -> Response:
    status = HTTPStatus.UNAUTHORIZED if admission.answered else HTTPStatus.SERVICE_UNAVAILABLE
    return failed(status, f"{admission.why}{then}")


async def _answered(endpoint: Endpoint, request: Request) -> Response:
    """Return an endpoint's answer, or what went wrong in a sentence."""
    try:
        return await endpoint(request)
    except (NotThereError, LookupError) as error:
        return failed(HTTPStatus.NOT_FOUND, str(error))
    except ManifestError as error:
        return failed(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    except TooLargeError:
        return failed(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "This is more than the page takes.")
    except BusyError:
        return failed(
            HTTPStatus.SERVICE_UNAVAILABLE, "Others are being answered; try again.", {"Retry-After": "5"}
        )
    except ApiError as error:
        return failed(HTTPStatus.BAD_GATEWAY, f"The API server refused: {error.message or error.reason}")
    except (ApiUnavailable, BusError) as error:
        return failed(HTTPStatus.BAD_GATEWAY, str(error))
    except (msgspec.DecodeError, ValueError) as error:
        return failed(HTTPStatus.BAD_REQUEST, str(error))


def _event(changes: Changes) -> bytes:
    return b"id: %d\nevent: changes\ndata: %s\n\n" % (changes.revision, encoded(changes))


def _view(request: Request) -> str:
    """Return the view that a request asks for, with its filters and without a token."""
    shown = [(name, one) for name, one in request.query_params.multi_items() if name != "token"]
    return f"{request.url.path}?{urlencode(shown)}" if shown else request.url.path


def _own_view(asked: str) -> str:
    """Return a view to go to after a login; the first one where what is asked for is none of this page."""
    path, _, filters = asked.partition("?")
    if path not in VIEWS:
        return "/"
    return f"{path}?{urlencode(parse_qsl(filters))}" if filters else path


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
