"""Leadership in virtual time: one holder, no work without the lease, no lease without work."""

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.lease import LONGEST_IMPAIRED, Leadership, LeaseSettings, StepDown, may_take
from narrowing import there
from typed_calls import FakeApis

SETTINGS = LeaseSettings(namespace="ns", name="makeway-planner", duration=15.0, renew_within=10.0, retry=2.0)


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        return self._now

    def skip(self, seconds: float) -> None:
        self._now += seconds


class _SkippingSelector(selectors.SelectSelector):
    def __init__(self, loop: SkippingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._loop.skip(timeout)
        return super().select(0)


class FakeLeases(FakeApis):
    """The API server's one Lease, with optimistic concurrency; can be taken down or made to hang."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.down = False
        self.hangs = False
        self.holders: list[str] = []

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 10.0
    ) -> bytes:
        if self.hangs:
            await asyncio.sleep(timeout_seconds)
            raise ApiUnavailable("timed out")
        await asyncio.sleep(0.001)
        if self.down:
            raise ApiUnavailable("connection refused")
        if method == "GET":
            if self.stored is None:
                raise ApiError(404, "NotFound", "no such lease")
            return msgspec.json.encode(self.stored)
        sent = msgspec.json.decode(body or b"")
        if (method == "POST") != (self.stored is None):
            raise ApiError(409, "AlreadyExists", "")
        if method == "PUT" and sent["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "")
        self.version += 1
        sent["metadata"]["resourceVersion"] = str(self.version)
        self.stored = sent
        self.holders.append(sent["spec"].get("holderIdentity", ""))
        return msgspec.json.encode(sent)

    @property
    def holder(self) -> str:
        return str((self.stored or {}).get("spec", {}).get("holderIdentity", ""))


class Candidate:
    """Leads when it can. Counts how often it works, and whether it does now."""

    def __init__(self, leases: FakeLeases, name: str = "a", **more: Callable[[], dict[str, str]]) -> None:
        self.unfit = self.impaired = ""
        self.working = False
        self.times = 0
        self.fault: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.leadership = Leadership(
            leases, SETTINGS, name, lambda: self.unfit, lambda: self.impaired, **more
        )
        self.task = asyncio.create_task(self.leadership.run(self._work))

    async def _work(self) -> None:
        self.working = True
        self.times += 1
        try:
            raise await asyncio.shield(self.fault)
        finally:
            self.working = False


def in_virtual_time(
    test: Callable[[FakeLeases], Coroutine[Any, Any, None]],
) -> Callable[[pytest.MonkeyPatch], None]:
    """Run a test on a loop whose seconds take no time, and end the tasks that it leaves."""

    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            monkeypatch.setattr("makeway.runtime.lease.time.monotonic", runner.get_loop().time)
            runner.run(test(FakeLeases()))

    run.__name__ = test.__name__
    return run


@in_virtual_time
async def test_one_of_two_leads_and_the_other_takes_over_at_once_when_it_ends(leases: FakeLeases) -> None:
    first = Candidate(leases)
    await asyncio.sleep(1)
    second = Candidate(leases, "b")
    await asyncio.sleep(60)
    assert (first.working, second.working, leases.holder) == (True, False, "a")

    first.task.cancel()
    await asyncio.sleep(3)

    assert (first.working, second.working, leases.holder) == (False, True, "b")
    assert there(leases.stored)["spec"]["leaseTransitions"] == 1


@in_virtual_time
async def test_a_lease_that_is_not_renewed_is_taken_after_its_duration_and_not_before(
    leases: FakeLeases,
) -> None:
    lost = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    leases.stored = {"metadata": {"name": SETTINGS.name, "resourceVersion": "0"}, "spec": lost}
    worker = Candidate(leases, "b")

    await asyncio.sleep(14)
    assert not worker.working
    await asyncio.sleep(5)

    assert worker.working


@in_virtual_time
async def test_a_refused_connection_ends_nothing_and_a_short_outage_interrupts_nothing(
    leases: FakeLeases,
) -> None:
    leases.down = True
    worker = Candidate(leases)
    await asyncio.sleep(30)
    assert not worker.working

    leases.down = False
    await asyncio.sleep(5)
    leases.down = True
    await asyncio.sleep(6)
    leases.down = False
    await asyncio.sleep(20)

    assert worker.working
    assert worker.times == 1
    assert worker.leadership.leading


@in_virtual_time
async def test_work_stops_before_the_lease_runs_out_when_the_server_hangs(leases: FakeLeases) -> None:
    worker = Candidate(leases)
    await asyncio.sleep(5)

    leases.hangs = True
    await asyncio.sleep(SETTINGS.duration)

    assert not worker.working
    leases.hangs = False
    await asyncio.sleep(20)
    assert worker.working


@in_virtual_time
async def test_work_stops_when_somebody_else_holds_the_lease(leases: FakeLeases) -> None:
    worker = Candidate(leases)
    await asyncio.sleep(5)

    there(leases.stored)["spec"]["holderIdentity"] = "thief"
    await asyncio.sleep(3)

    assert not worker.working
    assert leases.holder == "thief"


@in_virtual_time
async def test_work_that_crashes_ends_the_leadership_and_gives_the_lease_back(leases: FakeLeases) -> None:
    worker = Candidate(leases)
    await asyncio.sleep(5)

    worker.fault.set_result(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await worker.task

    assert leases.holder == ""


@in_virtual_time
async def test_work_that_goes_on_though_it_was_cancelled_ends_the_process(leases: FakeLeases) -> None:
    going_on = asyncio.Event()

    async def deaf() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await going_on.wait()
                return

    task = asyncio.create_task(Leadership(leases, SETTINGS, "a").run(deaf))
    await asyncio.sleep(5)
    there(leases.stored)["spec"]["holderIdentity"] = "thief"

    with pytest.raises(RuntimeError, match="does not end"):
        await task
    going_on.set()


@in_virtual_time
async def test_of_two_that_start_together_one_leads(leases: FakeLeases) -> None:
    first = Candidate(leases)
    second = Candidate(leases, "b")

    await asyncio.sleep(10)

    assert [first.working, second.working].count(True) == 1


@in_virtual_time
async def test_a_candidate_that_cannot_do_the_work_takes_no_lease_until_it_can(leases: FakeLeases) -> None:
    worker = Candidate(leases)
    worker.unfit = "the snapshot is not complete"

    await asyncio.sleep(60)
    assert (worker.times, leases.holder) == (0, "")
    worker.unfit = ""
    await asyncio.sleep(5)

    assert worker.working


@pytest.mark.parametrize("trouble", ["unfit", "impaired"])
def test_a_leader_that_stays_in_trouble_leaves_the_lease_to_a_healthy_standby(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(leases: FakeLeases) -> None:
        leader = Candidate(leases)
        await asyncio.sleep(5)
        standby = Candidate(leases, "b")
        await asyncio.sleep(5)
        setattr(leader, trouble, "pods: 403 Forbidden")

        await asyncio.sleep(SETTINGS.impaired_for + 10)

        assert (leader.working, standby.working, leases.holder) == (False, True, "b")
        assert not leader.task.done(), "it goes on as a standby"

    in_virtual_time(test)(monkeypatch)


@in_virtual_time
async def test_what_passes_soon_moves_no_lease(leases: FakeLeases) -> None:
    worker = Candidate(leases)
    await asyncio.sleep(5)

    for _ in range(10):
        worker.unfit = worker.impaired = "no connection for 3 s"
        await asyncio.sleep(SETTINGS.unfit_for - 3)
        worker.unfit = worker.impaired = ""
        await asyncio.sleep(3)

    assert (worker.working, worker.times) == (True, 1)


@in_virtual_time
async def test_an_impaired_leader_without_a_standby_leads_again_after_the_others_turn(
    leases: FakeLeases,
) -> None:
    worker = Candidate(leases)
    worker.impaired = "pods: its watches have brought nothing for 200 s"

    await asyncio.sleep(SETTINGS.impaired_for + SETTINGS.duration + 15)

    assert (worker.working, worker.times) == (True, 2)


@in_virtual_time
async def test_two_impaired_candidates_do_not_pass_the_lease_back_and_forth(leases: FakeLeases) -> None:
    first, second = Candidate(leases), Candidate(leases, "b")
    first.impaired = second.impaired = "pods: its watches have brought nothing for 200 s"

    led = 0
    for _ in range(3600):
        await asyncio.sleep(1)
        led += first.working or second.working

    assert 2 <= first.times + second.times <= 15
    assert led >= 0.95 * 3600


@in_virtual_time
async def test_a_standby_that_recovers_leads_within_minutes_however_long_all_were_impaired(
    leases: FakeLeases,
) -> None:
    leader = Candidate(leases)
    leader.impaired = "pods: its watches have brought nothing for 200 s"
    await asyncio.sleep(3600)
    standby = Candidate(leases, "b")
    standby.impaired = leader.impaired
    await asyncio.sleep(5)

    standby.impaired = ""
    await asyncio.sleep(LONGEST_IMPAIRED + SETTINGS.duration)

    assert LONGEST_IMPAIRED <= 300
    assert (leader.working, standby.working) == (False, True)


@in_virtual_time
async def test_an_impaired_candidate_leaves_a_free_lease_to_one_that_is_well(leases: FakeLeases) -> None:
    impaired = Candidate(leases)
    impaired.impaired = "pods: 403 Forbidden"
    await asyncio.sleep(1)
    healthy = Candidate(leases, "b")

    await asyncio.sleep(60)

    assert (impaired.times, healthy.working) == (0, True)


@pytest.mark.parametrize(
    ("unfit", "impaired", "free_for", "taken"),
    [
        ("", "", 0.0, True),
        ("", "", -0.1, False),
        ("not synced", "", 3600.0, False),
        ("", "stale", 4.9, False),
        ("", "stale", 5.0, True),
        ("not synced", "stale", 3600.0, False),
    ],
)
def test_who_takes_a_lease_and_when(unfit: str, impaired: str, free_for: float, taken: bool) -> None:
    assert may_take(free_for, unfit=unfit, impaired=impaired, leave_for=5.0) is taken


@in_virtual_time
async def test_a_leader_that_was_well_in_between_leaves_the_lease_as_soon_as_the_first_time(
    leases: FakeLeases,
) -> None:
    leader = Candidate(leases)
    leader.impaired = "pods: 403 Forbidden"
    await asyncio.sleep(1800)
    leader.impaired = ""
    await asyncio.sleep(60)
    assert leader.working
    standby = Candidate(leases, "b")
    await asyncio.sleep(5)

    leader.impaired = "pods: 403 Forbidden"
    await asyncio.sleep(SETTINGS.impaired_for + 10)

    assert (leader.working, standby.working) == (False, True)


@in_virtual_time
async def test_work_that_steps_down_gives_the_lease_up_and_ends_nothing(leases: FakeLeases) -> None:
    tried: list[float] = []

    async def work() -> None:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) == 1:
            raise StepDown("cannot subscribe to makeway.v1.plan: not connected")
        await asyncio.Event().wait()

    task = asyncio.create_task(Leadership(leases, SETTINGS, "a").run(work))
    await asyncio.sleep(5)
    assert leases.holder == ""
    await asyncio.sleep(SETTINGS.duration + 5)

    assert len(tried) == 2
    assert tried[1] - tried[0] >= SETTINGS.duration
    assert not task.done()


@in_virtual_time
async def test_a_renewal_writes_the_holders_annotations_and_leaves_others(leases: FakeLeases) -> None:
    said = {"makeway.dev/one": "a"}
    holder = Candidate(leases, annotations=lambda: said)
    await asyncio.sleep(5)
    assert leases.stored is not None
    assert leases.stored["metadata"]["annotations"] == said

    leases.stored["metadata"]["annotations"]["example.com/other"] = "kept"
    said["makeway.dev/one"] = "b"
    await asyncio.sleep(5)
    holder.task.cancel()
    await asyncio.wait([holder.task])

    assert not leases.holder
    assert leases.stored["metadata"]["annotations"] == {"makeway.dev/one": "b", "example.com/other": "kept"}
