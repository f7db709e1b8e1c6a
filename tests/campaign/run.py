"""Break a real control plane at random, under load and among hostile tenants, and judge what happened.

    make campaign MINUTES=30
    PYTHONPATH=tests .venv/bin/python -m campaign.run --minutes 30 --seed 4711

The seed is printed; the same seed injects the same at the same times. Exit code 1 where the checker found
anything; the cluster's directory, with audit log and logs, is kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from campaign import document
from campaign.clock import skewed_clock
from campaign.counted import preempting
from campaign.forging import Forger
from campaign.injecting import Injector
from campaign.judging import Judge, Verdict, answered, counts_of
from campaign.lines import lines_of
from campaign.load import Load, loaded
from campaign.operating import close_breaker
from campaign.recording import save
from campaign.schedule import Injection, draw, usual_processes
from campaign.settings import prepare
from integration.cluster import RunningCluster
from integration.faults import faults_of
from integration.signing import signatures_of
from makeway.dev.cluster import DevCluster
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER, ClusterOptions
from makeway.dev.progress import ConsoleProgress

PLANNERS, EVICTORS, SCHEDULERS = 2, 3, 2
KEEP_SECONDS = 30.0
MOST_SHOWN = 40
CONTEXT = timedelta(seconds=60)
"""So long after its end an injection is told of beside a violation."""


def options(nats_servers: int, signatures: str = "require") -> ClusterOptions:
    """The control plane of a campaign."""
    return ClusterOptions(
        fallback=False,
        faulty=(PLANNER, EVICTOR, SCHEDULER),
        nats_servers=nats_servers,
        partitions=True,
        failpoints=True,
        admission_policies=True,
        signatures=signatures,
        planner_arguments=("--leader-elect",),
        plugin_arguments=(("notAfter", "20s"),),
    )


async def campaign(
    cluster: RunningCluster, arguments: argparse.Namespace, schedule: list[Injection]
) -> tuple[Verdict, dict[str, Any]]:
    """Play the schedule under load, let everything settle, and judge."""
    judge = Judge(cluster, await prepare(cluster, arguments.nodes))
    begin = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:7.1f} s | {line}", flush=True)

    uid = judge.cluster_uid
    forger = Forger(cluster.info.nats_url, uid, arguments.seed, signatures_of(cluster).signing)
    judge.forged = forger.sent
    toxiproxy = lines_of(cluster.info.toxiproxy_url, arguments.nats_servers)
    async with faults_of(cluster) as faults, toxiproxy as lines:
        injector = Injector(cluster, faults, lines, skewed_clock(cluster.owned.directory), say)
        judge.brakes = injector.brakes
        async with (
            preempting(cluster, arguments.minutes * 60) as preemptors,
            loaded(cluster, arguments.seed, arguments.nodes, arguments.rate) as load,
        ):

            async def forge(kind: str) -> None:
                await forger.send(kind, load.seen, judge.streams)

            injector.forge = forge
            watching = asyncio.create_task(_watch(cluster, judge, load, injector, forger=forger, say=say))
            try:
                await injector.play(schedule)
                await asyncio.sleep(max(0.0, arguments.minutes * 60 - (time.monotonic() - begin)))
            finally:
                watching.cancel()
        lasted = time.monotonic() - begin
        say("the load has ended; waiting until everything has settled")
        async with cluster.connect() as api:
            quiet = Load(api, arguments.seed, arguments.nodes, 0)
            await quiet.drain()
            for opened in await close_breaker(cluster, injector.counts):
                say(f"the breaker was open, and is reset: {opened}")
            await forger.make_sure()
            verdict = await judge.settle(quiet, injector.outages, injector.done)
            counted = await preemptors.counted(api, verdict.history.streams)
            left = (*verdict.left, *forger.beyond, *counted.findings(injector.deaths))
            verdict = replace(verdict, left=left)
            if cluster.owned.options.signatures == "require":
                taken = answered(verdict.streams, forger.sent)
                verdict = replace(verdict, left=(*verdict.left, *taken))
    return verdict, {
        "seed": arguments.seed,
        "minutes": round(lasted / 60, 1),
        "nodes": arguments.nodes,
        "nats_servers": arguments.nats_servers,
        "signatures": arguments.signatures,
        "injected": dict(sorted(injector.counts.items())),
        "forged": dict(sorted(forger.counts.items())),
        "requests_spoilt": injector.requests_spoilt,
        "load": dict(sorted(load.counts.items())),
        "seen": {**counts_of(verdict), **counted.counts(injector.deaths)},
        "violations": len(verdict.findings.violations),
        "not_settled": len(verdict.left) + len(verdict.findings.pending),
    }


async def _watch(
    cluster: RunningCluster,
    judge: Judge,
    load: Load,
    injector: Injector,
    *,
    forger: Forger,
    say: Callable[[str], None],
) -> None:
    """Keep the messages, of which the streams hold a few for each pod, and tell how it goes."""
    while True:
        await asyncio.sleep(KEEP_SECONDS)
        try:
            for opened in await close_breaker(cluster, injector.counts):
                say(f"the breaker was open, and is reset: {opened}")
            await forger.make_sure()
            await judge.keep()
        except Exception as error:  # noqa: BLE001 - NATS or API server are away; the next time counts
            say(f"the streams cannot be read just now: {type(error).__name__}")
            continue
        say(
            f"{len(judge.streams.orders)} orders, {len(judge.streams.outcomes)} outcomes, {dict(load.counts)}"
        )


def report(verdict: Verdict, summary: dict[str, Any]) -> str:
    """What a person reads in the end."""
    lines = [json.dumps(summary, indent=2)]
    for violation in verdict.findings.violations[:MOST_SHOWN]:
        lines.append(f"violation: {violation}")
        lines += [
            f"    {begun:%H:%M:%S} to {ended:%H:%M:%S}: {what}"
            for begun, ended, what in verdict.injected
            if begun <= violation.at <= ended + CONTEXT
        ]
    lines += [f"pending: {one}" for one in verdict.findings.pending[:MOST_SHOWN]]
    lines += [f"not settled: {one}" for one in verdict.left[:MOST_SHOWN]]
    return "\n".join(lines)


def main() -> int:
    """Read the command line, run, judge."""
    parser = argparse.ArgumentParser(prog="python -m campaign.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--rate", type=float, default=0.5, help="urgent pods a second")
    parser.add_argument("--nats-servers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--signatures", default="require", choices=("off", "log", "require"))
    parser.add_argument("--schedule", action="store_true", help="print the schedule and end")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's directory in any case")
    parser.add_argument("--write", action="store_true", help="write the numbers into docs/reliability.md")
    parser.add_argument("--record", type=Path, help="keep there what the checker read")
    parser.add_argument("--json", type=Path, help="write the summary there")
    arguments = parser.parse_args()
    processes = usual_processes(
        planners=PLANNERS, evictors=EVICTORS, schedulers=SCHEDULERS, nats_servers=arguments.nats_servers
    )
    schedule = draw(arguments.seed, arguments.minutes, processes)
    print(f"seed {arguments.seed}: {len(schedule)} injections in {arguments.minutes:g} minutes", flush=True)
    if arguments.schedule:
        print("\n".join(map(str, schedule)))
        return 0
    directory = Path(tempfile.mkdtemp(prefix="makeway-campaign-")) / "cluster"
    owned = DevCluster(
        directory, options(arguments.nats_servers, arguments.signatures), progress=ConsoleProgress()
    ).start()
    try:
        cluster = RunningCluster(owned)
        for service, count in ((PLANNER, PLANNERS), (EVICTOR, EVICTORS), (SCHEDULER, SCHEDULERS)):
            for _ in range(count - 1):
                cluster.start_replica(service)
        verdict, summary = asyncio.run(campaign(cluster, arguments, schedule))
    finally:
        owned.stop()
    summary["schedule"] = [asdict(one) for one in schedule]
    if arguments.json:
        arguments.json.write_text(json.dumps(summary, indent=2))
    if arguments.record:
        save(arguments.record, verdict.history, datetime.now(UTC))
    if not verdict.clean:
        save(directory / "history.json.gz", verdict.history, datetime.now(UTC))
    if arguments.write:
        document.write([summary])
    print(report(verdict, {key: value for key, value in summary.items() if key != "schedule"}), flush=True)
    if verdict.clean and not arguments.keep:
        shutil.rmtree(directory.parent)
    else:
        print(f"kept: {directory}", flush=True)
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
