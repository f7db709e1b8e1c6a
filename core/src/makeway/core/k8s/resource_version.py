"""resourceVersions as numbers."""

from __future__ import annotations


def version_of(resource_version: str) -> int:
    """Return a resourceVersion as a number; 0 where it is none.

    Versions of one resource in one cluster grow with each change (KEP-5504, promised since Kubernetes 1.35).
    """
    return int(resource_version) if resource_version.isdecimal() else 0
