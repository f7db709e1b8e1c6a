"""Which pods a DaemonSet has bound to one node.

Source: pkg/controller/daemon/util, ReplaceDaemonSetPodNodeNameNodeAffinity: the controller replaces the
required node affinity of each pod by one term that matches the field metadata.name with one node.
"""

from __future__ import annotations

from makeway.core.k8s.daemonset_owner import claimed_daemonset
from makeway.core.k8s.objects import NodeSelectorTerm, Pod

_NAME_FIELD = "metadata.name"


def bound_node(pod: Pod) -> str:
    """Return the one node that a pod may run on which says that it is a DaemonSet's; else empty.

    Both must hold: a DaemonSet is its controller by its ownerReferences, and every required term names that
    node by a matching field. Any user may write both into a pod: the DaemonSet itself has to be asked.
    """
    if claimed_daemonset(pod.metadata) is None:
        return ""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required
    nodes = {_named(term) for term in (required and required.node_selector_terms) or ()}
    return nodes.pop() if len(nodes) == 1 else ""


def _named(term: NodeSelectorTerm) -> str:
    """Return the node that a term names; empty where it names none, or more than one."""
    names = {
        field.values[0]
        for field in term.match_fields or ()
        if field.key == _NAME_FIELD and field.operator == "In" and field.values and len(field.values) == 1
    }
    return names.pop() if len(names) == 1 else ""
