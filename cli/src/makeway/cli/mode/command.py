"""`makeway mode`: how far makeway goes, and how to change that while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final, Literal

import typer

from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.cli.check.presence import may_be_there, must_be_installed
from makeway.cli.connect.configmaps import StoredMap, change_map, manager_of, read_map
from makeway.cli.connect.form import Form, installed_form
from makeway.cli.connect.objects import Bare, listed
from makeway.cli.connect.session import Installation, complete_namespaces, connected
from makeway.cli.errors import NEGATIVE, UNREACHABLE, confirm
from makeway.cli.mode.begin import begins, what_would_begin
from makeway.cli.mode.brake import released, set_brake, set_for, stored_brake, whoami
from makeway.cli.mode.components import COLUMNS, Confirmation, confirmation, in_order, row, silent, without
from makeway.cli.mode.report import StoredState, lines, report_of
from makeway.cli.output import Printer, TableOutputOption
from makeway.cli.shared_options import seconds_given
from makeway.core.config.document import ConfigError
from makeway.core.k8s.times import api_time
from makeway.core.policy.brake import CONFIGMAP as BRAKE
from makeway.core.policy.brake import LONGEST_REASON, RELEASED, Brake
from makeway.core.policy.document import KEY, Policy, parse_policy
from makeway.core.policy.edit import NEW_POLICY, set_mode
from makeway.core.policy.mode import Mode
from makeway.core.text import one_line
from makeway.runtime.config_kinds import POLICY
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

app = typer.Typer(add_completion=False)

Wanted = Literal["off", "observe", "enforce", "inherit"]

_ASK_SECONDS: Final = 0.5
_PODS: Final = (
    "app.kubernetes.io/name=makeway,app.kubernetes.io/component in (planner, evictor, scheduler, nominator)"
)


@app.command()
@connected
async def mode(
    installation: Installation,
    wanted: Annotated[
        Wanted | None,
        typer.Argument(
            metavar="off|observe|enforce|inherit",
            help="The mode to change to; without one the effective one is shown. off sets the brake. "
            "inherit, with --namespace: as the cluster.",
        ),
    ] = None,
    *,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Only for preemptors of this namespace (for quotas: for its victims).",
            autocompletion=complete_namespaces,
        ),
    ] = "",
    release: Annotated[
        bool,
        typer.Option("--release", help="Release the brake; with a mode, after the policy was changed."),
    ] = False,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="With off: why, for people who find the brake set."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin to enforce without being asked.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every component confirms it.")
    ] = True,
    timeout: Annotated[  # noqa: ASYNC109 - an option of the command line
        str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, such as 30s or 2m.")
    ] = "30s",
    force: Annotated[
        bool,
        typer.Option("--force", help="Write the policy though something else manages it, or it was deleted."),
    ] = False,
    output: TableOutputOption = "text",
) -> int | None:
    """Show how far makeway goes, or change it: off, observe (plan, record, evict no pod) or enforce.

    off sets the brake, ConfigMap makeway-brake: it holds before the policy, whatever state that is in,
    until --release. The other modes change the ConfigMap makeway-policy; comments and all else in it stay.
    Both hold across restarts. Then it waits until every planner, evictor and scheduler says that it goes by
    it. Without an argument it only shows what is in force, by what, and since when. Exit code 1 where a
    component does not confirm in time, or the change is refused; 2 where enforce needs --yes because there
    is no terminal to ask at; 3 where the change is made and NATS cannot be asked who confirms.
    """
    seconds = seconds_given(timeout)
    if wanted == "inherit" and not namespace:
        raise typer.BadParameter("only a namespace can inherit its mode; give --namespace")
    if wanted == "off" and release:
        raise typer.BadParameter("off sets the brake, --release releases it; give one of them")
    if reason and wanted != "off":
        raise typer.BadParameter("--reason is for off; comments in the policy say why it is as it is")
    if len(reason) > LONGEST_REASON:
        raise typer.BadParameter(f"--reason is longer than {LONGEST_REASON} characters")
    reason = one_line(reason, LONGEST_REASON)
    asked = _Asked(wanted, namespace, release=release, reason=reason, yes=yes, force=force)
    printer = Printer(output)
    async with installation.api() as api:
        await must_be_installed(api, installation, changes=asked.changes)
        changed = await _changed(api, installation, asked, printer)
        seconds = seconds if asked.changes else 0.0
        now = await _as_stored(api, installation.makeway_namespace)
        components: list[Confirmation] = []
        unknown = ""
        form: Form | None = None
        if wait:
            pods = await _pods(api, installation.makeway_namespace)
            form = await installed_form(api, installation.makeway_namespace)
            with printer.progress("waiting until every component confirms it"):
                components, unknown = await _answers(
                    installation, now, namespace, pods=pods, parts=form.parts, seconds=seconds
                )
    report = report_of(now, namespace=namespace, changed=changed, components=components)
    if printer.data:
        printer.document(report)
    else:
        for line in lines(report, installation.makeway_namespace):
            printer.line(line)
        if report.components:
            printer.table(COLUMNS, map(row, report.components))
    if unknown:
        printer.note(f"makeway: which components confirm it is not known: {unknown}")
        if now.brake.engaged:
            printer.note("every evictor reads the brake from the API server before its next delete")
        return UNREACHABLE
    if form is None:
        return None
    verdict = _verdict(printer, components, form.parts, waited=asked.changes)
    return verdict if asked.changes else None


@dataclass(frozen=True)
class _Asked:
    """What the command was asked for."""

    wanted: Wanted | None
    namespace: str
    release: bool
    reason: str
    yes: bool
    force: bool

    @property
    def changes(self) -> bool:
        """Whether anything is to be changed."""
        return self.wanted is not None or self.release

    @property
    def mode(self) -> Mode | None:
        """The mode to write into the policy; None for inherit."""
        return None if self.wanted is None or self.wanted == "inherit" else self.wanted


# ------------------------------------------------------------------------------------- changing


async def _changed(api: Api, installation: Installation, asked: _Asked, printer: Printer) -> bool:
    """Do what was asked for; return whether anything is another than before."""
    at = installation.makeway_namespace
    before = await stored_brake(api, at) if asked.namespace or asked.release else RELEASED
    # What is set for a namespace that is gone is shown, and can be taken back.
    is_set = asked.wanted is None and asked.namespace in before.namespaces
    if asked.namespace and asked.wanted != "inherit" and not is_set:
        await _must_exist(api, asked.namespace)
    if asked.wanted == "off":
        return await _brake(api, at, asked, printer)
    changed = False
    if asked.release:
        released(before, asked.namespace)  # what cannot be released is said before the policy is written
    if asked.wanted is not None:
        changed = await _policy(api, installation, asked, printer)
    if asked.release:
        brake, was_set = await set_brake(api, at, lambda before: released(before, asked.namespace))
        if not was_set:
            said = "is not set"
        else:
            said = f"is released; it stays set for {brake.scope()}" if brake.engaged else "is released"
        for_whom = f" for namespace {asked.namespace}" if asked.namespace and brake.engaged else ""
        _tell(printer, f"the brake {said}{for_whom}  (ConfigMap {at}/{BRAKE})")
        changed = changed or was_set
    return changed


async def _brake(api: Api, at: str, asked: _Asked, printer: Printer) -> bool:
    since, by = api_time(datetime.now(UTC)), await whoami(api)
    brake, changed = await set_brake(
        api,
        at,
        lambda before: set_for(before, asked.namespace, since=since, by=by, reason=asked.reason),
    )
    already = "" if changed else "already: "
    _tell(printer, f"{already}{brake.describe()}  (ConfigMap {at}/{BRAKE})")
    return changed


async def _policy(api: Api, installation: Installation, asked: _Asked, printer: Printer) -> bool:
    """Write the mode into the policy, where nothing is against that."""
    at, namespace = installation.makeway_namespace, asked.namespace
    brake = await stored_brake(api, at)
    if brake.holds(namespace) and not asked.release:
        for_one = f" -n {namespace}" if namespace and not brake.everywhere else ""
        raise ValueError(
            f"{brake.describe()}: nothing was changed. `makeway mode{for_one} --release` releases it; with "
            f"`makeway mode {asked.wanted}{for_one} --release` the policy is changed first"
        )
    now = await read_map(api, at, POLICY.configmap)
    if not (now.version or asked.force) and (kept := await _kept(installation)):
        raise ValueError(
            f"there is no ConfigMap {at}/{POLICY.configmap}, and {kept}: nothing was changed. Apply it again "
            "first, or give --force to be without its rules"
        )
    try:
        before = parse_policy(now.data[KEY], f"{POLICY.configmap}/{KEY}") if KEY in now.data else Policy()
    except ConfigError as error:
        raise ValueError(f"the policy is refused as it is stored, so nothing was changed: {error}") from error
    after = parse_policy(_edited(now, asked), f"{POLICY.configmap}/{KEY}")
    if begins(before, after, namespace):
        if not (await installed_form(api, at)).evicts:
            raise ValueError(
                f"the installation in {at} has nothing that evicts pods (bridge none): nothing was changed; "
                "helm upgrade with bridge=external or bridge=plugin first, see docs/install.md"
            )
        if not asked.yes:
            for line in await what_would_begin(installation, namespace):
                printer.note(line)
            confirm("Begin to evict pods?", "this begins to evict pods")
    changed = await change_map(
        api, at, POLICY.configmap, lambda stored: {**stored.data, KEY: _edited(stored, asked)}
    )
    for_whom = f" for namespace {namespace}" if namespace else ""
    said = "now says" if changed else "says already"
    _tell(printer, f"ConfigMap {at}/{POLICY.configmap} {said} {asked.wanted}{for_whom}")
    return changed


async def _kept(installation: Installation) -> str:
    """Return that a deleted policy stays effective, or that this cannot be asked; empty where none was."""
    try:
        async with installation.bus() as bus:
            found = await bus.components.ask(_ASK_SECONDS)
    except (BusError, ApiError, ApiUnavailable) as error:
        return f"whether one was deleted, and stays effective, is not known: {error}"
    return next((f"policy {one.policy_revision} stays effective" for one in found if one.policy_revision), "")


async def _must_exist(api: Api, namespace: str) -> None:
    """Raise ValueError where there is no such namespace; whoever may not look is believed."""
    if not await may_be_there(api, f"/api/v1/namespaces/{namespace}"):
        raise ValueError(
            f"there is no namespace {namespace}: nothing was changed; `kubectl get namespaces` lists them"
        )


def _edited(before: StoredMap, asked: _Asked) -> str:
    """What the policy's text becomes. Raises ValueError where it may not be written."""
    if before.immutable:
        raise ValueError(f"ConfigMap {POLICY.configmap} is immutable: change the mode where it is made")
    if before.version and KEY not in before.data:
        keys = ", ".join(sorted(before.data)) or "none"
        raise ValueError(f"ConfigMap {POLICY.configmap} has no key {KEY}; it has {keys}")
    if (manager := manager_of(before.labels, before.annotations)) and not asked.force:
        raise ValueError(
            f"ConfigMap {POLICY.configmap} is managed by {manager}, which would put its own text back: "
            "change the mode there, or give --force to write it all the same; "
            "`makeway mode off` needs neither"
        )
    return set_mode(before.data.get(KEY, NEW_POLICY), asked.mode, asked.namespace)


def _tell(printer: Printer, line: str) -> None:
    if printer.data:
        printer.note(line)
    else:
        printer.line(line)


# -------------------------------------------------------------------------------------- showing


async def _as_stored(api: Api, namespace: str) -> StoredState:
    """Read policy and brake as stored now; a policy that is refused, or not ours to read, is told."""
    brake: Brake = await stored_brake(api, namespace)
    try:
        policy = await read_map(api, namespace, POLICY.configmap)
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return StoredState(brake, None, "", "", unread=error.message)
    return StoredState.of(brake, policy)


async def _ask(bus: Bus, said: StoredState, namespace: str, pods: dict[str, str]) -> list[Confirmation]:
    """Ask all components once."""
    found = await bus.components.ask(_ASK_SECONDS)
    said = said.heard(one.policy_revision for one in found)
    heard = [
        confirmation(
            one,
            revision=said.awaited_revision(namespace),
            mode=said.mode_for(namespace),
            namespace=namespace,
            brake=said.brake.scope(),
        )
        for one in found
        if one.component != "shadow"  # no mode holds it back
    ]
    return in_order([*heard, *silent(heard, pods)])


async def _answers(
    installation: Installation,
    said: StoredState,
    namespace: str,
    *,
    pods: dict[str, str],
    parts: tuple[str, ...],
    seconds: float,
) -> tuple[list[Confirmation], str]:
    """Ask until all confirm or the time is over; at least once. Where none can be asked, return why."""
    until = time.monotonic() + seconds
    found: list[Confirmation] = []
    try:
        async with installation.bus() as bus:
            while True:
                found = await _ask(bus, said, namespace, pods)
                settled = bool(found) and all(one.confirmed for one in found) and not without(found, parts)
                if settled or time.monotonic() >= until:
                    return found, ""
    except (BusError, ApiError, ApiUnavailable) as error:
        return found, str(error)


async def _pods(api: Api, namespace: str) -> dict[str, str]:
    """The installation's running pods by name, with their component; none where we may not look."""
    query = {"labelSelector": _PODS, "fieldSelector": "status.phase=Running"}
    try:
        there = await listed(api, f"/api/v1/namespaces/{namespace}/pods", Bare, query=query)
    except ApiError:
        return {}
    return {one.metadata.name: (one.metadata.labels or {})["app.kubernetes.io/component"] for one in there}


def _verdict(
    printer: Printer, components: list[Confirmation], parts: tuple[str, ...], *, waited: bool
) -> int:
    """Say which components did not confirm what was `waited` for, and, always, of which there is none."""
    late = [one for one in components if waited and not one.confirmed]
    for one in late:
        printer.note(f"{one.component} {one.identity} has not confirmed: {one.why}")
    missing = without(components, parts)
    for component in missing:
        printer.note(f"no {component} answers")
    if late or missing:
        return NEGATIVE
    if waited:
        printer.note(f"{len(components)} of {len(components)} components confirm")
    return 0
