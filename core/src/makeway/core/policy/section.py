"""What every part of the policy document has in common."""

from __future__ import annotations

import msgspec


class PolicySection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the policy's parts."""
