"""`makeway mode`: how far makeway goes, and how to change that while it runs."""

from __future__ import annotations

import time
from typing import Annotated, Final, Literal

import msgspec
import typer

from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.cli.connect import Installation, connected
from makeway.cli.errors import NEGATIVE, UNREACHABLE, fail
from makeway.cli.mode_components import (
    COLUMNS,
    Confirmation,
    confirmation,
    in_order,
    row,
    silent,
    without,
)
from makeway.cli.mode_config import CONFIGMAP, Stored, change, stored
from makeway.cli.output import OutputOption, Printer
from makeway.core.duration import DurationError, parse_duration
from makeway.core.mode import Mode
from makeway.core.policy import KEY, Policy, parse_policy
from makeway.core.policy_edit import NEW_POLICY, set_mode
from makeway.runtime.config import revision_of
from makeway.runtime.kube import Api, ApiError

app = typer.Typer(add_completion=False)

Wanted = Literal["off", "observe", "enforce", "inherit"]

_ASK_SECONDS: Final = 0.5
_PODS: Final = "app.kubernetes.io/name=makeway,app.kubernetes.io/component in (planner, evictor, scheduler)"


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What stands in the policy, and who goes by it.

    Attributes:
        mode: of the cluster, or of the namespace asked about.
        namespace: the one asked about; empty for the cluster.
        namespace_modes: every namespace that has a mode of its own.
        policy_revision: of the policy as it is stored; empty where there is none.
        changed: whether this command has changed it.
        components: all that answered, and those known of that did not.
    """

    mode: Mode
    namespace: str
    namespace_modes: dict[str, Mode]
    policy_revision: str
    changed: bool
    components: list[Confirmation]


@app.command()
@connected
async def mode(
    installation: Installation,
    wanted: Annotated[
        Wanted | None,
        typer.Argument(
            metavar="[off|observe|enforce|inherit]",
            help="The mode to change to; nothing shows the one in force. inherit, with --namespace: as the "
            "cluster.",
        ),
    ] = None,
    *,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Only for pods of this namespace that need room (for quotas: that have to go).",
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every component goes by it.")
    ] = True,
    timeout: Annotated[  # noqa: ASYNC109 - an option of the command line
        str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, such as 30s or 2m.")
    ] = "30s",
    force: Annotated[
        bool, typer.Option("--force", help="Write the policy though something else manages it.")
    ] = False,
    output: OutputOption = "text",
) -> int | None:
    """Show how far makeway goes, or change it: off, observe (plan, record, evict nobody) or enforce.

    It changes the ConfigMap makeway-policy, so that it holds across restarts; comments and all else in it
    stay. Then it waits until every planner, evictor and scheduler says that it goes by it. Without an
    argument it only shows both. Exit code 1 where a component does not confirm in time, or the policy is
    managed by something else that would put its own back.
    """
    seconds = _seconds(timeout)
    if wanted == "inherit" and not namespace:
        raise typer.BadParameter("only a namespace can inherit its mode; give --namespace")
    printer = Printer(output)
    async with installation.api() as api:
        if wanted is None:
            seconds, changed = 0.0, False
            text = (await stored(api, installation.makeway_namespace)).text
        else:
            new: Mode | None = None if wanted == "inherit" else wanted
            text, changed = await change(
                api,
                installation.makeway_namespace,
                lambda before: _edited(before, new, namespace, force=force),
            )
            _tell(printer, installation, wanted, namespace, changed=changed)
        policy = parse_policy(text, f"{CONFIGMAP}/{KEY}") if text is not None else Policy()
        revision = revision_of(text) if text is not None else ""
        components: list[Confirmation] = []
        if wait:
            pods = await _pods(api, installation.makeway_namespace)
            asking = _Asking(policy, revision, namespace, pods)
            with printer.progress("waiting until every component goes by it"):
                components = await _asked(installation, asking, seconds)
    report = Report(
        policy.mode_for(namespace) if namespace else policy.mode,
        namespace,
        dict(policy.namespace_modes),
        revision,
        changed,
        components,
    )
    _show(printer, report, installation)
    if not wait or wanted is None:
        return None
    return _verdict(printer, components)


def _seconds(timeout: str) -> float:
    try:
        return parse_duration(timeout).total_seconds()
    except DurationError as error:
        raise typer.BadParameter(f"{timeout!r} {error}", param_hint="--timeout") from error


def _edited(before: Stored, new: Mode | None, namespace: str, *, force: bool) -> str:
    """What the policy's text becomes. Raises ValueError where it may not be written."""
    if before.immutable:
        raise ValueError(f"ConfigMap {CONFIGMAP} is immutable: change the mode where it is made")
    if before.exists and before.text is None:
        keys = ", ".join(before.keys) or "none"
        raise ValueError(f"ConfigMap {CONFIGMAP} has no key {KEY}; it has {keys}")
    if before.manager and not force:
        raise ValueError(
            f"ConfigMap {CONFIGMAP} is managed by {before.manager}, which would put its own text back: "
            "change the mode there, or give --force to write it all the same"
        )
    return set_mode(NEW_POLICY if before.text is None else before.text, new, namespace)


def _tell(printer: Printer, at: Installation, wanted: str, namespace: str, *, changed: bool) -> None:
    for_whom = f" for namespace {namespace}" if namespace else ""
    said = "now says" if changed else "says already"
    line = f"ConfigMap {at.makeway_namespace}/{CONFIGMAP} {said} {wanted}{for_whom}"
    if printer.data:
        printer.note(line)
    else:
        printer.line(line)


class _Asking:
    """Rounds of questions: who has answered so far, and what the last answers come to."""

    def __init__(self, policy: Policy, revision: str, namespace: str, pods: dict[str, str]) -> None:
        self._mode: Mode = policy.mode_for(namespace) if namespace else policy.mode
        self._revision = revision
        self._namespace = namespace
        self._pods = pods
        self._known: dict[str, str] = {}

    async def ask(self, bus: Bus) -> list[Confirmation]:
        """Ask all once."""
        heard = [
            confirmation(one, revision=self._revision, mode=self._mode, namespace=self._namespace)
            for one in await bus.components.ask(_ASK_SECONDS)
        ]
        missing = silent(heard, self._known, self._pods)
        self._known |= {one.identity: one.component for one in heard}
        return in_order([*heard, *missing])


async def _asked(installation: Installation, asking: _Asking, seconds: float) -> list[Confirmation]:
    """Ask until all confirm or the time is over; at least once."""
    until = time.monotonic() + seconds
    try:
        async with installation.bus() as bus:
            while True:
                found = await asking.ask(bus)
                settled = bool(found) and all(one.confirmed for one in found) and not without(found)
                if settled or time.monotonic() >= until:
                    return found
    except BusUnavailable as error:
        fail(f"who goes by it is not known: {error}", UNREACHABLE)


class _PodMetadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Pod(msgspec.Struct):
    metadata: _PodMetadata


class _Pods(msgspec.Struct):
    items: list[_Pod]


async def _pods(api: Api, namespace: str) -> dict[str, str]:
    """The installation's running pods by name, with their component; none where we may not look."""
    query = {"labelSelector": _PODS, "fieldSelector": "status.phase=Running"}
    try:
        body = await api.request("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)
    except ApiError:
        return {}
    found = msgspec.json.decode(body, type=_Pods).items
    return {one.metadata.name: one.metadata.labels["app.kubernetes.io/component"] for one in found}


def _show(printer: Printer, report: Report, installation: Installation) -> None:
    if printer.data:
        printer.document(report)
        return
    where = f"ConfigMap {installation.makeway_namespace}/{CONFIGMAP}"
    if report.policy_revision:
        others = sorted(item for item in report.namespace_modes.items() if item[0] != report.namespace)
        own = "".join(f", {name} {mode}" for name, mode in others)
        for_whom = f" for namespace {report.namespace}" if report.namespace else ""
        printer.line(f"policy: {report.mode}{for_whom}{own}  ({where}, {report.policy_revision})")
    else:
        printer.line(f"policy: none, which is enforce  (no {where})")
    if report.components:
        printer.table(COLUMNS, [row(one) for one in report.components])


def _verdict(printer: Printer, components: list[Confirmation]) -> int:
    late = [one for one in components if not one.confirmed]
    for one in late:
        printer.note(f"{one.component} {one.identity} has not confirmed: {one.why}")
    for component in without(components):
        printer.note(f"no {component} answers")
    if late or without(components):
        return NEGATIVE
    printer.note(f"{len(components)} of {len(components)} components confirm")
    return 0
