"""What `makeway mode` makes of the brake: set, narrowed, released. Pure."""

from __future__ import annotations

from dataclasses import replace

from makeway.core.policy.brake import RELEASED, Brake


def set_for(before: Brake, namespace: str, *, since: str, by: str, reason: str) -> Brake:
    """Return the brake set everywhere, or for one more namespace; unchanged where it holds there already.

    A wider brake is never narrowed by setting it for a namespace.
    """
    if before.everywhere and before.trouble and not namespace:
        before = RELEASED  # written anew, so that it can be understood
    if before.everywhere or namespace in before.namespaces:
        return before
    names = frozenset({*before.namespaces, namespace}) if namespace else frozenset[str]()
    return Brake(everywhere=not namespace, namespaces=names, since=since, by=by, reason=reason)


def released(before: Brake, namespace: str) -> Brake:
    """Return the brake released, or released for one namespace.

    Raises:
        ValueError: it is set everywhere, so that no single namespace can be released.
    """
    if not namespace:
        return RELEASED
    if before.everywhere:
        raise ValueError(
            f"{before.describe()}, so it cannot be released for namespace {namespace} alone: "
            "`makeway mode --release` releases it everywhere"
        )
    left = before.namespaces - {namespace}
    return replace(before, namespaces=left) if left else RELEASED


def holds_for(brake: Brake, namespace: str) -> bool:
    """Report whether the brake holds for what a command is about: a namespace or, empty, the cluster."""
    return brake.holds(namespace) if namespace else brake.everywhere
