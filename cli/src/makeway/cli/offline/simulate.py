"""`makeway simulate`: what would happen if these pods were created, on the live cluster or on a dump."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from makeway.bus.reasons import reason_of
from makeway.cli.connect.session import Installation, NamespaceOption, connected
from makeway.cli.offline.dry_run import DryRun
from makeway.cli.offline.simulate_text import lines
from makeway.cli.output import OutputOption, Printer
from makeway.cli.text import joined
from makeway.core.k8s.times import api_time
from makeway.core.queues.tree import QueueTree
from makeway.planner.offline import configuring
from makeway.planner.offline.applying import NewPods, applied, name_of, namespace_of
from makeway.planner.offline.contents import group_named
from makeway.planner.offline.dump import world_of
from makeway.planner.offline.live import read_world
from makeway.planner.offline.manifests import Manifest, ManifestError, NewPod, documents
from makeway.planner.offline.quotas import lowered, not_enforced
from makeway.planner.offline.results import SimulatedGroup, SimulatedPod, SimulatedQuota, SimulationReport
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings

app = typer.Typer(add_completion=False)

_STDIN: Final = "-"
_DEFAULT: Final = "default"
"""The namespace of a dump's pods where none is said."""


@app.command()
@connected
async def simulate(
    installation: Installation,
    *,
    files: Annotated[
        list[str],
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Pods, Lists, or Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, and the "
            "PodGroups that they name, as YAML or JSON, such as a rendered chart: its PriorityClasses, "
            "budgets and the like count as applied; - reads stdin. May be given again. Not needed with "
            "--queues.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="Instead of the live cluster a List as `kubectl get -A -o json` prints it of nodes, pods, "
            "priorityclasses, poddisruptionbudgets, namespaces and more (docs/asking.md); - reads stdin.",
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="FILE", help="A policy.yaml to try instead of the effective one."),
    ] = "",
    queues: Annotated[
        str,
        typer.Option(
            "--queues",
            metavar="FILE",
            help="A queues.yaml to try instead of the one in force; without -f it is said which pods the "
            "quotas that it lowers would take.",
        ),
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="TIME",
            help="When the dump of --cluster was taken, in RFC 3339, such as 2026-01-31T12:00:00Z: it is "
            "judged as of then. Default: now.",
        ),
    ] = "",
    all_candidates: Annotated[
        bool, typer.Option("--all-candidates", help="Name every node that would do, not only the best.")
    ] = False,
    namespace: NamespaceOption = "",
    output: OutputOption = "text",
) -> None:
    """Say what would happen if pods were created: who fits, who would preempt whom, who is refused and why.

    With --queues and without pods: which pods would go for the quotas that the file lowers, in which queue
    and in which order.

    Nothing is stored or changed: with a cluster at hand pods are created with dryRun=All, where that is
    allowed, so that they are judged as they would be stored. The pods come one after the other, and each
    sees what the ones before it would have done. A PodGroup that is given comes first, with all pods that
    name it, in one plan.

    Of the scheduler's filters those with a column are known: resources, host ports, node selectors and
    affinity, taints, pod affinity and anti-affinity, topology spread, claims, queues. What else a pod asks
    for is told as not judged.

    Exit code 0 whatever the answer; 1 where a file cannot be used.
    """
    if not files and not queues:
        raise typer.BadParameter("give pods with --filename, or queues to try with --queues")
    now = _moment(at, dumped=bool(cluster))
    settings = ConfigSettings(namespace=installation.makeway_namespace)
    printer = Printer(output)
    if [*files, cluster, policy, queues].count(_STDIN) > 1:
        raise typer.BadParameter("stdin can be read once: give - once")
    found = [(documents(_text(file), _named(file)), _named(file)) for file in files]
    new = NewPods()
    default = namespace or _DEFAULT if cluster else installation.namespace(namespace)
    if cluster:
        world = _dumped(cluster, settings)
        if found:
            new = applied(world, found, default)
    else:
        async with installation.api() as api:
            world = await read_world(api, settings)
            new = await _created(api, world, found, default)
    if policy:
        configuring.enforce(world, _text(policy), policy)
    before = world.snapshot.queues.tree
    if queues:
        configuring.adopt(world, _text(queues), queues)
    if found:
        report = _run(world, new, default, now, all_candidates=all_candidates)
    else:
        report = _lowered(world, before, now)
    _show(report, printer, of_quotas=not found, all_candidates=all_candidates)
    if cluster and not printer.data:
        told = api_time(report.at)
        printer.line(f"as of {told}" if at else f"as of now, {told}; --at says when the dump was taken")


def _moment(at: str, *, dumped: bool) -> datetime:
    """Read when a dump was taken; one without an offset is UTC, as of other commands."""
    if not at:
        return datetime.now(UTC)
    if not dumped:
        raise typer.BadParameter("--at is for a dump: give it with --cluster")
    try:
        moment = datetime.fromisoformat(at)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        hint = f"{at!r}: use a time such as 2026-01-31T12:00:00Z"
        raise typer.BadParameter(hint, param_hint="--at") from error


def _show(
    report: SimulationReport, printer: Printer, *, of_quotas: bool = False, all_candidates: bool = False
) -> None:
    for warning in report.warnings:
        printer.note(f"makeway: {warning}")
    if printer.data:
        printer.document(report)
        return
    for line in lines(report, of_quotas=of_quotas, all_candidates=all_candidates):
        printer.line(joined(line))


async def _created(
    api: Api, world: World, found: list[tuple[list[Manifest], str]], namespace: str
) -> NewPods:
    """Apply what files bring, and have their pods completed by the API server. Raises as that."""
    if not found:
        return NewPods()
    new = applied(world, found, namespace)
    dry_run = DryRun(api, new.brought, namespace)
    return replace(new, pods=[await dry_run.stored(one) for one in new.pods])


def _run(
    world: World, new: NewPods, namespace: str, now: datetime, *, all_candidates: bool
) -> SimulationReport:
    """Create groups and then other pods, one after the other."""
    simulation = Simulation(world, now, namespace=namespace, all_candidates=all_candidates)
    world.warnings += new.notes

    def key(manifest: Manifest, name: str) -> tuple[str, str]:
        return namespace_of(manifest, namespace), name

    members: dict[tuple[str, str], list[NewPod]] = {key(group, name_of(group)): [] for group, _ in new.groups}
    alone: list[NewPod] = []
    for pod in new.pods:
        members.get(key(pod.manifest, group_named(pod.manifest)), alone).append(pod)
    told = tuple(
        simulation.run_group(group, pods, source)
        for (group, source), pods in zip(new.groups, members.values(), strict=True)
    )
    return _report(world, now, groups=told, pods=tuple(map(simulation.run, alone)))


def _lowered(world: World, before: QueueTree | None, now: datetime) -> SimulationReport:
    """Lower the quotas that the queues in force lower."""
    tree = world.snapshot.queues.tree
    if tree is not None:
        world.warnings += not_enforced(before, tree)
    return _report(world, now, quotas=tuple(lowered(world.snapshot, before, now)))


def _report(
    world: World,
    now: datetime,
    *,
    groups: tuple[SimulatedGroup, ...] = (),
    pods: tuple[SimulatedPod, ...] = (),
    quotas: tuple[SimulatedQuota, ...] = (),
) -> SimulationReport:
    snapshot = world.snapshot
    return SimulationReport(
        at=now,
        nodes=snapshot.node_count,
        policy_revision=snapshot.exemptions.revision,
        queues_revision=snapshot.queues.revision,
        groups=groups,
        pods=pods,
        quotas=quotas,
        warnings=tuple(world.warnings),
    )


def _dumped(file: str, settings: ConfigSettings) -> World:
    world, maps = world_of(_bytes(file), _named(file))
    own = {name: found.data or {} for (space, name), found in maps.items() if space == settings.namespace}
    configuring.take(world, own, settings.namespace)
    return world


def _named(file: str) -> str:
    return "<stdin>" if file == _STDIN else file


def _text(file: str) -> str:
    try:
        return _bytes(file).decode()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{_named(file)}: {reason_of(error)}") from error


def _bytes(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        raise ManifestError(f"{_named(file)}: cannot be read: {reason_of(error)}") from error
