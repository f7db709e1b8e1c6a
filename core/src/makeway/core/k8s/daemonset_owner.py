"""Whether a DaemonSet really controls a pod, or only its ownerReferences say so.

Whoever may create pods may write their ownerReferences. What they say is a *claim*; it is proven by the
DaemonSet of that UID, name and namespace, whose selector matches the pod's labels. Planner and evictor ask
these same functions. Source: pkg/controller/controller_ref_manager.go, ClaimObject.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from makeway.core.k8s.names import is_subdomain
from makeway.core.k8s.objects import DaemonSet, Metadata, OwnerReference
from makeway.core.k8s.selector import Selector, SelectorError, compile_selector

API_VERSION = "apps/v1"
KIND = "DaemonSet"


class DaemonSetOwner(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What of a DaemonSet proves that it controls a pod. `selector`: None where it cannot be read."""

    namespace: str
    name: str
    uid: str
    selector: Selector | None

    def controls(self, namespace: str, labels: Mapping[str, str], *, name: str, uid: str) -> bool:
        """Report whether it controls a pod that claims a DaemonSet of this name and UID. O(requirements)."""
        return (
            bool(uid)
            and (self.uid, self.name, self.namespace) == (uid, name, namespace)
            and self.selector is not None
            and self.selector.matches(labels)
        )


def daemonset_owner(item: DaemonSet) -> DaemonSetOwner:
    """Take from a DaemonSet what proves ownership. Never raises: what cannot be read matches no pod."""
    meta, selector = item.metadata, item.spec.selector
    try:
        compiled = None if selector is None else compile_selector(selector)
    except SelectorError:
        compiled = None
    return DaemonSetOwner(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        selector=None if compiled is None or compiled.empty else compiled,
    )


def claimed_daemonset(metadata: Metadata) -> OwnerReference | None:
    """Return the reference by which a pod says that a DaemonSet controls it; None where it says no such.

    One by a name that no DaemonSet can have is none: by that nothing is read, which would prove it or not.
    """
    for owner in metadata.owner_references or ():
        if owner.controller and owner.kind == KIND and owner.api_version == API_VERSION:
            return owner if is_subdomain(owner.name) else None
    return None
