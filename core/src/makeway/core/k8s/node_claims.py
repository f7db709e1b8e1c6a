"""Karpenter's NodeClaims: nodes that are being made, and what they are made for. Pure.

Source: karpenter.sh/v1, NodeClaim. `spec.resources.requests` is what the pods ask for that Karpenter makes
the node for, with what DaemonSets need there; it names no pods. Condition Initialized is true once pods can
be bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway.core.k8s.objects import Metadata, PodCondition, ResourceRequirements, Taint, View
from makeway.core.k8s.resources import allocatable

GROUP: Final = "karpenter.sh"
VERSION: Final = "v1"
PLURAL: Final = "nodeclaims"


class NodeClaimSpec(View, frozen=True, gc=False):
    """spec of a NodeClaim. Startup taints go before pods are bound, and are left out."""

    resources: ResourceRequirements = ResourceRequirements()
    taints: tuple[Taint, ...] | None = None


class NodeClaimStatus(View, frozen=True, gc=False):
    """status of a NodeClaim."""

    conditions: tuple[PodCondition, ...] | None = None


class NodeClaim(View, frozen=True, gc=False):
    """A NodeClaim, as far as it is read here."""

    metadata: Metadata
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()


@dataclass(frozen=True, slots=True)
class ComingNode:
    """A node that is being made. `room`: by column, what it is made for; `labels`: those that are known."""

    name: str
    created: datetime
    room: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


def coming_node(claim: NodeClaim) -> ComingNode | None:
    """Return the node that a claim promises; None where it is there already, or will not be.

    Raises QuantityError.
    """
    metadata = claim.metadata
    there = any(one.type == "Initialized" and one.status == "True" for one in claim.status.conditions or ())
    if there or metadata.deletion_timestamp is not None or metadata.creation_timestamp is None:
        return None
    return ComingNode(
        name=metadata.name,
        created=metadata.creation_timestamp,
        room=allocatable(claim.spec.resources.requests),
        labels=metadata.labels or {},
        taints=claim.spec.taints or (),
    )
