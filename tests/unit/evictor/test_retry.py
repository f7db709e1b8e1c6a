"""What is tried again, and when."""

import asyncio
from datetime import timedelta
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from makeway.bus.messages import MAY_PASS
from makeway.core.policy.brake import RELEASED, Brake
from makeway.evictor.act import cluster
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import (
    RIGHTS_SECONDS,
    MissingRights,
    PermanentError,
    Reason,
    SystemClock,
    TemporaryError,
    classify,
    delay_seconds,
    retrying,
)
from makeway.runtime.kube import ApiError, ApiUnavailable
from narrowing import as_a
from unit.evictor.building import NOW
from unit.evictor.fakes import FORBIDDEN, SERVER_ERROR, UNAVAILABLE, VirtualClock


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
def test_a_clock_goes_on_where_the_machines_is_set_back_until_it_is_set_anew(step: float) -> None:
    wall, steady = NOW.timestamp(), 5.0
    clock = SystemClock(lambda: wall, lambda: steady)
    assert clock.now() == NOW

    wall, steady = wall + step + 12.0, steady + 12.0
    assert clock.now() - NOW == timedelta(seconds=12.0 + max(step, 0.0))

    clock.set_anew()
    assert clock.now() - NOW == timedelta(seconds=12.0 + step)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (429, "throttled"),
        (500, "server-error"),
        (503, "server-error"),
        (504, "server-error"),
        (408, "server-error"),
        (409, "conflict"),
        (401, "unauthorized"),
    ],
)
def test_what_may_pass_is_temporary(status: int, reason: str) -> None:
    error = as_a(TemporaryError, classify(ApiError(status, "X", "no", 3.0)))

    assert (error.reason, error.retry_after_seconds) == (reason, 3.0)


@pytest.mark.parametrize("status", [302, 400, 403, 405, 413, 415, 422])
def test_every_other_refusal_is_permanent(status: int) -> None:
    assert isinstance(classify(ApiError(status, "Forbidden", "no")), PermanentError)


WITHOUT_RIGHT = ApiError(403, "Forbidden", 'pods "a" is forbidden: User "evictor" cannot get resource "pods"')
KEPT = ApiError(403, "Forbidden", 'pods "a" is forbidden: ValidatingAdmissionPolicy keep denied request')


def test_a_right_that_was_there_before_may_be_back_for_some_seconds() -> None:
    """An API server that starts answers so until it has read roles and their bindings."""
    rights = MissingRights()
    rights.allowed("delete")

    assert rights.may_return("delete", WITHOUT_RIGHT, 100.0)
    assert rights.may_return("delete", WITHOUT_RIGHT, 100.0 + RIGHTS_SECONDS)
    assert not rights.may_return("delete", WITHOUT_RIGHT, 101.0 + RIGHTS_SECONDS)

    rights.allowed("delete")
    assert rights.may_return("delete", WITHOUT_RIGHT, 200.0)


def test_a_right_that_never_was_there_and_what_admission_refuses_do_not_come() -> None:
    rights = MissingRights()
    rights.allowed("delete")

    assert not rights.may_return("mark", WITHOUT_RIGHT, 100.0)
    assert not rights.may_return("delete", KEPT, 100.0)


class _Restarting:
    """An API server that knows the caller's rights at first, and then not."""

    def __init__(self, *known: bytes) -> None:
        self.answers: list[bytes | ApiError] = [*known, WITHOUT_RIGHT]

    async def request(self, method: str, path: str, **_: object) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


async def test_what_an_api_server_refuses_that_has_just_started_is_tried_again() -> None:
    edge = _edge_to(_Restarting(b'{"metadata": {"name": "a", "uid": "u"}, "spec": {}}'))

    assert await edge.get_pod("default", "a") is not None
    with pytest.raises(TemporaryError, match="cannot get resource"):
        await edge.get_pod("default", "a")


async def test_which_groups_are_served_is_asked_again_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "GROUP_API_SECONDS", -1.0)
    edge = _edge_to(_Restarting(b'{"resources": [{"name": "podgroups"}]}', b"{}"))

    assert (await edge.pod_group_api()).version
    with pytest.raises(TemporaryError, match="cannot get resource"):
        await edge.pod_group_api()


def _edge_to(api: _Restarting) -> Cluster:
    return Cluster(api, EvictorMetrics(CollectorRegistry()), brake=_no_brake)  # type: ignore[arg-type]


async def _no_brake() -> Brake:
    return RELEASED


def test_the_reasons_that_planners_take_for_passing_are_those_that_are_tried_again() -> None:
    assert set(get_args(Reason)) == MAY_PASS


def test_no_answer_is_temporary() -> None:
    error = as_a(TemporaryError, classify(ApiUnavailable("timed out")))

    assert error.reason == "unavailable"


def test_delays_grow_from_a_tenth_of_a_second_to_the_longest() -> None:
    shortest = [delay_seconds(n, UNAVAILABLE, 5.0, 0.0) for n in (1, 2, 3, 10, 1000)]
    longest = [delay_seconds(n, UNAVAILABLE, 5.0, 1.0) for n in (1, 2, 3, 10, 1000)]

    assert shortest == [0.05, 0.1, 0.2, 2.5, 2.5]
    assert longest == [0.1, 0.2, 0.4, 5.0, 5.0]


def test_a_retry_after_of_no_time_at_all_is_none() -> None:
    assert delay_seconds(3, TemporaryError("budget", "", 0.0), 5.0, 0.0) == 0.2


def test_the_servers_retry_after_is_a_lower_bound() -> None:
    assert delay_seconds(1, TemporaryError("throttled", "", 8.0), 5.0, 0.0) == 8.0
    assert delay_seconds(1, TemporaryError("throttled", "", 8.0), 5.0, 1.0) == 8.8


class Scripted:
    """Fails in the given ways, then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_it_goes_on_until_it_works_and_tells_of_each_failure() -> None:
    told: list[tuple[str, int]] = []
    act = Scripted(UNAVAILABLE, SERVER_ERROR)

    answer = await retrying(
        act, clock=VirtualClock(), deadline=None, on_retry=lambda e, n: told.append((e.reason, n))
    )

    assert (answer, act.calls) == ("done", 3)
    assert told == [("unavailable", 1), ("server-error", 2)]


async def test_it_gives_up_rather_than_begin_an_attempt_after_the_deadline() -> None:
    clock = VirtualClock()
    act = Scripted(*[UNAVAILABLE] * 1000)

    with pytest.raises(TemporaryError):
        await retrying(act, clock=clock, deadline=NOW + timedelta(seconds=30), on_retry=lambda *_: None)

    assert clock.now() < NOW + timedelta(seconds=30)
    assert act.calls > 5


@pytest.mark.parametrize("error", [FORBIDDEN, ZeroDivisionError()])
async def test_nothing_but_the_temporary_is_tried_again(error: Exception) -> None:
    act = Scripted(error)

    with pytest.raises(type(error)):
        await retrying(act, clock=VirtualClock(), deadline=None, on_retry=lambda *_: None)

    assert act.calls == 1


async def test_cancellation_is_not_swallowed() -> None:
    async def act() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(retrying(act, clock=VirtualClock(), deadline=None, on_retry=lambda *_: None))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
