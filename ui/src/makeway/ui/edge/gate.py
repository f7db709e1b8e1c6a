"""Who may look at the page: who has the address that `makeway ui` printed, or whom the API server admits."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from makeway.cli.connect.objects import may
from makeway.core.recent import Recent
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

MOST_SESSIONS: Final = 1_000
SESSION_SECONDS: Final = 8 * 3600.0
REVIEW_SECONDS: Final = 60.0
"""How long an answer of the API server holds; a right that is taken away ends there."""

MOST_TOKEN: Final = 16 * 1024
_MOST_REVIEWS: Final = 1_000
_REVIEWS_AT_ONCE: Final = 4
"""Whoever reaches the page can ask about any number of tokens; the API server is asked about few at once."""

_NEEDED: Final = (("list", "pods"), ("list", "nodes"))
"""What a user must be allowed in every namespace: the page names pods and nodes of all of them."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether someone may look. `why`: why not, in a sentence. `user`: who it is, where that is known.

    `answered`: the API server has said so; else it is not known who asks.
    """

    admitted: bool
    why: str = ""
    user: str = ""
    answered: bool = True


class Gate(Protocol):
    """Decides who may look. `form`: whether a token can be given in a form."""

    form: bool

    async def review(self, token: str) -> Admission:
        """Decide about a token."""


class LocalGate:
    """Admits who has the token that the page was started with."""

    form = False

    def __init__(self, token: str) -> None:
        self._token = token

    async def review(self, token: str) -> Admission:
        """Compare in constant time."""
        if secrets.compare_digest(token.encode(), self._token.encode()):
            return Admission(True)
        return Admission(False, "Open the address that `makeway ui` printed: it has a token in it.")


class ClusterGate:
    """Admits whom the API server knows by a token, and lets list pods and nodes in all namespaces.

    An answer is kept for a minute, by the token's hash. O(1) in memory: so many tokens at most.
    """

    form = True

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known = Recent[bytes, tuple[float, Admission]](_MOST_REVIEWS)
        self._asking = asyncio.Semaphore(_REVIEWS_AT_ONCE)

    async def review(self, token: str) -> Admission:
        """Ask the API server who it is, and what it may do."""
        if not token or len(token) > MOST_TOKEN or not token.isascii():
            return Admission(False, "This is no token of Kubernetes.")
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None and self._clock() - known[0] < REVIEW_SECONDS:
            return known[1]
        try:
            async with self._asking:
                admission = await self._ask(token)
        except (ApiError, ApiUnavailable, msgspec.DecodeError) as error:
            return Admission(False, f"The API server does not answer: {error}", answered=False)
        self._known[key] = self._clock(), admission
        return admission

    async def _ask(self, token: str) -> Admission:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._api.call(self._api.authentication.create_token_review, body)
        status = msgspec.json.decode(answer)["status"]
        about = status.get("user") or {}
        user = about.pop("username", "")
        if not (status.get("authenticated") and user):
            return Admission(False, "The API server does not know this token, or it has expired.")
        subject = {"user": user, **about}
        for verb, resource in _NEEDED:
            if not await may(self._api, subject, verb=verb, resource=resource):
                why = f"{user} may not {verb} {resource} in all namespaces, which this page shows."
                return Admission(False, why, user)
        return Admission(True, user=user)


class Sessions:
    """Tokens of browsers by what their cookies say, in memory alone: a restart asks everyone again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = Recent[str, tuple[float, str]](MOST_SESSIONS)

    def begin(self, token: str) -> str:
        """Keep a token; return what the cookie is to say. The oldest session makes room."""
        session = secrets.token_urlsafe(32)
        self._tokens[session] = self._clock(), token
        return session

    def token(self, session: str) -> str | None:
        """Return the token of a session; None where there is none, or it has lasted too long."""
        since, token = self._tokens.get(session, (0.0, None))
        if token is not None and self._clock() - since > SESSION_SECONDS:
            self.end(session)
            return None
        return token

    def end(self, session: str) -> None:
        """Forget a session."""
        self._tokens.pop(session, None)
