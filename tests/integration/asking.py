"""Ask a running cluster as a person does, by the command line; the answer as data."""

import asyncio
import json
from typing import Any

from typer.testing import CliRunner

from integration.builders import NodeBuilder, PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.preempting import sized
from integration.waiting import NotYet, until, until_seen
from makeway.cli.main import app
from makeway.dev.options import PLANNER
from makeway.planner.offline.dump import COMMAND

GROUP = "tests.makeway.dev/group"

Answer = dict[str, Any]


async def run(
    cluster: RunningCluster, *arguments: str, account: str = "", stdin: str = ""
) -> tuple[int, str, str]:
    """Run a command; gives its exit code, and what it wrote on stdout and stderr."""
    config = cluster.info.kubeconfigs[account] if account else cluster.info.kubeconfig
    command = [*arguments, "--kubeconfig", str(config)]
    result = await asyncio.to_thread(
        lambda: CliRunner(env={"COLUMNS": None}).invoke(app, command, input=stdin)
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


async def ask(cluster: RunningCluster, *arguments: str, stdin: str = "") -> Answer:
    """Run a command that must succeed; gives its JSON."""
    code, output, error = await run(cluster, *arguments, "-o", "json", stdin=stdin)
    assert code == 0, error or output
    answer: Answer = json.loads(output)
    return answer


async def until_said(cluster: RunningCluster, text: str, *arguments: str) -> None:
    """Wait until a command says so."""
    await until_seen(
        f"{' '.join(arguments)} says {text!r}", lambda: run(cluster, *arguments), lambda said: text in said[1]
    )


async def until_recording(cluster: RunningCluster) -> None:
    """Wait until the planner records: where NATS was away it begins again after half a minute."""
    log = cluster.process(PLANNER).log

    async def records() -> bool:
        said = [
            line
            for line in log.read_text().splitlines()
            if '"recording_' in line or "planner_started" in line
        ]
        if not said or '"recording_began"' not in said[-1]:
            raise NotYet(said[-1:])
        return True

    await until("the planner records", records)


async def dumped(cluster: RunningCluster) -> str:
    """The cluster as the documented command prints it."""
    return await cluster.kubectl(*COMMAND.split()[1:])


def in_group(pod: PodBuilder, group: str) -> PodBuilder:
    """Keep a pod to the nodes of a group."""
    return pod.spec(nodeSelector={GROUP: group})


def grouped(name: str, group: str, cpu: int) -> NodeBuilder:
    """A node of a group, with so many milli-CPU."""
    return make_node(name).cpu(f"{cpu}m").label(GROUP, group)


def asking(group: str, priority: str, cpu: int) -> PodBuilder:
    """The pod of a group that needs room."""
    return in_group(sized(f"asks-{group}", priority, cpu), group)
