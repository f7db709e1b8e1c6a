"""`kubectl makeway` as a plugin of krew: the archive that it unpacks, and the manifest that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from makeway.dev.release.archives import Member, packed

_SOURCE: Final = "https://github.com/makeway/makeway"
_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_BIN: Final = "kubectl-makeway"


def plugin_archive(wheel: Path, requirements: str, licence: bytes, epoch: int) -> bytes:
    """Return the archive: the launcher, the wheel, what it needs by hash, the licence."""
    return packed(
        {
            _BIN: Member(_LAUNCHER.read_bytes(), executable=True),
            wheel.name: Member(wheel.read_bytes()),
            "requirements.txt": Member(requirements.encode()),
            "LICENSE": Member(licence),
        },
        epoch,
    )


def manifest(version: str, archive: str, sha256: str) -> str:
    """Return the manifest. `archive`: the file's name among those of the release; `sha256`: its digest."""
    document: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "makeway"},
        "spec": {
            "version": f"v{version}",
            "homepage": _SOURCE,
            "shortDescription": "Say why pods were preempted, or are pending",
            "description": (
                "The command of makeway, better preemption for Kubernetes: why a pod was preempted or is "
                "still pending, what would happen if pods were created, what was decided and done. It needs "
                "makeway in the cluster, but for simulate on a dump and for checking policies.\n"
            ),
            "caveats": (
                "It needs Python 3.11 or newer with venv. The first call installs its packages, by hash, "
                "below ~/.local/share/makeway.\n"
            ),
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]
                    },
                    "uri": f"{_SOURCE}/releases/download/v{version}/{archive}",
                    "sha256": sha256,
                    "bin": _BIN,
                    "files": [{"from": "*", "to": "."}],
                }
            ],
        },
    }
    return yaml.safe_dump(document, sort_keys=False, width=100)
