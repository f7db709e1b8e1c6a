"""Random clusters, kube-scheduler and makeway side by side on real control planes.

Two invariants: what kube-scheduler places by preemption, makeway places too, unless a rule that the policy
sets keeps it, and within seconds, whatever happens meanwhile; and what the policy protects stays, whatever is
away or too large. `MAKEWAY_SEED=17` plays one.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from statistics import quantiles

import pytest
import pytest_asyncio

from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, policy, policy_text, put, put_policy, put_queues
from integration.drawing import SLOTS, Drawn, draw, pad, queues
from integration.drawing import policy as drawn_policy
from integration.sequences import differences, together
from integration.sequences import draw as draw_sequence
from integration.sequences_played import Outcome, Pair, play, prepared
from integration.side_by_side import Played, prepare, stage
from makeway.dev.options import PLANNER

_PATIENCE_SECONDS = 45.0
"""How long a pod may take that kube-scheduler places."""
_OUTAGE_SECONDS = 4.0
"""How long a preemptor tries while there is no plan; DefaultPreemption needs one cycle."""
_FEWEST = 20
"""From so many clusters on, some of them must be such that preemption helps."""
_FEW = pytest.param(20, id="20", marks=pytest.mark.timeout(900))
_FEWER = pytest.param(4, id="4")
_SEQUENCES = pytest.param(24, id="24", marks=pytest.mark.timeout(900))
_AT_ONCE = 16
"""How many sequences are played at once."""
_MANY = pytest.param(300, id="300", marks=[pytest.mark.slow, pytest.mark.timeout(3600)])

Play = Callable[[Drawn], Awaitable[str]]
"""Play one drawn cluster; gives what is wrong, "" where nothing is."""


@pytest_asyncio.fixture
async def makeway(drawn_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """The control plane with MakeWay, with the policy and the queues of the drawn clusters in force."""
    await prepare(drawn_cluster)
    async with policy(drawn_cluster, **drawn_policy()):
        await put_queues(drawn_cluster, queues())
        yield drawn_cluster
        await put_queues(drawn_cluster, NO_LIMITS)


@pytest_asyncio.fixture
async def kube_scheduler(drawn_plain_cluster: RunningCluster) -> RunningCluster:
    """The control plane with kube-scheduler alone."""
    await prepare(drawn_plain_cluster)
    return drawn_plain_cluster


def _seeds(count: int) -> list[int]:
    """As many fresh seeds, or the one to play again."""
    if again := os.environ.get("MAKEWAY_SEED"):
        return [int(seed) for seed in again.split(",")]
    first = random.randrange(10**6)
    print(f"drawn clusters {first} to {first + count - 1}")
    return list(range(first, first + count))


async def _play_all(seeds: Iterable[int], play: Play, *, guarded: bool) -> list[str]:
    """Play every drawn cluster, SLOTS at a time; gives what is wrong."""
    wrong: list[str] = []
    for batch in _batches(seeds):
        drawn = [draw(seed, slot, guarded=guarded) for slot, seed in enumerate(batch)]
        results = await asyncio.gather(*(play(one) for one in drawn))
        wrong += [
            f"seed {one.seed} ({', '.join(one.shape)}): {result}"
            for one, result in zip(drawn, results, strict=True)
            if result
        ]
    return wrong


def _batches(seeds: Iterable[int]) -> Iterable[tuple[int, ...]]:
    rest = list(seeds)
    return (tuple(rest[begin : begin + SLOTS]) for begin in range(0, len(rest), SLOTS))


def _protected_gone(drawn: Drawn, played: Played) -> str:
    gone = sorted(
        f"{pod.builder.name} ({pod.rule})" for pod in drawn.protected if pod.builder.name in played.gone
    )
    return f"protected pods are gone: {', '.join(gone)}" if gone else ""


@pytest.mark.wide
@pytest.mark.parametrize("count", [_FEW, _MANY])
async def test_what_kube_scheduler_places_makeway_places_and_no_protected_pod_goes(
    makeway: RunningCluster, kube_scheduler: RunningCluster, count: int
) -> None:
    placed: list[int] = []

    async def both(drawn: Drawn) -> str:
        hopeless = asyncio.Event()
        async with AsyncExitStack() as stack:
            ours, theirs = await asyncio.gather(
                stage(stack, makeway, drawn), stage(stack, kube_scheduler, drawn.as_seen_by_kube_scheduler())
            )

            async def judge() -> Played:
                played = await theirs.play_until_hopeless(patience_seconds=_PATIENCE_SECONDS)
                if not played.placed:
                    hopeless.set()
                return played

            mine, other = await asyncio.gather(
                ours.play(patience_seconds=_PATIENCE_SECONDS, hopeless=hopeless), judge()
            )
        if other.placed:
            placed.append(drawn.seed)
        if gone := _protected_gone(drawn, mine):
            return gone
        if other.placed and not mine.placed:
            return f"kube-scheduler places it on {other.node}, makeway does not: {mine.condition}"
        return ""

    seeds = _seeds(count)
    assert await _play_all(seeds, both, guarded=False) == []
    print(f"kube-scheduler placed {len(placed)} of {len(seeds)}")
    assert len(seeds) < _FEWEST or len(placed) > len(seeds) / 4, "too few of the drawn clusters can be helped"


@pytest.mark.parametrize("count", [_SEQUENCES, _MANY])
async def test_what_kube_scheduler_places_makeway_places_within_seconds_whatever_happens_meanwhile(
    makeway: RunningCluster, kube_scheduler: RunningCluster, count: int
) -> None:
    pair = Pair(makeway, kube_scheduler)
    sequences = map(draw_sequence, _seeds(count))
    played: list[Outcome] = []
    async with prepared(pair):
        for lot in together(sequences, _AT_ONCE):
            played += await play(pair, lot)

    later = [seconds for one in played for seconds in differences(one.theirs, one.mine)]
    print(*(one.told for one in played), sep="\n")
    if len(later) > 1:
        shares = quantiles(later, n=100, method="inclusive")
        print(f"{len(later)} pods, makeway later by {shares[49]:.2f} s (p50), {shares[98]:.2f} s (p99)")
    wrong = [one.told for one in played if one.wrong]
    assert not wrong, "\n".join(wrong)
    placed = [one for one in played if one.theirs]
    assert len(played) < _FEWEST or len(placed) > len(played) / 2, "too few pods can be placed"


async def _protected_stay(makeway: RunningCluster, drawn: Drawn) -> str:
    async with AsyncExitStack() as stack:
        ours = await stage(stack, makeway, drawn)
        return _protected_gone(drawn, await ours.play(patience_seconds=_OUTAGE_SECONDS))


@asynccontextmanager
async def _unsynced(makeway: RunningCluster) -> AsyncIterator[None]:
    """Restart the planner while the policy's text is refused: it waits for a good one, and plans nothing."""
    good = policy_text(**drawn_policy())
    await put(makeway, {"policy.yaml": good + "protections: {}\n"})
    await makeway.kill(PLANNER)
    planner = makeway.process(PLANNER)
    await asyncio.to_thread(planner.start)
    try:
        yield
    finally:
        await put_policy(makeway, good)
        await makeway.start(PLANNER)


_OUTAGES: dict[str, Callable[[RunningCluster], AbstractAsyncContextManager[None]]] = {
    "stopped": lambda makeway: makeway.without(PLANNER),
    "frozen": lambda makeway: makeway.frozen(PLANNER),
    "unsynced": _unsynced,
}


@pytest.mark.wide
@pytest.mark.parametrize("count", [_FEWER, _MANY])
@pytest.mark.parametrize("outage", _OUTAGES)
async def test_no_protected_pod_goes_without_a_plan(makeway: RunningCluster, outage: str, count: int) -> None:
    async with _OUTAGES[outage](makeway):
        wrong = await _play_all(_seeds(count), lambda drawn: _protected_stay(makeway, drawn), guarded=True)
    assert wrong == []


@pytest.mark.parametrize("count", [_FEWER, _MANY])
async def test_no_protected_pod_goes_for_one_too_large_to_ask(makeway: RunningCluster, count: int) -> None:
    async def padded(drawn: Drawn) -> str:
        pad(drawn.preemptor)
        return await _protected_stay(makeway, drawn)

    assert await _play_all(_seeds(count), padded, guarded=True) == []
