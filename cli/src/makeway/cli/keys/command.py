"""`makeway keys`: make and rotate the keys of signatures; `makeway check` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import confirm, fail
from makeway.cli.keys.stores import (
    PLANNER,
    PUBLISHED_AT,
    READ_WITHIN,
    SECRETS,
    KeyStore,
    KindKeys,
    manifest,
    private,
    unreadable,
)
from makeway.cli.output import OutputOption, Printer
from makeway.core.k8s.times import api_time
from makeway.runtime.key_ring import CONFIGMAP

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Make and rotate the keys that orders, outcomes and control states are signed with.",
)

KindOption = Annotated[
    list[SigningKind] | None,
    typer.Option("--kind", help="Only keys of this kind; may be given again. Default: all."),
]


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
    kinds, printer = tuple(kind or SigningKind), Printer(output)
    namespace, now = installation.makeway_namespace, datetime.now(UTC)
    fresh = {one: SigningKey.new() for one in kinds}
    if printer.data:
        for name in dict.fromkeys(SECRETS[one] for one in kinds):
            printer.item(manifest(namespace, name, private(name, fresh), {}))
        public = {f"{one}.pem": key.public_pem() for one, key in fresh.items()}
        printer.item(manifest(namespace, CONFIGMAP, public, {PUBLISHED_AT: api_time(now)}))
        return None
    async with installation.api() as api:
        store = KeyStore(api, namespace)
        found = [one for one in await store.kinds() if one.kind in kinds]
        if replace and not yes:
            what = f"what the keys of {', '.join(kinds)} have signed is refused from now on"
            confirm(f"{what}\nReplace them?", what)
        elif not replace and (refused := _refused(found)) is not None:
            fail(refused)
        kept = {} if replace else {one.kind: one.current for one in found if one.current is not None}
        await store.put({one: key for one, key in fresh.items() if one not in kept})
        used = {**fresh, **kept}
        await store.publish({one: [key.public_pem()] for one, key in used.items()}, now)
        for one, key in used.items():
            printer.line(f"{one}: key {key.key_id}, for the {_signer(one)}")
    return None


@app.command()
@connected
async def rotate(
    installation: Installation,
    *,
    finish: Annotated[
        bool, typer.Option("--finish", help="Drop the old public keys, which ends the rotation.")
    ] = False,
    output: OutputOption = "text",
) -> int | None:
    """Bring in new keys while makeway works: publish a second one of each kind; later --finish.

    No message is refused meanwhile: each part takes both keys until --finish, and signs with the new one once
    the kubelet has brought it and all parts have read its public key. --finish waits for 15 minutes after the
    new keys were published. Exit code 1 before that, and where there are two public keys of a kind already,
    also by a call that was broken off: --finish drops the one that is not in use.
    """
    printer = Printer(output)
    async with installation.api() as api:
        store = KeyStore(api, installation.makeway_namespace)
        found = await store.kinds()
        found = [one for one in found if not one.absent]
        if not found:
            raise ValueError(f"there are no keys in {store.namespace}: `makeway keys new` makes them")
        done = await (_finish(store, found) if finish else _rotate(store, found))
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


async def _rotate(store: KeyStore, found: Sequence[KindKeys]) -> _Done:
    """Publish a second key of each kind, then put it where its part reads it; see `runtime.key_ring`."""
    refusals = ("; ".join(unreadable(found)), *(one.refuses_another() for one in found))
    if refused := next(filter(None, refusals), ""):
        raise ValueError(refused)
    fresh = {one.kind: SigningKey.new() for one in found}
    both = {one.kind: [*one.public.values(), fresh[one.kind].public_pem()] for one in found}
    await store.publish(both, datetime.now(UTC))
    await store.put(fresh)
    return [(kind, key.key_id, "is put in use") for kind, key in fresh.items()]


async def _finish(store: KeyStore, found: Sequence[KindKeys]) -> _Done:
    if refused := "; ".join(unreadable(found)):
        raise ValueError(refused)
    used: dict[SigningKind, list[str]] = {}
    old: _Done = []
    for one in found:
        if one.current is None or not one.complete:
            raise ValueError(f"{one.kind}: the key in use is not among the public keys; nothing is dropped")
        used[one.kind] = [one.public[one.current.key_id]]
        old += [(one.kind, key_id, "counts no more") for key_id in one.public if key_id != one.current.key_id]
    noted = store.noted(CONFIGMAP).get(PUBLISHED_AT, "")
    left = READ_WITHIN - (datetime.now(UTC) - datetime.fromisoformat(noted)) if noted else timedelta()
    if old and left > timedelta():
        raise ValueError(
            "messages that the old keys signed may still be on their way; "
            f"try again in {left.total_seconds():.0f} s"
        )
    if old:
        await store.publish(used, None)
    return old


def _signer(kind: SigningKind) -> str:
    return "planner" if SECRETS[kind] == PLANNER else "evictor"


def _refused(found: Sequence[KindKeys]) -> str | None:
    """Return why no keys are made: they are there, lost, or cannot be read. Pure."""
    if broken := "; ".join(unreadable(found)):
        return broken
    lost = [one.kind for one in found if one.public and not one.complete]
    if lost:
        return (
            f"there are public keys of {', '.join(lost)}, and not the private key that goes with them; "
            "--replace makes new ones in their place"
        )
    if all(one.complete for one in found):
        return f"there are keys already, in ConfigMap {CONFIGMAP}; see makeway keys rotate, or --replace"
    return None
