"""Requests to the API server that are refused, cut, lost, late; watches that freeze, skip and end.

Whatever is done to planner, evictor and scheduler: every preemptor is bound in the end, and the checker finds
nothing. Each case runs over several preemptors at once, each with a node and two victims of its own, so that
a fault for `each` request hits every one of them. The short form takes a handful of cases twice; the whole
table runs MAKEWAY_REPEAT times (20).
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import count

import msgspec
import pytest

from background import background
from integration.builders import make_node, make_pod
from integration.faults import Faults
from integration.invariants import assert_invariants
from integration.preempting import run_victims
from integration.space import Space
from makeway.dev.fault_rules import WATCH_ACTIONS, Action, FaultRule
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
SHORT = 2
BOUND_SECONDS = 60.0

POD = r"/pods/[a-z0-9-]+(\?|$)"
STATUS = r"/pods/[a-z0-9-]+/status"
BINDING = r"/pods/[a-z0-9-]+/binding"
PODS_WATCH = r"/api/v1/pods\?"
PODS_LIST = r"/api/v1/pods\?(?!.*watch=)"


@dataclass(frozen=True)
class Case:
    """One fault. `short`: in `make test` too.

    also: what else goes wrong because of it; injected as often as `rule`, or the round does not count.
    at_once: so many preemptors at a time; few where the
    fault keeps kube-scheduler's one scheduling cycle waiting, which patches a nomination before it goes on.
    """

    name: str
    rule: FaultRule
    short: bool = False
    also: tuple[FaultRule, ...] = ()
    at_once: int = 20


def answers(
    component: str, method: str, path: str, what: str, *statuses: int, short: int = 0, count: int = 0
) -> list[Case]:
    """Every request of a kind is refused once with each of these statuses; or so many in all."""
    return [
        Case(
            f"{component} {what} answered {status}",
            FaultRule(
                component=component,
                action="answer",
                method=method,
                path=path,
                status=status,
                retry_after=1 if status == 429 else 0,
                each=not count,
                count=count or 1,
            ),
            short=status == short,
            at_once=4 if (component, method, status) == (SCHEDULER, "PATCH", 429) else 20,
        )
        for status in statuses
    ]


def breaks(component: str, method: str, path: str, what: str, *, short: str = "") -> list[Case]:
    """Every request of a kind is carried out, and its answer cut, lost, or late."""
    actions: tuple[Action, ...] = ("cut", "drop", "delay")
    return [
        Case(
            f"{component} {what} {action}",
            FaultRule(component=component, action=action, method=method, path=path, seconds=3, each=True),
            short=action == short,
            at_once=2 if (component, method, action) == (SCHEDULER, "PATCH", "delay") else 20,
        )
        for action in actions
    ]


CASES = [
    *answers(EVICTOR, "GET", POD, "read of a pod", 429, 500, 503),
    *breaks(EVICTOR, "GET", POD, "read of a pod"),
    *answers(EVICTOR, "PATCH", STATUS, "mark", 409, 422, 429, 500, 503),
    *breaks(EVICTOR, "PATCH", STATUS, "mark", short="drop"),
    *answers(EVICTOR, "DELETE", POD, "delete", 409, 422, 429, 500, 503, short=422),
    *breaks(EVICTOR, "DELETE", POD, "delete", short="drop"),
    *answers(EVICTOR, "GET", "/leases/", "read of the fence", 500, count=REPEAT),
    *answers(EVICTOR, "GET", "/nodes/", "read of the node", 503),
    *answers(EVICTOR, "POST", "/events", "event", 500, count=1000),
    *answers(SCHEDULER, "PATCH", STATUS, "nomination", 409, 429, 500, 503, short=500),
    *breaks(SCHEDULER, "PATCH", STATUS, "nomination", short="delay"),
    *answers(SCHEDULER, "POST", BINDING, "binding", 409, 429, 500, 503),
    *breaks(SCHEDULER, "POST", BINDING, "binding", short="drop"),
    *answers(SCHEDULER, "POST", "/events", "event", 500, count=1000),
]


def watches(component: str, *, short: str = "") -> list[Case]:
    """Faults of a watch of pods, as often as there are preemptors, while their events pass.

    A watch that expires with its first event, again and again, is listed anew after pauses of up to half a
    minute, as in client-go; so most events pass before one does.
    """
    made = []
    actions: tuple[tuple[Action, str], ...] = (
        ("close", ""),
        ("expire", ""),
        ("freeze", '"type":"MODIFIED"'),
        ("skip", '"type":"MODIFIED"'),
    )
    for action, event in actions:
        name = f"{component} watch of pods: {action}"
        rule = FaultRule(
            component=component,
            action=action,
            path=PODS_WATCH,
            event=event or ".*",
            seconds=4,
            probability=0.3 if action == "expire" else 1.0,
        )
        made.append(Case(name, rule, short=action == short, at_once=4))
    return made


def relists(component: str, *statuses: int) -> list[Case]:
    """A watch of pods expires again and again, and half of the lists that follow are refused, or cut.

    The pauses before a list double with every failure, up to half a minute, until an event has come in
    between. So most events pass.
    """
    lists = FaultRule(
        component=component, action="cut", method="GET", path=PODS_LIST, count=1000, probability=0.5
    )
    refusals = {
        f"answered {status}": msgspec.structs.replace(
            lists, action="answer", status=status, retry_after=1 if status == 429 else 0
        )
        for status in statuses
    }
    expire = FaultRule(component=component, action="expire", path=PODS_WATCH, probability=0.1)
    return [
        Case(f"{component} list of pods {what} after its watch expired", expire, also=(refusal,), at_once=10)
        for what, refusal in {**refusals, "cut": lists}.items()
    ]


CASES += [
    *watches(PLANNER, short="expire"),
    *watches(SCHEDULER, short="close"),
    *relists(PLANNER, 410, 429, 500, 503),
]


async def preemptors_come_through(space: Space, faults: Faults, case: Case, times: int) -> None:
    """Preempt until a fault was injected so many times; all are bound, and no promise is broken."""
    hits = made = 0
    at_once = min(case.at_once, times)
    while hits < times:
        assert made < 10 * times, f"the fault was injected {hits} times in {made} preemptions"
        hits += await preempt_at_once(space, faults, case, [f"n{made + number}" for number in range(at_once)])
        made += at_once
    await assert_invariants(space)


async def preempt_at_once(space: Space, faults: Faults, case: Case, names: list[str]) -> int:
    """Fill these nodes and have a preemptor for each bound under the fault; how often it was injected."""
    nodes = await space.add_nodes(*(make_node(name).cpu("500m") for name in names))
    await run_victims(
        space,
        *(
            make_pod(f"victim-{name}-{part}").priority("low").cpu("250m").on(name)
            for name in names
            for part in "ab"
        ),
    )
    rule = case.rule
    if rule.action in WATCH_ACTIONS:
        # The events of this space alone: what goes on in the cluster besides shall not use the fault up.
        event = f'{rule.event}.*"namespace":"{space.namespace}"'
        rule = msgspec.structs.replace(rule, event=event, count=1000 if case.also else len(names))
    await faults.add(rule, *case.also)
    await space.create(
        *(
            make_pod(f"urgent-{name}")
            .priority("high")
            .cpu("500m")
            .spec(nodeSelector={"kubernetes.io/hostname": node})
            for name, node in zip(names, nodes, strict=True)
        )
    )

    async with changing(space, names[0]) if case.also else nullcontext():
        await asyncio.gather(*(space.until_bound(f"urgent-{name}", seconds=BOUND_SECONDS) for name in names))
    applied = await faults.applied()
    await faults.clear()
    return min(sum(fault.action == one.action for fault in applied) for one in (rule, *case.also))


@asynccontextmanager
async def changing(space: Space, name: str) -> AsyncIterator[None]:
    """A pod that is held back changes twenty times a second, as some pod does in a cluster that is in use."""
    await space.create(
        make_pod(f"bystander-{name}").spec(schedulingGates=[{"name": "tests.makeway.dev/held"}])
    )

    async def change() -> None:
        for number in count():
            await space.patch(f"bystander-{name}", {"metadata": {"annotations": {"number": str(number)}}})
            await asyncio.sleep(0.05)

    async with background(change()):
        yield


@pytest.mark.parametrize("case", [case for case in CASES if case.short], ids=lambda case: case.name)
async def test_a_fault_delays_preemptors_and_no_more(case: Case, fault_space: Space, faults: Faults) -> None:
    await preemptors_come_through(fault_space, faults, case, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_fault_many_times(case: Case, fault_space: Space, faults: Faults) -> None:
    await preemptors_come_through(fault_space, faults, case, REPEAT)
