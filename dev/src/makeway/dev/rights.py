"""The rights of makeway's accounts, from the manifests that grant them: what `makeway check` asks about."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import yaml

from makeway.dev.paths import RBAC_MANIFESTS

_ACCOUNTS = ("planner", "evictor", "nominator")


def granted(account: str) -> Iterator[dict[str, str]]:
    """Yield what the manifest of an account grants, in its order, as fields of a `Right`."""
    for document in yaml.safe_load_all((RBAC_MANIFESTS / f"{account}.yaml").read_text()):
        meta = document["metadata"]
        # The evictor's right to read the nominator's Lease comes with the nominator.
        whose = "evictor" if meta["name"].startswith("makeway-evictor") else account
        for rule in document.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    where = {"group": group, "resource": resource, "namespace": meta.get("namespace", "")}
                    for name in rule.get("resourceNames", [""]):
                        for verb in rule["verbs"]:
                            yield {"account": whose, "verb": verb, **where, "name": name}


def generated() -> dict[str, bytes]:
    """Return the file that `makeway check` reads, by its path: a line a right."""
    rights = (msgspec.json.encode(right) for account in _ACCOUNTS for right in granted(account))
    return {"cli/src/makeway/cli/check/rights.json": b"[\n" + b",\n".join(rights) + b"\n]\n"}
