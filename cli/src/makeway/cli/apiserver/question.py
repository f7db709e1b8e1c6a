"""What is asked: a path and a body become a question, with the right that it takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

GROUP: Final = "ask.makeway.dev"
VERSION: Final = "v1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"

MOST_BYTES: Final = 256 * 1024
"""Of a question: some hundred manifests."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_PATH: Final = re.compile(
    rf"{re.escape(ROOT)}/namespaces/(?P<namespace>{_LABEL})/(?P<resource>explanations|simulations|queues)"
    r"(?:/(?P<name>[A-Za-z0-9][-A-Za-z0-9_.]{0,252}))?"
)

Resource = Literal["explanations", "simulations", "queues"]
_METHODS: Final = {"explanations": "GET", "queues": "GET", "simulations": "POST"}


class TenantQuestion(msgspec.Struct, frozen=True):
    """One question of a user about a namespace.

    name: of the pod, or the queue's path; empty for a simulation. body: the manifests of a simulation.
    """

    resource: Resource
    namespace: str
    name: str = ""
    body: bytes = b""

    def right(self) -> dict[str, str]:
        """Return what a user must be allowed to ask it, as the attributes of a SubjectAccessReview.

        Whoever may read a pod may know why it is gone; a simulation and queues tell of the namespace.
        """
        attributes = {"namespace": self.namespace, "verb": "get", "version": "v1", "resource": "pods"}
        return {**attributes, "name": self.name} if self.resource == "explanations" else attributes

    def command(self) -> list[str]:
        """Return the arguments of `makeway` that answer it, as JSON; names cannot be taken for options."""
        if self.resource == "explanations":
            # Without the kind, a namespace that begins like an id would be taken for one.
            return ["why", f"pod/{self.namespace}/{self.name}", "-o", "json"]
        if self.resource == "queues":
            return ["queues", "-o", "json"]
        return ["simulate", "-f", "-", "-n", self.namespace, "-o", "json"]


class NoQuestion(ValueError):  # noqa: N818 - it is what was received
    """The request asks nothing that can be answered. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def question_of(method: str, path: str, body: bytes) -> TenantQuestion:
    """Read a request. Raises NoQuestion."""
    found = _PATH.fullmatch(path)
    if found is None or bool(found["name"]) == (found["resource"] == "simulations"):
        raise NoQuestion(404, f"there is no {path}; see {ROOT}")
    resource: Resource = found["resource"]  # type: ignore[assignment] # the expression names these alone
    if method != _METHODS[resource]:
        raise NoQuestion(405, f"{resource} are asked for with {_METHODS[resource]}")
    if resource == "simulations":
        body = _checked(body, found["namespace"])
    return TenantQuestion(resource, found["namespace"], found["name"] or "", body)


def _checked(body: bytes, namespace: str) -> bytes:
    """Return the manifests as they were read; refuse those that concern another namespace.

    What is asked there takes a right there. A pod that must be near pods of another namespace would tell by
    its node where they are, and which labels they have. Written anew, so that what reads them next, as YAML,
    reads no other document.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NoQuestion(400, f"no JSON: {error}") from error
    for one in _objects(document):
        meta = one.get("metadata")
        named = meta.get("namespace") if isinstance(meta, dict) else None
        if named not in (None, "", namespace):
            raise NoQuestion(403, f"a manifest is of namespace {named}, and the question of {namespace}")
    if any(_looks_elsewhere(one, namespace) for one in _nested(document)):
        raise NoQuestion(
            403, f"a pod's affinity names pods of other namespaces than {namespace}: leave that term out"
        )
    return msgspec.json.encode(document)


def _looks_elsewhere(one: dict[str, Any], namespace: str) -> bool:
    """Report whether an object is a PodAffinityTerm that concerns pods of other namespaces."""
    if "topologyKey" not in one:
        return False
    return one.get("namespaceSelector") is not None or one.get("namespaces") not in (None, [], [namespace])


def _nested(document: Any) -> Iterator[dict[str, Any]]:
    """Return every object within a document, whatever its kind; without recursion, whatever the depth."""
    left = [document]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """Return the objects of a document, those of Lists too; without recursion, whatever the depth."""
    left = [document]
    while left:
        one = left.pop()
        if not isinstance(one, dict):
            raise NoQuestion(400, "give one Kubernetes object, or a List of them")
        yield one
        items = one.get("items")
        left += items if isinstance(items, list) else []


def resources() -> dict[str, Any]:
    """Return the APIResourceList. Nothing can be listed, so that a backup of all there is asks nothing."""
    kinds = {"explanations": "Explanation", "queues": "QueueReport", "simulations": "Simulation"}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {
                "name": name,
                "singularName": "",
                "namespaced": True,
                "kind": kind,
                "verbs": ["create" if name == "simulations" else "get"],
            }
            for name, kind in kinds.items()
        ],
    }


def group() -> dict[str, Any]:
    """Return the APIGroup."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }
