"""Write kubeconfig files that stand alone.

Certificates and tokens are inside, so a file can be copied anywhere.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from makeway.dev.pki import KeyPair


def write_with_certificate(path: Path, server: str, authority: Path, client: KeyPair, name: str) -> Path:
    """Write a kubeconfig whose user is a client certificate."""
    user = {
        "client-certificate-data": _data(client.certificate),
        "client-key-data": _data(client.key),
    }
    return _write(path, server, authority, user, name)


def write_with_token(path: Path, server: str, authority: Path, token: str, name: str) -> Path:
    """Write a kubeconfig whose user is a service account's token."""
    return _write(path, server, authority, {"token": token}, name)


def _write(path: Path, server: str, authority: Path, user: dict[str, str], name: str) -> Path:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "makeway", "cluster": {"server": server, "certificate-authority-data": _data(authority)}}
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "makeway", "context": {"cluster": "makeway", "user": name}}],
        "current-context": "makeway",
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
