"""`makeway simulate`: what would happen if these pods were created, on the live cluster or on a dump."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
import yaml

from makeway.cli.errors import fail
from makeway.cli.simulate_text import lines
from makeway.core.config import ConfigError
from makeway.planner.offline import configuring
from makeway.planner.offline.dump import world_of
from makeway.planner.offline.live import read_world
from makeway.planner.offline.manifests import Manifest, ManifestError, documents, pods_of
from makeway.planner.offline.results import SimulationReport
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World
from makeway.runtime import logs
from makeway.runtime.kube import Api, ApiError, ApiUnavailable, ConfigurationError
from makeway.runtime.process import identity
from makeway.runtime.settings import (
    ConfigNamespaceOption,
    ConfigSettings,
    ContextOption,
    KubeconfigOption,
    PolicyConfigMapOption,
    QueuesConfigMapOption,
)

app = typer.Typer(add_completion=False)

_CONFIG = ConfigSettings()
_STDIN = "-"
_NO_CONNECTION = 3


@app.command()
def simulate(
    files: Annotated[
        list[str],
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Pods, Lists, or Deployments, ReplicaSets, StatefulSets and Jobs, as YAML or JSON; - reads "
            "stdin. May be given again.",
        ),
    ],
    *,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="Instead of the live cluster a v1 List, as `kubectl get nodes,pods,priorityclasses,"
            "poddisruptionbudgets,namespaces -A -o json` prints it; - reads stdin.",
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="FILE", help="A policy.yaml to try instead of the one in force."),
    ] = "",
    queues: Annotated[
        str,
        typer.Option("--queues", metavar="FILE", help="A queues.yaml to try instead of the one in force."),
    ] = "",
    all_candidates: Annotated[
        bool, typer.Option("--all-candidates", help="Name every node that would do, not only the best.")
    ] = False,
    output: Annotated[
        Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="For a person, or as data.")
    ] = "text",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of pods that name none.")
    ] = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    config_namespace: ConfigNamespaceOption = _CONFIG.namespace,
    policy_configmap: PolicyConfigMapOption = _CONFIG.policy_configmap,
    queues_configmap: QueuesConfigMapOption = _CONFIG.queues_configmap,
) -> None:
    """Say what would happen if pods were created: who fits, who would preempt whom, who is refused and why.

    Nothing is created or changed. The pods come one after the other, and each sees what the ones before it
    would have done. Of the scheduler's filters those with a column are known: resources, host ports, node
    selectors and affinity, taints, pod affinity and anti-affinity, topology spread, ReadWriteOncePod claims,
    queues. Other volumes, devices and filters of third parties are not.

    Ends with 0 where it could be worked out, whatever the answer; with 1 where a file cannot be used; with 3
    where the cluster cannot be reached or may not be read.
    """
    logs.configure("text", "error", "simulate", identity())
    settings = ConfigSettings(
        namespace=config_namespace, policy_configmap=policy_configmap, queues_configmap=queues_configmap
    )
    try:
        if [*files, cluster].count(_STDIN) > 1:
            raise ManifestError("stdin can be read once: give - once")
        manifests = [pair for file in files for pair in _pods(file)]
        if cluster:
            world = _dumped(cluster, settings)
        else:
            world = asyncio.run(_live(settings, str(kubeconfig) if kubeconfig else None, context))
        if policy:
            configuring.enforce(world, _text(policy), policy)
        if queues:
            configuring.adopt(world, _text(queues), queues)
        report = _run(world, manifests, namespace, all_candidates=all_candidates)
    except (ManifestError, ConfigError) as error:
        fail(str(error))
    except (ConfigurationError, ApiError, ApiUnavailable) as error:
        typer.echo(f"makeway: the cluster cannot be read: {error}", err=True)
        raise typer.Exit(_NO_CONNECTION) from None
    _print(report, output, all_candidates=all_candidates)


def _run(
    world: World, manifests: list[tuple[Manifest, str]], namespace: str, *, all_candidates: bool
) -> SimulationReport:
    now = datetime.now(UTC)
    simulation = Simulation(world, now, namespace=namespace, all_candidates=all_candidates)
    pods = tuple(simulation.run(manifest, source) for manifest, source in manifests)
    snapshot = world.snapshot
    return SimulationReport(
        at=now,
        nodes=snapshot.node_count,
        policy_revision=snapshot.shields.revision,
        queues_revision=snapshot.queues.revision,
        pods=pods,
        warnings=tuple(world.warnings),
    )


async def _live(settings: ConfigSettings, kubeconfig: str | None, context: str | None) -> World:
    api = await Api.connect(
        kubeconfig=kubeconfig, context=context, user_agent=f"makeway-simulate/{identity()}"
    )
    try:
        return await read_world(api, settings)
    finally:
        await api.close()


def _dumped(file: str, settings: ConfigSettings) -> World:
    world, maps = world_of(_bytes(file), _named(file))
    for key, name in (
        (configuring.POLICY_KEY, settings.policy_configmap),
        (configuring.QUEUES_KEY, settings.queues_configmap),
    ):
        found = maps.get((settings.namespace, name))
        if found is not None:
            configuring.take(world, key, (found.data or {}).get(key), ("ConfigMap", settings.namespace, name))
    return world


def _pods(file: str) -> list[tuple[Manifest, str]]:
    source = _named(file)
    return [(pod, source) for pod in pods_of(documents(_text(file), source), source)]


def _named(file: str) -> str:
    return "<stdin>" if file == _STDIN else file


def _text(file: str) -> str:
    try:
        return _bytes(file).decode()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{_named(file)}: not text: {error}") from error


def _bytes(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        raise ManifestError(f"{_named(file)}: cannot be read: {error.strerror or error}") from error


def _print(report: SimulationReport, output: str, *, all_candidates: bool) -> None:
    for warning in report.warnings:
        typer.echo(f"makeway: {warning}", err=True)
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    elif output == "yaml":
        typer.echo(yaml.safe_dump(msgspec.to_builtins(report, str_keys=True), sort_keys=False), nl=False)
    else:
        for line in lines(report, all_candidates=all_candidates):
            typer.echo(line)
