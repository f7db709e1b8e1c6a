"""One workload once, with DefaultPreemption or with MakeWay, in processes of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bench.side_by_side.usage import Meter, Usage
from bench.side_by_side.workloads import UPSTREAM_MODULE, Workload, configuration, scheduler_perf
from makeway.dev.binaries import ETCD, GO_ENVIRONMENT, NATS_SERVER
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.options import EVICTOR, LIFTED_RATES
from makeway.dev.ports import Ports
from makeway.dev.probes import http_ok
from makeway.dev.process_set import ProcessSet
from makeway.dev.processes import Program
from makeway.dev.progress import ConsoleProgress
from makeway.dev.scheduler import QUEUE_SORT
from stored_policy import store_policy

DEFAULT, MAKEWAY = "DefaultPreemption", "MakeWay"
VARIANTS = (DEFAULT, MAKEWAY)
BENCHMARK = "benchmark"
_TIMED_DEFAULT = "TimedDefaultPreemption"
_START_SECONDS = 120.0


_MAKEWAY = Path(sys.executable).parent / "makeway"
_POLICY = {
    "apiVersion": "makeway.dev/v1",
    "kind": "Policy",
    "mode": "enforce",
    "limits": {**dict(LIFTED_RATES), "victimsPerOrder": 1_000_000},
}


@dataclass(frozen=True, slots=True)
class Programs:
    """What a round runs."""

    rig: Path
    etcd: Path
    nats: Path
    scheduler_perf: Path


class Tally(msgspec.Struct, frozen=True):
    """So many pods; moments in seconds since 1970."""

    created: int
    bound: int
    first: float
    last: float

    @property
    def seconds(self) -> float | None:
        """From the first one's creation until the last is bound."""
        return self.last - self.first if self.bound else None


class Results(msgspec.Struct, frozen=True):
    """What tests/upstream/schedulerperf writes; see `measured` there. A call: when it ended, seconds."""

    planned: list[tuple[float, float]] | None
    unplanned: list[tuple[float, float]] | None
    groups: list[tuple[float, float]] | None
    preemptors: Tally
    namespaces: dict[str, Tally]
    victims: int

    def measured(self, workload: Workload) -> Tally | None:
        """Return the measured pods: the last that were created, in a namespace of their own."""
        found = [one for one in self.namespaces.values() if one.created == workload.measured]
        return max(found, key=lambda one: one.first, default=None)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one round. `finished`: scheduler_perf itself ended well, in time and without leaks.

    `results`: None where there are none. `measured`: the measured pods. `items`: scheduler_perf's data items.
    `used`, `stolen`: by the processes, and by others on the machine's host, in CPU seconds; `meanwhile` while
    the measured pods were bound.
    """

    variant: str
    finished: bool
    seconds: float
    results: Results | None = None
    measured: Tally | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    used: dict[str, Usage] = field(default_factory=dict)
    used_meanwhile: dict[str, Usage] = field(default_factory=dict)
    stolen: float | None = None
    stolen_meanwhile: float | None = None


def programs(directory: Path) -> Programs:
    """Build what is missing. The rig is linked anew: `go` knows what has changed."""
    progress = ConsoleProgress()
    built = ensure([ETCD, NATS_SERVER], progress)
    rig = directory / "schedulerperf.test"
    environment = {**os.environ, **GO_ENVIRONMENT}
    command = ["go", "test", "-c", "-ldflags=-s -w", "-o", str(rig), "./schedulerperf"]
    with progress.step("building the benchmark", 400):
        subprocess.run(command, cwd=UPSTREAM_MODULE, env=environment, check=True)
    return Programs(rig, built["etcd"], built["nats-server"], scheduler_perf())


def play(
    workload: Workload, variant: str, given: Programs, directory: Path, profile: bool = False
) -> Measured:
    """Run one round; its logs and profiles lie in `directory` afterwards.

    Raises:
        DevError: a process did not start.
    """
    directory.mkdir(parents=True)
    ports, processes = Ports(), ProcessSet(directory)
    try:
        nats_port, planner_port, evictor_port = ports.take(), ports.take(), ports.take()
        scheduler = directory / "scheduler.yaml"
        scheduler.write_text(yaml.safe_dump(_scheduler(variant, nats_port)))
        cases = directory / "workload.yaml"
        cases.write_text(yaml.safe_dump(configuration(workload, given.scheduler_perf, scheduler)))
        if variant == MAKEWAY:
            processes.start(_nats(given.nats, directory, nats_port)).wait_ready()
            processes.start(_streams(nats_port)).wait_ready()
        began = time.monotonic()
        with _benchmark(workload, given, directory, profile) as child:
            pids = {BENCHMARK: child.pid}
            try:
                _wait_for(directory / "kubeconfig", child)
                if variant == MAKEWAY:
                    store_policy(directory / "kubeconfig", _POLICY)
                    for service, port in (("planner", planner_port), ("evictor", evictor_port)):
                        process = processes.start(_service(service, directory, nats_port, port, profile))
                        process.wait_ready()
                        assert process.pid is not None
                        pids[service] = process.pid
                    nats_pid = processes["nats"].pid
                    assert nats_pid is not None
                    pids["nats"] = nats_pid
                (directory / "go-ahead").touch()
                with Meter(pids) as meter:
                    _wait_for_end(directory / "results.json", child)
                # The API server does not end while somebody watches.
                for process in reversed(list(processes)):
                    process.stop()
                code = child.wait()
            except BaseException:
                # Its etcd, too, which would outlive it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGTERM)
                raise
        seconds = time.monotonic() - began
        written = directory / "results.json"
        if not written.exists():
            return Measured(variant, code == 0, seconds)
        results = msgspec.json.decode(written.read_bytes(), type=Results)
        measured = results.measured(workload)
        meanwhile = (measured.first, measured.last) if measured is not None else (0.0, 0.0)
        return Measured(
            variant=variant,
            finished=code == 0,
            seconds=seconds,
            results=results,
            measured=measured,
            items=_items(directory),
            used=meter.used(),
            used_meanwhile=meter.used(*meanwhile),
            stolen=meter.stolen(),
            stolen_meanwhile=meter.stolen(*meanwhile),
        )
    finally:
        processes.stop()
        ports.release()


def _benchmark(
    workload: Workload, given: Programs, directory: Path, profile: bool
) -> subprocess.Popen[bytes]:
    module_cache = given.scheduler_perf.parents[4]
    told: Mapping[str, Path | str] = {
        "MAKEWAY_BENCH_WORKLOAD": directory / "workload.yaml",
        "MAKEWAY_BENCH_KUBECONFIG": directory / "kubeconfig",
        "MAKEWAY_BENCH_GO_AHEAD": directory / "go-ahead",
        "MAKEWAY_BENCH_RESULTS": directory / "results.json",
        "ARTIFACTS": directory,
        # Built with -trimpath, the API server looks for its test certificates by these, as under bazel.
        "TEST_SRCDIR": module_cache,
        "TEST_WORKSPACE": ".",
        "MAKEWAY_BENCH_PROFILE": directory / "cpu.pprof",
        "MAKEWAY_BENCH_PROFILE_AFTER": str(workload.earlier_pods),
        "MAKEWAY_BENCH_PROFILE_PODS": str(workload.measured) if profile else "",
        "MAKEWAY_BENCH_PRIORITY": str(workload.priority),
    }
    path = f"{given.etcd.parent}{os.pathsep}{os.environ['PATH']}"
    command = [
        str(given.rig),
        "-test.run=^$",
        "-test.bench=BenchmarkPerfScheduling",
        "-test.benchtime=1ns",  # once
        f"-test.timeout={workload.minutes}m",
        f"-data-items-dir={directory}",
    ]
    with (directory / "benchmark.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=given.scheduler_perf / workload.directory,
            env={**os.environ, "PATH": path, **{name: str(value) for name, value in told.items()}},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_for(path: Path, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not path.exists():
        if child.poll() is not None or time.monotonic() > deadline:
            raise DevError(f"the benchmark did not start its API server; see {path.parent / 'benchmark.log'}")
        time.sleep(0.05)


def _wait_for_end(results: Path, child: subprocess.Popen[bytes]) -> None:
    """Wait until the workload has ended; the benchmark's own clean-up comes after its results."""
    while not results.exists() and child.poll() is None:
        time.sleep(0.05)


def _scheduler(variant: str, nats_port: int) -> dict[str, Any]:
    """Give kube-scheduler's configuration: its defaults, and one plugin or the other to preempt.

    With MakeWay nominated pods go first in the queue, so that bursts of preemptors end.
    """
    plugin = MAKEWAY if variant == MAKEWAY else _TIMED_DEFAULT
    arguments = {"natsURL": f"nats://127.0.0.1:{nats_port}", "lease": {"name": ""}}
    profile: dict[str, Any] = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": plugin}], "disabled": [{"name": DEFAULT}]}},
    }
    if variant == MAKEWAY:
        profile["plugins"]["queueSort"] = QUEUE_SORT
        profile["pluginConfig"] = [{"name": MAKEWAY, "args": arguments}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def _nats(program: Path, directory: Path, port: int) -> Program:
    configuration_file = directory / "nats.conf"
    configuration_file.write_text(
        f"listen: 127.0.0.1:{port}\njetstream {{ store_dir: {json.dumps(str(directory / 'nats'))} }}\n"
    )

    def ready() -> str:
        log = (directory / "logs" / "nats.log").read_text()
        return "" if "Server is ready" in log else "nats-server is not ready yet"

    return Program(name="nats", argv=(str(program), f"--config={configuration_file}"), ready=ready, base=True)


def _streams(nats_port: int) -> Program:
    """What makes the streams that the others wait for."""
    url = f"--nats-url=nats://127.0.0.1:{nats_port}"
    return Program(name="streams", argv=(str(_MAKEWAY), "streams", "--keep", url), ready=lambda: "")


def _service(name: str, directory: Path, nats_port: int, port: int, profile: bool) -> Program:
    address = f"127.0.0.1:{port}"
    # scheduler_perf's scheduler runs without leader election, so a counter on NATS fences its orders.
    fence = ("--scheduler-fence=kv/default-scheduler",) if name == EVICTOR else ()
    profiled = (sys.executable, "-m", "cProfile", "-o", str(directory / f"{name}.pstats")) if profile else ()
    return Program(
        name=name,
        argv=(
            *profiled,
            str(_MAKEWAY),
            name,
            f"--nats-url=nats://127.0.0.1:{nats_port}",
            f"--kubeconfig={directory / 'kubeconfig'}",
            f"--listen={address}",
            "--mode=enforce",
            "--log-format=json",
            *fence,
        ),
        ready=http_ok(f"http://{address}/readyz"),
        ready_seconds=_START_SECONDS,
    )


def _items(directory: Path) -> list[dict[str, Any]]:
    """Read scheduler_perf's figures; none where it did not get so far."""
    items: list[dict[str, Any]] = []
    for path in directory.glob("BenchmarkPerfScheduling*.json"):
        items += msgspec.json.decode(path.read_bytes())["dataItems"] or []
    return items
