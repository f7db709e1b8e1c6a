"""`makeway keys`: make, show and rotate the keys of signatures."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
import typer

from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.cli.ages import age_of
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import NEGATIVE, USAGE, fail
from makeway.cli.keys.rotation import KindKeys, may_rotate, retired
from makeway.cli.keys.stores import (
    CONFIGMAP,
    SECRETS,
    PublicState,
    SecretKeys,
    configmap,
    encoded,
    public_state,
    put_public,
    secret,
)
from makeway.cli.output import OutputOption, Printer, TableOutputOption
from makeway.cli.tables import Column
from makeway.core.config.duration import DurationError, parse_duration
from makeway.core.k8s.times import api_time
from makeway.runtime.kube import Api

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Make, show and rotate the keys that orders, outcomes and control states are signed with.",
)

_USES: Final = {
    SigningKind.ORDER: "planner",
    SigningKind.CONTROL: "planner",
    SigningKind.OUTCOME: "evictor",
}
_COLUMNS: Final = (
    Column("KIND"),
    Column("KEY"),
    Column("SIGNED BY", rank=1),
    Column("STATE"),
    Column("AGE"),
    Column("MADE", wide=True),
)

KindOption = Annotated[
    list[SigningKind] | None,
    typer.Option("--kind", help="Only keys of this kind; may be given again. Default: all."),
]


class KeyRow(msgspec.Struct, frozen=True, rename="camel"):
    """One public key, or a private one whose public key is missing.

    Attributes:
        kind: what it signs.
        key_id: its name.
        signed_by: the part that has the private key.
        state: in use; not in use, which --finish drops; not published; no private key.
        made_at: when it was made, or when the ConfigMap was; null where not known.
    """

    kind: str
    key_id: str
    signed_by: str
    state: str
    made_at: str | None


class _Keys:
    """All keys of an installation, private and public."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.public = PublicState()
        secrets = {name: SecretKeys(api, namespace, name) for name in SECRETS.values()}
        self._private = {kind: secrets[name] for kind, name in SECRETS.items()}

    def private(self, kind: SigningKind) -> SecretKeys:
        return self._private[kind]

    async def read(self, kinds: Iterable[SigningKind]) -> list[KindKeys]:
        self.public = await public_state(self.api, self.namespace)
        return [await self.of(kind) for kind in kinds]

    async def of(self, kind: SigningKind) -> KindKeys:
        current = await self._private[kind].read(kind)
        made_at = self.public.made_at(current.key_id) if current is not None else None
        return KindKeys(kind, current, self.public.by_kind.get(kind, {}), made_at)

    async def publish(self, changed: Mapping[SigningKind, Mapping[str, str]]) -> None:
        if changed:
            await put_public(self.api, self.namespace, self.public, changed, datetime.now(UTC))
            self.public = await public_state(self.api, self.namespace)


@app.command()
@connected
async def new(
    installation: Installation,
    *,
    kind: KindOption = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make new keys in place of those there, which count no more."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace keys without being asked.")] = False,
    output: OutputOption = "text",
) -> int | None:
    """Make a key pair of each kind: Secrets makeway-signing-*, and ConfigMap makeway-keys.

    With --output yaml or json it prints their manifests, for Git, and writes nothing. It refuses where there
    are keys; what a broken-off call has left out it adds. With --replace, for a key that was lost or stolen,
    what the old key has signed is refused at once, and what the part signs until it has the new one, which
    takes a kubelet up to two minutes. Exit code 1 where there are keys.
    """
    kinds = tuple(kind or SigningKind)
    printer = Printer(output)
    if printer.data:
        _print_manifests(printer, installation, kinds)
        return None
    async with installation.api() as api:
        keys = _Keys(api, installation.makeway_namespace)
        found = await keys.read(kinds)
        if replace:
            _confirm(kinds, yes=yes)
        elif (refused := _refused(found)) is not None:
            fail(refused)
        made: dict[SigningKind, Mapping[str, str]] = {}
        for one in found:
            key = None if replace else one.current
            if key is None:
                key = SigningKey.new()
                await keys.of(one.kind)  # the Secret may hold another kind, just written
                await keys.private(one.kind).put(one.kind, key)
            made[one.kind] = {key.key_id: key.public_pem()}
        await keys.publish(made)
        for one_kind, published in made.items():
            printer.line(f"{one_kind}: key {next(iter(published))}, for the {_USES[one_kind]}")
    return None


@app.command()
@connected
async def show(
    installation: Installation,
    *,
    output: TableOutputOption = "text",
) -> int | None:
    """Show kinds, key ids and ages, and which key is in use; never a private key.

    It reads the Secrets to know what is in use. Exit code 1 where a kind has no key in use that counts.
    """
    printer = Printer(output)
    now = datetime.now(UTC)
    async with installation.api() as api:
        keys = _Keys(api, installation.makeway_namespace)
        found = await keys.read(SigningKind)
    rows = [row for one in found for row in _rows(one, keys.public)]
    if printer.data:
        printer.document(rows)
    elif rows:
        printer.table(_COLUMNS, [_cells(row, now) for row in rows])
    missing = [one.kind for one in found if not one.complete]
    if missing:
        printer.note(f"makeway: no key that counts is in use for {', '.join(missing)}; see makeway keys new")
        return NEGATIVE
    return None


@app.command()
@connected
async def rotate(
    installation: Installation,
    *,
    kind: KindOption = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Drop the old public keys, which ends the rotation.")
    ] = False,
    wait: Annotated[
        str,
        typer.Option(
            "--wait",
            metavar="DURATION",
            help="How long all parts have to read the new public keys before one signs with them; they read "
            "every 5 s.",
        ),
    ] = "30s",
    after: Annotated[
        str,
        typer.Option(
            "--after",
            metavar="DURATION",
            help="With --finish: how long what the old key signed may still be read, once the new one is "
            "published.",
        ),
    ] = "15m",
    output: OutputOption = "text",
) -> int | None:
    """Bring in new keys while makeway works: publish them, wait, and put them in use; later --finish.

    No message is refused meanwhile: each part takes both keys until --finish. Parts read the ConfigMap every
    5 s, and their mounted Secret when the kubelet has brought it, without a restart. Exit code 1 where there
    are two public keys of a kind already, also by a call that was broken off: --finish drops the one that is
    not in use.
    """
    kinds = tuple(kind or SigningKind)
    seconds, drop_after = _duration(wait, "--wait"), _duration(after, "--after")
    printer = Printer(output)
    async with installation.api() as api:
        keys = _Keys(api, installation.makeway_namespace)
        found = await keys.read(kinds)
        if finish:
            done = await _finish(keys, found, drop_after)
        else:
            done = await _rotate(keys, found, seconds, printer)
    if printer.data:
        printer.document([{"kind": str(one), "keyId": key_id, "did": did} for one, key_id, did in done])
        return None
    for one, key_id, did in done:
        printer.line(f"{one}: key {key_id} {did}")
    if not done:
        printer.line("there is no old key to drop")
    elif not finish:
        printer.line("`makeway keys rotate --finish` drops the old keys, 15 minutes from now or later")
    return None


_Done = list[tuple[SigningKind, str, str]]


async def _rotate(keys: _Keys, found: Sequence[KindKeys], wait: timedelta, printer: Printer) -> _Done:
    for one in found:
        may_rotate(one)
    fresh = {one.kind: SigningKey.new() for one in found}
    used = {one.kind: one.current.key_id for one in found if one.current is not None}
    await keys.publish(
        {one.kind: {**one.public, fresh[one.kind].key_id: fresh[one.kind].public_pem()} for one in found}
    )
    with printer.progress("waiting until every part has read the new public keys"):
        await asyncio.sleep(wait.total_seconds())
    done: _Done = []
    await keys.read(())
    for kind, key in fresh.items():
        now = await keys.of(kind)  # the Secret may hold another kind, just written
        if key.key_id not in now.public or now.current is None or now.current.key_id != used[kind]:
            raise ValueError(f"{kind}: the keys were changed meanwhile; no new key of it was put in use")
        await keys.private(kind).put(kind, key)
        done.append((kind, key.key_id, "is put in use"))
    return done


async def _finish(keys: _Keys, found: Sequence[KindKeys], after: timedelta) -> _Done:
    now = datetime.now(UTC)
    old = {one.kind: retired(one, now, after) for one in found}
    await keys.publish(
        {
            one.kind: {key_id: pem for key_id, pem in one.public.items() if key_id not in old[one.kind]}
            for one in found
            if old[one.kind]
        }
    )
    return [(kind, key_id, "counts no more") for kind, ids in old.items() for key_id in ids]


def _print_manifests(printer: Printer, installation: Installation, kinds: Sequence[SigningKind]) -> None:
    """Print new keys as manifests; nothing is asked of the API server."""
    namespace = installation.makeway_namespace
    secrets: dict[str, dict[str, str]] = {}
    public: dict[SigningKind, Mapping[str, str]] = {}
    for kind in kinds:
        key = SigningKey.new()
        public[kind] = {key.key_id: key.public_pem()}
        secrets.setdefault(SECRETS[kind], {})[f"{kind}.pem"] = encoded(key)
    for name, data in secrets.items():
        printer.item(secret(namespace, name, data))
    printer.item(configmap(namespace, public, datetime.now(UTC)))


def _refused(found: Sequence[KindKeys]) -> str | None:
    """Return why no keys are made: they are there, or a private key is lost. Pure."""
    lost = [one.kind for one in found if one.public and not one.complete]
    if lost:
        return (
            f"there are public keys of {', '.join(lost)}, and not the private key that goes with them; "
            "--replace makes new ones in their place"
        )
    if all(one.complete for one in found):
        return f"there are keys already, in ConfigMap {CONFIGMAP}; see makeway keys rotate, or --replace"
    return None


def _confirm(kinds: Sequence[SigningKind], *, yes: bool) -> None:
    if yes:
        return
    what = f"what the keys of {', '.join(kinds)} have signed is refused from now on"
    if not sys.stdin.isatty():
        fail(f"{what}, and there is no terminal to ask at: nothing was changed; give --yes", USAGE)
    typer.echo(what, err=True)
    if not typer.confirm("Replace them?", err=True):
        fail("nothing was changed")


def _rows(keys: KindKeys, public: PublicState) -> list[KeyRow]:
    """Return a kind's keys as they are shown. Pure."""
    current = keys.current.key_id if keys.current else ""
    states = dict.fromkeys(keys.public, "not in use")
    if not current:
        states = dict.fromkeys(states, "no private key")
    if current:
        states[current] = "in use" if current in keys.public else "not published"
    return [_row(keys.kind, key_id, state, public) for key_id, state in states.items()]


def _row(kind: SigningKind, key_id: str, state: str, public: PublicState) -> KeyRow:
    made = public.made_at(key_id) if key_id in public.by_kind.get(kind, {}) else None
    return KeyRow(str(kind), key_id, _USES[kind], state, api_time(made) if made else None)


def _cells(row: KeyRow, now: datetime) -> tuple[str, ...]:
    made = datetime.fromisoformat(row.made_at) if row.made_at else None
    return (row.kind, row.key_id, row.signed_by, row.state, age_of(made, now), row.made_at or "-")


def _duration(text: str, option: str) -> timedelta:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint=option) from error
