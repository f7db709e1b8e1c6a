"""One simulation: a cluster, its processes, a time with faults, and a time in which all has to end well."""

import asyncio
import contextlib
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from makeway.core.k8s.pod_groups import group_of
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.mode import Mode
from protocol.cluster import Cluster, Gang
from protocol.evictor import start_evictor
from protocol.invariants import Checker
from protocol.loop import Process, VirtualLoop, close
from protocol.planner import LEASE as PLANNERS_LEASE
from protocol.planner import Planner
from protocol.scheduler import LEASE as SCHEDULERS_LEASE
from protocol.scheduler import Scheduler
from protocol.streams import Nats
from protocol.table import Table
from protocol.world import Ambush, Faults, ViolationError, World

SETTLES_WITHIN_SECONDS = 400.0
"""How long after the last fault everything may take to end: the longest pauses are a minute, and add up."""

LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Result:
    """What became of one seed. `problem` is empty where all invariants held."""

    seed: int
    problem: str
    steps: int
    seconds: float
    checks: int
    orders: int
    deletes: int
    injected: dict[str, int]
    outcomes: dict[str, int]
    digest: str
    trace: str


class Simulation:
    """One seed's."""

    def __init__(self, seed: int, table: Table) -> None:
        self.loop = VirtualLoop()
        self.rng = random.Random(seed)
        self.world = World(seed, self.loop, self.rng)
        self.world.kill = self._killed
        self.world.wipe = self._wipe
        self.world.disturb = self._disturb
        self.world.forget = self._forget
        self.world.fail_over = self._fail_over
        self.table = table
        self.cluster = Cluster(self.world)
        self.nats = Nats(self.world)
        self.checker = Checker(self.world, self.cluster, self.nats)
        self.processes: dict[str, Process] = {}
        self.schedulers: dict[str, Scheduler] = {}
        self.starts: dict[str, int] = {}
        self.offsets: dict[str, float] = {}
        self.mode: Mode = "enforce"
        self.not_after = self.rng.choice((12.0, 30.0))
        self.expected = 0
        # Drawn apart from the rest.
        self.groups = random.Random(f"pod groups, {seed}")
        self.leaders = random.Random(f"a leader of the stream that is frozen, {seed}")
        most = random.Random(f"victims of an order, {seed}").choice((0, 0, 0, 0, 2))
        self.policy = Policy(limits=PolicyLimits(victims_per_order=most)) if most else Policy()
        self.checker.most_victims = most

    # ----------------------------------------------------------------------------------- processes

    def start(self, name: str) -> None:
        """Start a process, again where it was killed."""
        number = self.starts[name] = self.starts.get(name, 0) + 1
        offset = self.offsets.setdefault(name, round(self.rng.uniform(-0.4, 0.4), 3))
        process = self.processes[name] = Process(self.loop, name, number, offset)
        self.world.note(process.identity, "starts")
        kind = name.partition("-")[0]
        if kind == "scheduler":
            scheduler = Scheduler(self.world, self.cluster, self.nats, process, self.table)
            scheduler.not_after = self.not_after
            scheduler.begun.append(self.checker.begun)
            scheduler.answered.append(self.checker.answered)
            self.schedulers[name] = scheduler
            scheduler.start()
        elif kind == "planner":
            planner = Planner(self.world, self.cluster, self.nats, process, lambda: self.mode)
            planner.not_after = self.not_after
            planner.planned.append(self.checker.planned)
            planner.start()
        else:
            start_evictor(self.world, self.cluster, self.nats, process, self.policy)

    def _killed(self, process: Process) -> None:
        if not process.alive:
            return
        process.kill()
        self.nats.planners.pop(process, None)
        self.nats.committers.pop(process, None)
        self.nats.repairs.pop(process, None)
        pause = self.rng.uniform(0.3, 6.0) if self.world.faulty else 0.3
        self.loop.call_later(pause, self.start, process.name)

    # ------------------------------------------------------------------------------------ scenario

    def _populate(self) -> None:
        rng = self.rng
        for number in range(rng.randint(1, 3)):
            self.cluster.add_node(f"node-{number}", 4)
        for node in self.cluster.nodes:
            left, number = 4, 0
            while left:
                size = min(left, rng.choice((1, 1, 2)))
                name = f"low-{node[-1]}{number}"
                grace = rng.choice((0, 0, 1, 3))
                self.cluster.create(name, priority=rng.choice((0, 0, 10)), size=size, node=node, grace=grace)
                left, number = left - size, number + 1
        names = [f"scheduler-{n}" for n in range(2)]
        names += [f"planner-{n}" for n in range(2)] + [f"evictor-{n}" for n in range(rng.randint(2, 3))]
        for name in names:
            self.loop.call_later(rng.uniform(0.0, 0.5), self.start, name)
        self.expected = len(names)

    def _plan_events(self, until: float) -> None:
        """What happens to the cluster, and the larger faults."""
        rng = self.rng

        def later(at: float, act: Callable[..., None], *args: object) -> None:
            def unless_over() -> None:
                if self.world.faulty:
                    act(*args)

            self.loop.call_later(at, unless_over)

        for number in range(rng.randint(2, 6)):
            later(rng.uniform(1.0, until * 0.8), self._create_preemptor, number)
        for number in range(self.groups.choice((0, 0, 1, 2))):
            later(self.groups.uniform(1.0, until * 0.8), self._create_group, number)
        for _ in range(rng.choice((0, 1, 2))):
            later(rng.uniform(1.0, until), self._delete_any)
        for _ in range(rng.choice((0, 0, 1, 2))):
            later(rng.uniform(1.0, until), self._cut)
        if rng.random() < 0.15:
            later(rng.uniform(2.0, until), self._wipe)
        if rng.random() < 0.3:
            later(rng.uniform(1.0, until), self._jump)
        if rng.random() < 0.3:
            later(rng.uniform(1.0, until), self._kill_all, rng.choice(("evictor", "planner", "scheduler")))
        if rng.random() < 0.2:
            later(rng.uniform(1.0, until), self._set_mode, rng.choice(("off", "observe")))
        if rng.random() < 0.3:
            self.cluster.refused.add(rng.choice(sorted(self.cluster.pods)))
        for _ in range(rng.choice((0, 1, 2))):
            later(rng.uniform(1.0, until), self._stop_one)
        for _ in range(rng.choice((0, 1, 2, 3))):
            self.world.ambushes.append(self._ambush())
        if self.leaders.random() < 0.5:
            number, seconds = self.leaders.randint(1, 3), self.leaders.choice((3.0, 9.0, 12.0))
            self.world.ambushes.append(Ambush("order", number, "freeze", seconds, "sent"))
        self.cluster.changed.append(self._recreate)

    def _ambush(self) -> Ambush:
        rng = self.rng
        kind = rng.choice(("evictor", "evictor", "evictor", "scheduler", "scheduler", "planner"))
        actions = ("kill", "stop", "stop", "deafen", "deafen", "wipe", "forget")
        action = rng.choice((*actions, "disturb", "disturb") if kind == "evictor" else actions)
        when = rng.choice(("sent", "answered")) if action in ("kill", "stop", "disturb") else "done"
        seconds = rng.choice((3.0, 8.0, 8.0, 13.0, 25.0))
        return Ambush(kind, rng.randint(1, 12 if kind == "scheduler" else 30), action, seconds, when)

    def _disturb(self, order_id: str) -> None:
        """Delete what an order is about, while its evictor is stopped."""
        known = self.checker.orders.get(order_id)
        if known is None:
            return
        order = known.order
        uid = self.rng.choice([*(one.uid for one in order.placements), *(v.uid for v in order.victims)])

        def act() -> None:
            if (pod := self.cluster.by_uid(uid)) is not None:
                self.world.note("world", f"deletes {pod.metadata.name}")
                self.cluster.delete(pod, "user")

        self.loop.call_later(self.rng.uniform(0.1, 3.0), act)

    def _forget(self) -> None:
        for name in sorted(self.processes):
            if name.startswith("scheduler"):
                self._killed(self.processes[name])

    def _fail_over(self) -> None:
        """Kill the leading planner, on the machine of the stream's leader, and mostly the scheduler too."""
        both = (PLANNERS_LEASE, SCHEDULERS_LEASE)
        leases = [self.cluster.leases.get(name) for name in self.leaders.choice((both[:1], both, both))]
        leading = {lease.holder for lease in leases if lease is not None}
        for process in tuple(self.processes.values()):
            if process.identity in leading:
                self._killed(process)

    def _create_preemptor(self, number: int) -> None:
        rng = self.rng
        name = f"urgent-{number}"
        if name not in self.cluster.pods:
            self.world.note("world", f"creates {name}")
            self.cluster.create(name, priority=rng.choice((100, 100, 200, 300)), size=rng.choice((1, 2, 3)))

    def _create_group(self, number: int) -> None:
        rng, group = self.groups, f"train-{number}"
        members, size, priority = rng.choice((2, 2, 3)), rng.choice((1, 1, 2)), rng.choice((100, 200, 300))
        self.cluster.gangs[group] = Gang(members, priority)
        self.world.note("world", f"creates {group}")
        for member in range(members):
            self.cluster.create(f"{group}-{member}", priority=priority, size=size, group=group)

    def _recreate(self, _: str, old: object, new: object) -> None:
        """A controller makes a pod anew under its name, as a StatefulSet's does."""
        if new is None and old is not None:
            name = old.metadata.name  # type: ignore[attr-defined]
            priority, size = old.spec.priority, int(old.metadata.labels["size"])  # type: ignore[attr-defined]
            group = group_of(old)  # type: ignore[arg-type]
            if group or (self.world.faulty and self.rng.random() < 0.5):
                at, grace = self.rng.uniform(0.001, 1.0), self.rng.choice((0, 1))
                self.loop.call_later(at, self._again, name, priority, size, grace, group)

    def _again(self, name: str, priority: int, size: int, grace: int, group: str) -> None:
        if name not in self.cluster.pods:
            self.world.note("world", f"makes {name} anew")
            self.cluster.create(name, priority=priority, size=size, grace=grace, group=group)

    def _delete_any(self) -> None:
        name = self.rng.choice(sorted(self.cluster.pods) or [""])
        if (pod := self.cluster.pods.get(name)) is not None:
            self.world.note("world", f"deletes {name}")
            self.cluster.delete(pod, "user")

    def _cut(self) -> None:
        name, server = self.rng.choice(sorted(self.processes)), self.rng.choice(("api", "nats"))
        seconds = self.rng.choice((1.0, 4.0, 12.0))
        self.world.count("cut off")
        self.world.note(name, f"is cut off from {server} for {seconds} s")
        self.world.cut[name, server] = self.loop.virtual + seconds

    def _wipe(self) -> None:
        self.world.count("streams lost")
        self.world.note("nats", "loses its streams")
        self.world.restarts["nats"] = self.world.restarts.get("nats", 0) + 1
        self.nats.wipe()
        self.checker.wiped()

    def _jump(self) -> None:
        process = self.processes[self.rng.choice(sorted(n for n in self.processes if n[0] != "s"))]
        seconds = self.rng.choice((-1.0, -0.5, 0.5, 1.0))
        self.world.count("clock jumps")
        self.world.note(process.identity, f"has its clock moved by {seconds} s")
        process.offset += seconds
        self.offsets[process.name] = process.offset

    def _kill_all(self, kind: str) -> None:
        self.world.count(f"all {kind}s killed")
        for name in sorted(self.processes):
            if name.startswith(kind):
                self._killed(self.processes[name])

    def _stop_one(self) -> None:
        process = self.processes[self.rng.choice(sorted(self.processes))]
        seconds = self.rng.choice((3.0, 13.0, 25.0))
        self.world.count("stopped")
        self.world.note(process.identity, f"is stopped for {seconds} s")
        process.stop(seconds)

    def _set_mode(self, mode: Mode) -> None:
        self.world.note("world", f"sets the mode to {mode}")
        self.mode = mode

    def _end_faults(self) -> None:
        self.world.note("world", "ends all faults")
        self.world.faulty = False
        self.world.faults = Faults()
        self.world.cut.clear()
        self.world.thaw()
        self.cluster.refused.clear()
        self.mode = "enforce"
        for process in self.processes.values():
            process.go_on()

    def _faults(self) -> Faults:
        rng = self.rng
        strength = rng.choice((0.2, 1.0, 1.0, 3.0))

        def some(probability: float) -> float:
            return probability * strength if rng.random() < 0.6 else 0.0

        return Faults(
            kill=some(0.006),
            stop=some(0.006),
            lose_request=some(0.015),
            lose_answer=some(0.02),
            delay=some(0.04),
            refuse=some(0.04),
            repeat=some(0.03),
        )

    # ----------------------------------------------------------------------------------------- run

    async def _drive(self) -> None:
        self._populate()
        until = self.rng.choice((8.0, 15.0, 30.0))
        self.loop.call_later(0.6, self._plan_events, until)
        self.world.faults = self._faults()
        self.world.note("world", f"faults for {until} s: {self.world.faults}")
        await self._pass(until)
        self._end_faults()
        unsettled = "not started"
        while unsettled and not self.checker.problem:
            if self.loop.virtual > until + SETTLES_WITHIN_SECONDS:
                self.checker.problem = f"{unsettled} ({SETTLES_WITHIN_SECONDS:.0f} s after the last fault)"
                self.world.note("VIOLATION", self.checker.problem)
                return
            await self._pass(LOOK_SECONDS)
            started = len(self.processes) == self.expected and all(p.alive for p in self.processes.values())
            unsettled = self.checker.unsettled(self.schedulers.values()) if started else "not started"

    async def _pass(self, seconds: float) -> None:
        """Let time pass, but not beyond a violation."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._failed() else seconds):
                await self.checker.broken.wait()
        self._failed()

    def _failed(self) -> bool:
        defects = [f for f in self.loop.failures if not isinstance(f, ViolationError)]
        if defects and not self.checker.problem:
            self.checker.problem = f"no part ends by a defect: {defects[0]!r}"
            self.world.note("VIOLATION", self.checker.problem)
        return bool(self.checker.problem)

    def run(self, *, trace: bool = False) -> Result:
        """Run it to its end."""
        state = random.getstate()
        random.seed(self.world.seed)
        try:
            self.loop.run_until_complete(self._drive())
            seconds = self.loop.virtual
            text = self.world.trace()
        finally:
            random.setstate(state)
            for process in self.processes.values():
                process.alive = False
            close(self.loop)
        outcomes: dict[str, int] = {}
        for known in self.checker.orders.values():
            result = known.outcome.result if known.outcome else "none"
            outcomes[result] = outcomes.get(result, 0) + 1
        return Result(
            seed=self.world.seed,
            problem=self.checker.problem,
            steps=len(self.world.lines),
            seconds=seconds,
            checks=self.checker.checked,
            orders=len(self.checker.orders),
            deletes=len(self.checker.victims_of_deletes),
            injected=self.world.injected,
            outcomes=outcomes,
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            trace=text if trace or self.checker.problem else "",
        )
