"""The keys of a cluster's signatures, a directory for each part, as a kubelet would mount its Secret."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.dev.site import Site

CONFIGMAP: Final = "makeway-keys"
OUTSIDE: Final = "makeway.dev/private-keys-outside"
"""Annotation of the ConfigMap, by which `makeway check` does not miss Secrets of the private keys."""
KINDS: Final = {
    "planner": (SigningKind.ORDER, SigningKind.CONTROL),
    "evictor": (SigningKind.OUTCOME,),
}
"""What each part signs."""


def directory(cluster: Path, service: str) -> Path:
    """Return where a part finds its private keys."""
    return cluster / "signing" / service


def make(site: Site) -> dict[str, str]:
    """Write new private keys; return the public ones as ConfigMap `makeway-keys` holds them."""
    public = {}
    for service, kinds in KINDS.items():
        place = directory(site.directory, service)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for kind in kinds:
            key = SigningKey.new()
            (place / f"{kind}.pem").write_bytes(key.to_pem())
            public[f"{kind}.pem"] = key.public_pem()
    return public


def read(cluster: Path, kind: SigningKind) -> SigningKey | None:
    """Return a cluster's private key, with which tests sign as a part would; None where it has none."""
    service = next(service for service, kinds in KINDS.items() if kind in kinds)
    try:
        return SigningKey.from_pem((directory(cluster, service) / f"{kind}.pem").read_bytes())
    except FileNotFoundError:
        return None
