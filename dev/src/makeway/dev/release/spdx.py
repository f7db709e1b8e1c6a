"""What a release is made of, as SPDX 2.3: from uv.lock for Python, from go.sum for the scheduler. Pure.

Source: https://spdx.github.io/spdx-spec/v2.3/.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

_SOURCE: Final = "https://github.com/makeway/makeway"
_UNKNOWN: Final = "NOASSERTION"


@dataclass(frozen=True)
class Package:
    """One that something is made of.

    purl: its name for scanners. download: where it comes from, empty where that is not known. sha256: of the
    file at `download`, in hex. note: what else is known of its content. needs: names of packages.
    """

    name: str
    version: str
    purl: str
    download: str = ""
    sha256: str = ""
    note: str = ""
    needs: tuple[str, ...] = ()


def of_lock(lock: Mapping[str, Any], root: str, extras: Sequence[str] = ()) -> list[Package]:
    """Return what uv.lock says that a package needs, itself first, then by name; on whatever platform.

    `extras`: those of the root that are installed.
    """
    by_name = {one["name"]: one for one in lock["package"]}
    needs: dict[str, tuple[str, ...]] = {}
    left = [root]
    while left:
        name = left.pop()
        if name in needs:
            continue
        entry = by_name[name]
        wanted = list(entry.get("dependencies", ()))
        optional = entry.get("optional-dependencies", {})
        for extra in extras if name == root else sorted(optional):
            wanted += optional.get(extra, ())
        needs[name] = tuple(sorted({one["name"] for one in wanted}))
        left += needs[name]
    return [_locked(by_name[name], needs[name]) for name in (root, *sorted(needs.keys() - {root}))]


def _locked(entry: Mapping[str, Any], needs: tuple[str, ...]) -> Package:
    files = [*([entry["sdist"]] if "sdist" in entry else []), *entry.get("wheels", ())]
    file = files[0] if files else {}
    return Package(
        name=entry["name"],
        version=entry["version"],
        purl=f"pkg:pypi/{entry['name']}@{entry['version']}",
        download=file.get("url", ""),
        sha256=str(file.get("hash", "")).removeprefix("sha256:"),
        needs=needs,
    )


def of_modules(root: Package, modules: Iterable[tuple[str, str]], sums: str) -> list[Package]:
    """Return a Go program and the modules that are linked into it, by path.

    `modules`: path and version of each. `sums`: the text of go.sum, whose hashes are of a module's files.
    """
    known = {
        (path, version): digest
        for path, version, digest in (line.split() for line in sums.splitlines() if line)
        if not version.endswith("/go.mod")
    }
    found = [
        Package(
            name=path,
            version=version,
            purl=f"pkg:golang/{path}@{quote(version, safe='')}",
            download=f"https://proxy.golang.org/{_escaped(path)}/@v/{_escaped(version)}.zip",
            note=f"go.sum: {known[path, version]}" if (path, version) in known else "",
        )
        for path, version in sorted(set(modules))
    ]
    return [
        Package(
            root.name,
            root.version,
            root.purl,
            root.download,
            root.sha256,
            root.note,
            tuple(one.name for one in found),
        ),
        *found,
    ]


def _escaped(path: str) -> str:
    """Write a path as module proxies do: `!a` for `A`."""
    return re.sub(r"[A-Z]", lambda found: "!" + found[0].lower(), path)


def document(name: str, packages: Sequence[Package], epoch: int) -> str:
    """Return the document. `packages`: the one that is described first. `epoch`: when, seconds since 1970."""
    ids = {one.name: f"SPDXRef-Package-{_identifier(one.name)}" for one in packages}
    content = {
        "packages": [_package(one, ids[one.name]) for one in packages],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", ids[packages[0].name]),
            *(_related(ids[one.name], "DEPENDS_ON", ids[needed]) for one in packages for needed in one.needs),
        ],
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    whole = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"{_SOURCE}/spdx/{name}-{digest}",
        "creationInfo": {
            "created": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Organization: The makeway authors", "Tool: makeway.dev.release"],
        },
        **content,
    }
    return json.dumps(whole, indent=2) + "\n"


def _package(package: Package, identifier: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "SPDXID": identifier,
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": package.download or _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": _UNKNOWN,
        "copyrightText": _UNKNOWN,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.purl,
            }
        ],
    }
    if package.sha256:
        described["checksums"] = [{"algorithm": "SHA256", "checksumValue": package.sha256}]
    if package.note:
        described["comment"] = package.note
    return described


def _related(one: str, how: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}


def _identifier(name: str) -> str:
    """Return a name in the letters of an SPDX id, others by their codes, so that no two are alike."""
    return re.sub(r"[^A-Za-z0-9.]", lambda found: "-" if found[0] == "/" else f"-{ord(found[0]):x}-", name)
