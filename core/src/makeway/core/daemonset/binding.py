"""Which pods a DaemonSet has bound to one node.

Source: pkg/controller/daemon/util, ReplaceDaemonSetPodNodeNameNodeAffinity: the controller replaces the
required node affinity of each pod by one term that matches the field metadata.name with one node.
"""

from __future__ import annotations

from makeway.core.k8s.objects import NodeSelectorTerm, Pod

_KIND = "DaemonSet"
_NAME_FIELD = "metadata.name"


def bound_node(pod: Pod) -> str:
    """Return the one node that a DaemonSet's pod may run on, empty where it is no such pod.

    Both must hold: a DaemonSet is its controller, and every required term names that node by a matching
    field. Any user may write such an affinity into a pod; the owner alone does not bind it.
    """
    owners = pod.metadata.owner_references or ()
    if not any(owner.controller and owner.kind == _KIND for owner in owners):
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
