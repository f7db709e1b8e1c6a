"""Keys of signatures, one for each kind of message, and what signs and verifies with them."""

from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.bus.signing.signatures import SignatureMode, Signatures

KEYS = {kind: SigningKey.new() for kind in SigningKind}
PUBLIC_DATA = {f"{kind}.pem": key.public_pem() for kind, key in KEYS.items()}
"""As in ConfigMap `makeway-keys`."""


def signatures(mode: SignatureMode = "require", *kinds: SigningKind) -> Signatures:
    """Return what signs these kinds, by default all, and verifies all."""
    signing = {kind: KEYS[kind] for kind in kinds or SigningKind}
    return Signatures(mode, signing=signing, public=PublicKeys.parse(PUBLIC_DATA))
