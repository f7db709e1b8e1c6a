"""What `makeway check` asks the API server: its version, and what of makeway's is in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from makeway.cli.check import scheduler as check_scheduler
from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import METADATA_LIST, Bare, listed
from makeway.cli.keys.keeping import MADE_AGAIN
from makeway.cli.keys.stores import MANAGED_BY, MANAGED_BY_LABEL, UNREADABLE
from makeway.cli.policy.lint import KEYS, lint
from makeway.core.config.document import and_others
from makeway.core.k8s.objects import ConfigMap, Metadata, PodCondition, PodStatus
from makeway.core.policy.brake import CONFIGMAP as BRAKE
from makeway.core.policy.brake import parse_brake
from makeway.runtime.kube import Api, read_object

_LABELS: Final = "app.kubernetes.io/name=makeway"
_CONFIGMAPS: Final = {"makeway-policy": "policy", "makeway-queues": "queues"}
_ADMISSION: Final = "makeway-admission"
_DELETE_POLICY: Final = "makeway-evictor-delete"
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"


NO_POLICY: Final = CheckResult("policy", "ok", "none: mode enforce, and kube-scheduler's own rules")
"""Where none is stored; a deleted one may be effective still."""


class _Pod(msgspec.Struct):
    metadata: Metadata
    status: PodStatus = PodStatus()


async def server_version(api: Api) -> tuple[str, int]:
    """Return the API server's version, and its minor version as a number. Raises as `Api.request`."""
    version = msgspec.json.decode(await api.request("GET", "/version"))
    digits = "".join(character for character in version["minor"] if character.isdecimal())
    return version["gitVersion"], int(digits or 0)


async def pods_results(at: CheckedCluster) -> list[CheckResult]:
    """Say which of makeway's pods are not ready; nothing where it runs in none. Raises as `Api.request`."""
    path = f"/api/v1/namespaces/{at.namespace}/pods"
    pods = await listed(at.api, path, _Pod, query={"labelSelector": _LABELS})
    return list(judge_pods(pods, at.namespace))


def judge_pods(pods: Sequence[_Pod], namespace: str) -> Iterator[CheckResult]:
    """Say which pods are not ready. Pure."""
    waiting = [
        pod
        for pod in pods
        if pod.status.phase != "Succeeded" and not any(one.status == "True" for one in _ready(pod))
    ]
    for pod in waiting:
        why = next((one.message for one in _ready(pod) if one.message), "")
        yield CheckResult(
            f"pod {pod.metadata.name}",
            "wrong",
            f"{pod.status.phase}, not ready{f': {why}' if why else ''}",
            f"kubectl describe pod -n {namespace} {pod.metadata.name}, and its log",
        )
    if pods and not waiting:
        yield CheckResult("pods", "ok", f"all {len(pods)} in {namespace} are ready")


def _ready(pod: _Pod) -> list[PodCondition]:
    return [one for one in pod.status.conditions or () if one.type == "Ready"]


async def configuration_results(at: CheckedCluster) -> list[CheckResult]:
    """Judge policy, queues and the scheduler's configuration, from ConfigMaps. Raises as `Api.request`."""
    maps = await listed(at.api, f"/api/v1/namespaces/{at.namespace}/configmaps", ConfigMap)
    found = {one.metadata.name: one.data or {} for one in maps}
    return list(judge_configuration(found, at.namespace, plugin=at.form.plugin))


def judge_configuration(
    found: Mapping[str, Mapping[str, str]], namespace: str, *, plugin: bool
) -> Iterator[CheckResult]:
    """Judge what ConfigMaps hold, by their names. Pure."""
    for name, kind in _CONFIGMAPS.items():
        if name in found:
            yield from _configuration(name, found[name], kind, namespace)
        elif kind == "policy":
            yield NO_POLICY
    yield _brake(found.get(BRAKE))
    if not plugin:
        return
    profiles = [
        result
        for name, data in found.items()
        for key, document in check_scheduler.configurations(data)
        for result in check_scheduler.judge(f"ConfigMap {name}/{key}", document)
    ]
    yield from profiles
    if not profiles:
        yield CheckResult(
            check_scheduler.NAME,
            "unknown",
            f"no ConfigMap in {namespace} holds a KubeSchedulerConfiguration",
            "where it is a file of the control plane, compare it with docs/install.md",
        )


def not_stored(found: Sequence[CheckResult]) -> list[str]:
    """Return which of policy and queues no ConfigMap holds; none where that could not be looked at. Pure."""
    names = {one.name for one in found if one != NO_POLICY}
    return [] if "configuration" in names else [kind for kind in _CONFIGMAPS.values() if kind not in names]


def _brake(data: Mapping[str, str] | None) -> CheckResult:
    if data is None:
        return CheckResult("brake", "ok", "not set")
    brake = parse_brake(data)
    return CheckResult(
        "brake",
        "warning",
        f"{brake.describe()}; nothing is evicted where it holds",
        "`makeway mode --release` releases it",
    )


def _configuration(name: str, data: Mapping[str, str], kind: str, namespace: str) -> Iterator[CheckResult]:
    key = next(key for key, known in KEYS.items() if known == kind)
    if key not in data:
        remedy = f"put it under the key {key}"
        yield CheckResult(kind, "wrong", f"ConfigMap {name} has no key {key}", remedy)
        return
    findings = lint(data[key], f"{name}/{key}")
    problems = [problem for finding in findings for problem in finding.problems]
    if problems:
        told = problems[0].describe(f"{name}/{key}")
        show = f"kubectl get cm -n {namespace} {name} -o yaml"
        remedy = f"the last good one is effective; see `{show} | makeway policy lint -`"
        yield CheckResult(kind, "wrong", f"refused: {told}{and_others(problems)}", remedy)
        return
    accepted = f"accepted: {findings[0].revision}"
    warnings = [warning for finding in findings for warning in finding.warnings]
    if warnings:
        remedy = f"`kubectl get cm -n {namespace} {name} -o yaml | makeway policy lint -` shows all"
        yield CheckResult(kind, "warning", f"{accepted}; {'; '.join(warnings)}", remedy)
        return
    yield CheckResult(kind, "ok", accepted)


async def admission_result(at: CheckedCluster) -> CheckResult:
    """Look at the policy that bounds the evictor's deletes, its binding, and the ConfigMap that it reads.

    Raises as `Api.request`.
    """
    name, remedy = "admission policies", "helm upgrade with admissionPolicies.enabled=true"
    if await read_object(at.api, f"{_GROUP}/validatingadmissionpolicies/{_DELETE_POLICY}") is None:
        detail = "none: whoever has the evictor's token may delete any pod"
        return CheckResult(name, "warning", detail, f"{remedy}, on Kubernetes 1.30 or newer")
    binding = await read_object(at.api, f"{_GROUP}/validatingadmissionpolicybindings/{_DELETE_POLICY}")
    if binding is None or "Deny" not in msgspec.json.decode(binding)["spec"].get("validationActions", ()):
        return CheckResult(name, "wrong", f"{_DELETE_POLICY} is not bound with action Deny", remedy)
    if await read_object(at.api, f"/api/v1/namespaces/{at.namespace}/configmaps/{_ADMISSION}") is None:
        detail = f"ConfigMap {at.namespace}/{_ADMISSION} is missing: the API server refuses every delete"
        return CheckResult(name, "wrong", detail, remedy)
    return CheckResult(name, "ok", "the API server holds evictor and scheduler to them")


async def secrets_results(at: CheckedCluster) -> Sequence[CheckResult]:
    """Look at what is noted on Secrets, not at what they hold; nothing where none was made in the cluster.

    Raises as `Api.request`.
    """
    found = await listed(at.api, f"/api/v1/namespaces/{at.namespace}/secrets", Bare, accept=METADATA_LIST)
    return judge_secrets([one.metadata for one in found])


def judge_secrets(found: Sequence[Metadata]) -> Sequence[CheckResult]:
    """Say how many Secrets were made, which were made again, which cannot be read. Pure."""
    made = [one for one in found if (one.labels or {}).get(MANAGED_BY_LABEL) == MANAGED_BY]
    if unreadable := _noted(found, UNREADABLE):
        remedy = "write it anew, or delete it: makeway streams --keep makes it again"
        return (CheckResult("secrets", "wrong", f"unreadable: {unreadable}", remedy),)
    if not made:
        return ()
    again = _noted(found, MADE_AGAIN)
    lost = f"; lost and made again: {again}" if again else ""
    return (CheckResult("secrets", "ok", f"{len(made)} made in the cluster{lost}"),)


def _noted(found: Sequence[Metadata], annotation: str) -> str:
    """Name the Secrets that have an annotation, and what it says."""
    noted = [(one.name, text) for one in found if (text := (one.annotations or {}).get(annotation))]
    return ", ".join(f"{name} ({text})" for name, text in sorted(noted))
