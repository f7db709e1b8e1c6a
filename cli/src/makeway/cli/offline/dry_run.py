"""New pods as the API server would store them: it creates each with `dryRun=All`, which stores nothing.

So the pod that is judged has what LimitRanges, RuntimeClasses and webhooks add, and where the API server
refuses it, that is the answer, in its own words.
"""

from __future__ import annotations

import copy
from collections.abc import Container
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from makeway.cli.connect.objects import may_pods
from makeway.planner.offline.manifests import Manifest, NewPod
from makeway.runtime.kube import Api, ApiError

_NAMED: Final = {
    "priorityClassName": "PriorityClass",
    "runtimeClassName": "RuntimeClass",
    "serviceAccountName": "ServiceAccount",
}
"""Fields of a pod's spec that name objects without which it is not stored."""

_FOLLOWS: Final = {
    "priorityClassName": ("priority", "preemptionPolicy"),
    "runtimeClassName": ("overhead",),
    "serviceAccountName": ("serviceAccount",),
}
"""What the API server fills in by such an object, which it did not have."""

_NO_DRY_RUN: Final = "does not support dry run"
"""What it says of a webhook with side effects."""

_NOT_OF_THE_POD: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)


class DryRun:
    """Asks once for pods that are alike but for their names.

    `brought`: kind and name of what the files bring besides, which the API server does not have yet.
    """

    def __init__(self, api: Api, brought: Container[tuple[str, str]], namespace: str) -> None:
        self._api = api
        self._brought = brought
        self._namespace = namespace
        self._allowed: dict[str, bool] = {}
        self._answers: dict[bytes, tuple[str, NewPod]] = {}

    async def stored(self, new: NewPod) -> NewPod:
        """Return a pod as it would be stored. Raises ApiError, ApiUnavailable."""
        body = copy.deepcopy(new.manifest)
        meta, spec = body.setdefault("metadata", {}), body.setdefault("spec", {})
        if not (isinstance(meta, dict) and isinstance(spec, dict) and meta.get("name")):
            return new
        space, name = str(meta.get("namespace") or self._namespace), str(meta["name"])
        if space not in self._allowed:
            self._allowed[space] = await may_pods(self._api, "create", space)
        if not self._allowed[space]:
            return _unknown(new, f"no right to create pods in namespace {space}")
        body |= {"apiVersion": "v1", "kind": "Pod"}
        body.pop("status", None)
        meta |= {"namespace": space}
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            meta.pop(field, None)
        kept = {field: spec.pop(field) for field, kind in _NAMED.items() if self._is_new(spec, field, kind)}
        if not spec.get("priorityClassName") and spec.get("priority") is not None:
            kept["priority"] = spec.pop("priority")
        alike = msgspec.json.encode({**body, "metadata": {**meta, "name": ""}}, order="deterministic")
        if alike in self._answers:
            first, answer = self._answers[alike]
            return _renamed(answer, new, first, name)
        answer = await self._ask(new, body, space, kept)
        self._answers[alike] = name, answer
        return answer

    def _is_new(self, spec: dict[str, Any], field: str, kind: str) -> bool:
        return bool(spec.get(field)) and (kind, str(spec[field])) in self._brought

    async def _ask(self, new: NewPod, body: Manifest, space: str, kept: dict[str, Any]) -> NewPod:
        try:
            raw = await self._api.call(self._api.core.create_namespaced_pod, space, body, dry_run="All")
        except ApiError as error:
            if error.status in _NOT_OF_THE_POD:
                raise
            if error.status == HTTPStatus.CONFLICT:
                return _unknown(new, "it is there already, and pending")
            if error.status == HTTPStatus.NOT_FOUND and ("Namespace", space) in self._brought:
                return _unknown(new, f"namespace {space} is not there yet")
            if _NO_DRY_RUN in error.message:
                return _unknown(new, error.message)
            return replace(new, stored=True, refusal=error.message)
        found: Manifest = msgspec.json.decode(raw)
        spec = found["spec"]
        for field in kept:
            for follows in _FOLLOWS.get(field, ()):
                spec.pop(follows, None)
        if "priority" in kept:
            spec.pop("preemptionPolicy", None)
            spec.pop("priorityClassName", None)
        if group := body["spec"].get("schedulingGroup"):
            spec["schedulingGroup"] = group  # which an API server without pod groups drops
        spec |= kept
        return replace(new, manifest=found, stored=True)


def _unknown(new: NewPod, why: str) -> NewPod:
    return replace(new, note=f"not judged: what the API server would add or refuse: {why}")


def _renamed(answer: NewPod, new: NewPod, first: str, name: str) -> NewPod:
    """Return the answer about a pod that is alike but for its name."""
    if answer.note:
        return replace(new, note=answer.note)
    if answer.refusal:
        return replace(new, stored=True, refusal=answer.refusal.replace(f'"{first}"', f'"{name}"'))
    meta = {**answer.manifest["metadata"], "name": name}
    meta.pop("uid", None)
    return replace(new, manifest={**answer.manifest, "metadata": meta}, stored=True)
