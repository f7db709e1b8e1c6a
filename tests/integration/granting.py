"""What a chart's roles grant, and what of it a component used, as the audit log has it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from makeway.dev.audit_log import AuditEvent

Manifest = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Grant:
    """One verb on one resource, in one namespace or in all (empty), for one name or for all (empty)."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """As a person would say it: `patch pods/status`, `get leases.coordination.k8s.io kube-system/x`."""
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''} {where}".strip()

    def allows(self, event: AuditEvent) -> bool:
        """Whether it is what let this request pass, or would where the API server cannot stream lists."""
        resource = f"{event.resource}/{event.subresource}" if event.subresource else event.resource
        streamed = event.verb == "watch" and "sendInitialEvents=true" in event.uri
        return (
            self.verb in (event.verb, *(["list"] if streamed else []))
            and (self.group, self.resource) == (event.group, resource)
            and self.namespace in ("", event.namespace)
            and self.name in ("", event.name)
        )


def grants(manifests: Iterable[Manifest], account: str) -> set[Grant]:
    """Everything that roles among the manifests grant to a service account."""
    objects = list(manifests)
    roles = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["rules"]
        for one in objects
        if one["kind"] in ("Role", "ClusterRole")
    }
    found: set[Grant] = set()
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if not any(s["kind"] == "ServiceAccount" and s["name"] == account for s in binding["subjects"]):
            continue
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        key = (reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"])
        # A role that the chart does not make is Kubernetes' own.
        for rule in roles.get(key, ()):
            found |= {
                Grant(verb, group, resource, namespace, name)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames", [""])
            }
    return found


def unused(granted: Iterable[Grant], events: Iterable[AuditEvent]) -> set[str]:
    """Grants that let none of these requests pass; a request uses the narrowest that allows it."""
    narrowest = sorted(granted, key=lambda one: (one.name == "", one.namespace == ""))
    used: set[Grant] = set()
    for event in events:
        used |= set({one.verb: one for one in reversed(narrowest) if one.allows(event)}.values())
    return {str(one) for one in narrowest if one not in used}


def denied(events: Iterable[AuditEvent]) -> list[str]:
    """Requests that the API server refused for want of a right or of a valid token."""
    return [f"{event.user}: {event.verb} {event.uri}" for event in events if event.code in (401, 403)]
