"""The keys of signatures, as they are stored: whether what each part signs verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.keys.stores import OUTSIDE, SECRETS, KeyStore, KindKeys, unreadable
from makeway.runtime.key_ring import CONFIGMAP

_NAME: Final = "signing keys"


async def keys_result(at: CheckedCluster) -> CheckResult:
    """Look at the public keys, and at the private ones of the parts that there are where we may.

    Raises as `Api.request`.
    """
    store = KeyStore(at.api, at.namespace)
    found = await store.kinds()
    if not store.holds(CONFIGMAP) and all(one.absent for one in found):
        return CheckResult(_NAME, "ok", "none: messages are neither signed nor verified")
    of_parts = [one for one in found if SECRETS[one.kind].removeprefix("makeway-signing-") in at.form.parts]
    return judge(of_parts, outside=store.noted(CONFIGMAP).get(OUTSIDE) == "true")


def judge(found: Sequence[KindKeys], *, outside: bool = False) -> CheckResult:
    """Return what is to be said of the keys of all kinds. `outside`: private ones are in no Secret. Pure."""
    if broken := unreadable(found):
        return CheckResult(_NAME, "wrong", *broken)
    unpublished = [f"{one.kind} {one.current.key_id}" for one in found if one.current and not one.complete]
    without = [str(one.kind) for one in found if not one.public and one.current is None]
    if unpublished or without:
        parts = (
            [f"ConfigMap {CONFIGMAP} lacks the key in use of {', '.join(unpublished)}"] if unpublished else []
        )
        parts += [f"there are no keys for {', '.join(without)}"] if without else []
        remedy = "makeway keys new makes what is missing, --replace what was lost"
        return CheckResult(_NAME, "wrong", "; ".join(parts), remedy)
    lost = [str(one.kind) for one in found if one.current is None]
    if lost and not outside:
        remedy = (
            "makeway keys new --replace --kind ...; where they are files of a machine: annotate "
            f"ConfigMap {CONFIGMAP} with {OUTSIDE}=true"
        )
        return CheckResult(_NAME, "warning", f"no Secret holds the private key of {', '.join(lost)}", remedy)
    if rotating := [one for one in found if len(one.public) > 1]:
        detail = f"a rotation is not finished: {', '.join(map(_keys_of, rotating))}"
        return CheckResult(
            _NAME, "warning", detail, "makeway keys rotate --finish, 15 minutes after it began"
        )
    where = "; the private ones are outside of the cluster" if lost else ""
    return CheckResult(_NAME, "ok", f"{', '.join(map(_keys_of, found))}{where}")


def _keys_of(one: KindKeys) -> str:
    """Name the public keys of a kind by their ids, and of several the one in use."""
    ids = list(one.public)
    if len(ids) > 1:
        ids = [
            f"{key_id} (in use)" if one.current and key_id == one.current.key_id else key_id for key_id in ids
        ]
    return f"{one.kind} {' and '.join(ids)}"
