"""Who may look at the page in a cluster: as the API server says, asked anew each minute."""

from typing import Any, cast

import msgspec
import pytest

from makeway.runtime.kube import Api, ApiUnavailable
from makeway.ui.edge.gate import (
    MOST_SESSIONS,
    REVIEW_SECONDS,
    SESSION_SECONDS,
    ClusterGate,
    LocalGate,
    Sessions,
)
from typed_calls import FakeApis


class _Reviews(FakeApis):
    """An API server that knows one token, and what its user may do."""

    def __init__(self, *allowed: tuple[str, str], up: bool = True) -> None:
        self.allowed = set(allowed)
        self.up = up
        self.asked: list[dict[str, Any]] = []

    async def request(self, method: str, path: str, *, body: bytes) -> bytes:
        if not self.up:
            raise ApiUnavailable("no answer")
        review = msgspec.json.decode(body)
        self.asked.append(review)
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            known = spec["token"].startswith("good")
            name = {} if spec["token"].endswith("without a name") else {"username": "ada"}
            user = {**name, "uid": "1", "groups": ["admins"], "extra": {"scope": ["x"]}}
            return msgspec.json.encode({"status": {"authenticated": known, "user": user if known else {}}})
        assert (spec["user"], spec["groups"], spec["extra"]) == ("ada", ["admins"], {"scope": ["x"]})
        wanted = spec["resourceAttributes"]["verb"], spec["resourceAttributes"]["resource"]
        return msgspec.json.encode({"status": {"allowed": wanted in self.allowed}})


def gate(reviews: _Reviews, clock: list[float]) -> ClusterGate:
    return ClusterGate(cast("Api", reviews), lambda: clock[0])


_BOTH = (("list", "pods"), ("list", "nodes"))


async def test_who_may_list_pods_and_nodes_everywhere_is_admitted() -> None:
    admission = await gate(_Reviews(*_BOTH), [0.0]).review("good")

    assert (admission.admitted, admission.user) == (True, "ada")


@pytest.mark.parametrize(
    ("allowed", "token", "why"),
    [
        (_BOTH, "bad", "does not know this token"),
        (_BOTH, "good without a name", "does not know this token"),
        (_BOTH, "", "no token"),
        (_BOTH, "x" * 100_000, "no token"),
        (_BOTH[:1], "good", "ada may not list nodes in all namespaces"),
        (_BOTH[1:], "good", "ada may not list pods in all namespaces"),
    ],
)
async def test_others_are_told_why_not(allowed: tuple[tuple[str, str], ...], token: str, why: str) -> None:
    admission = await gate(_Reviews(*allowed), [0.0]).review(token)

    assert not admission.admitted
    assert why in admission.why


async def test_an_answer_holds_for_a_minute_and_a_right_that_is_taken_away_ends_there() -> None:
    reviews, clock = _Reviews(*_BOTH), [0.0]
    guarded = gate(reviews, clock)
    await guarded.review("good")
    reviews.allowed.clear()
    asked = len(reviews.asked)

    clock[0] = REVIEW_SECONDS - 1
    assert (await guarded.review("good")).admitted
    assert len(reviews.asked) == asked
    clock[0] = REVIEW_SECONDS + 1
    assert not (await guarded.review("good")).admitted


async def test_while_the_api_server_is_away_no_new_user_is_admitted() -> None:
    found = await gate(_Reviews(up=False), [0.0]).review("good")

    assert (found.admitted, found.answered) == (False, False)


async def test_the_local_gate_takes_its_own_token_alone() -> None:
    local = LocalGate("secret")

    assert (await local.review("secret")).admitted
    assert not (await local.review("secre")).admitted
    assert not (await local.review("sécret")).admitted


def test_sessions_end_by_time_by_number_and_by_logging_out() -> None:
    clock = [0.0]
    sessions = Sessions(lambda: clock[0])
    first = sessions.begin("token-1")
    assert sessions.token(first) == "token-1"
    assert sessions.token("made-up") is None

    clock[0] = SESSION_SECONDS + 1
    assert sessions.token(first) is None
    second = sessions.begin("token-2")
    for number in range(MOST_SESSIONS):
        last = sessions.begin(f"token-{number}")
    assert sessions.token(second) is None
    sessions.end(last)
    assert sessions.token(last) is None
