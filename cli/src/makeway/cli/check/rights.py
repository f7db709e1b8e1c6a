"""What the service accounts may do, against what they need: asked of the API server, which alone knows.

The table says the same as charts/makeway/rbac, which a test compares; for the scheduler, only what shows that
its roles are there at all.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from makeway.cli.check.place import KUBE_SCHEDULER, CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import read_object
from makeway.cli.connect.rights import may
from makeway.core.policy.brake import CONFIGMAP
from makeway.core.policy.breaker import CONFIGMAP as BREAKER
from makeway.core.policy.toleration_record import CONFIGMAP as TOLERATIONS
from makeway.runtime.kube import Api, ApiError

MAKEWAY: Final = "makeway's own namespace"
"""Stands for it in the table."""

KUBE_LEASE: Final = "kube-scheduler"
_LEASE: Final = "makeway-scheduler"
_NOMINATOR: Final = "makeway-nominator"
_AT_ONCE: Final = 16


@dataclass(frozen=True)
class Right:
    """One thing that an account may do. `namespace` empty: everywhere; `name` empty: whatever its name.

    `resource`: with `/subresource`. `wanted` False: it must not be allowed.
    """

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    wanted: bool = True

    def __str__(self) -> str:
        """Return it as `kubectl auth can-i` takes it."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f"/{self.name}" if self.name else ""
        return f"{self.verb} {what}{name}"


def _rights(
    account: str, group: str, resource: str, verbs: str, *, namespace: str = "", name: str = ""
) -> list[Right]:
    return [Right(account, verb, group, resource, namespace, name) for verb in verbs.split()]


_SCHEDULING: Final = "scheduling.k8s.io"
_LEASES: Final = ("coordination.k8s.io", "leases")
_EVENTS: Final = ("events.k8s.io", "events")
_POLICY: Final = "makeway-policy"
_KEYS: Final = "makeway-keys"

RIGHTS: Final = (
    *_rights("planner", "", "nodes", "list watch"),
    *_rights("planner", "", "pods", "list watch"),
    *_rights("planner", "", "namespaces", "list watch"),
    *_rights("planner", "", "namespaces", "get", name="kube-system"),
    *_rights("planner", _SCHEDULING, "priorityclasses", "list watch"),
    *_rights("planner", "", "persistentvolumeclaims", "list watch"),
    *_rights("planner", "", "persistentvolumes", "list watch"),
    *_rights("planner", "storage.k8s.io", "storageclasses", "list watch"),
    *_rights("planner", "resource.k8s.io", "deviceclasses", "list watch"),
    *_rights("planner", "apps", "daemonsets", "list watch"),
    *_rights("planner", "policy", "poddisruptionbudgets", "list watch"),
    *_rights("planner", *_EVENTS, "create"),
    *_rights("planner", *_LEASES, "create", namespace=MAKEWAY),
    *_rights("planner", *_LEASES, "get update", namespace=MAKEWAY, name="makeway-planner"),
    *_rights("planner", "", "configmaps", "list watch", namespace=MAKEWAY, name=_POLICY),
    *_rights("planner", "", "configmaps", "list watch", namespace=MAKEWAY, name="makeway-queues"),
    *_rights("planner", "", "configmaps", "get list watch", namespace=MAKEWAY, name=CONFIGMAP),
    *_rights("planner", "", "configmaps", "list watch patch", namespace=MAKEWAY, name=TOLERATIONS),
    *_rights("planner", "", "configmaps", "get", namespace=MAKEWAY, name=_KEYS),
    *_rights("evictor", "", "pods", "get delete"),
    *_rights("evictor", "", "pods/status", "patch"),
    *_rights("evictor", "", "pods/eviction", "create"),
    *_rights("evictor", "", "nodes", "get"),
    *_rights("evictor", "apps", "daemonsets", "get"),
    *_rights("evictor", _SCHEDULING, "priorityclasses", "get"),
    *_rights("evictor", "", "namespaces", "get", name="kube-system"),
    *_rights("evictor", *_EVENTS, "create"),
    *_rights("evictor", "", "configmaps", "list watch", namespace=MAKEWAY, name=_POLICY),
    *_rights("evictor", "", "configmaps", "list watch", namespace=MAKEWAY, name="makeway-queues"),
    *_rights("evictor", "", "configmaps", "get list watch", namespace=MAKEWAY, name=CONFIGMAP),
    *_rights("evictor", "", "configmaps", "get", namespace=MAKEWAY, name=TOLERATIONS),
    *_rights("evictor", "", "configmaps", "get", namespace=MAKEWAY, name=_KEYS),
    *_rights("evictor", "", "configmaps", "get patch", namespace=MAKEWAY, name=BREAKER),
    *_rights("evictor", *_LEASES, "get", namespace="kube-system", name=_LEASE),
    *_rights("evictor", *_LEASES, "get", namespace=MAKEWAY, name="makeway-planner"),
    *_rights("nominator", "", "pods", "get list watch"),
    *_rights("nominator", "", "pods/status", "patch"),
    *_rights("nominator", "", "nodes", "get"),
    *_rights("nominator", _SCHEDULING, "priorityclasses", "list watch"),
    *_rights("nominator", "", "namespaces", "get", name="kube-system"),
    *_rights("nominator", *_EVENTS, "create"),
    *_rights("nominator", "", "configmaps", "get list watch", namespace=MAKEWAY, name=CONFIGMAP),
    *_rights("nominator", "", "configmaps", "get", namespace=MAKEWAY, name=_KEYS),
    *_rights("nominator", *_LEASES, "create", namespace=MAKEWAY),
    *_rights("nominator", *_LEASES, "get update", namespace=MAKEWAY, name=_NOMINATOR),
    *_rights("evictor", *_LEASES, "get", namespace=MAKEWAY, name=_NOMINATOR),
    *_rights("scheduler", "", "pods/status", "patch"),
    *_rights("scheduler", "", "pods/binding", "create"),
    *_rights("scheduler", _SCHEDULING, "priorityclasses", "list watch"),
    *_rights("scheduler", "", "configmaps", "get list watch", namespace=MAKEWAY, name="makeway-queues"),
    *_rights("scheduler", "", "configmaps", "list watch", namespace=MAKEWAY, name=_POLICY),
    *_rights("scheduler", *_LEASES, "get", namespace=MAKEWAY, name="makeway-planner"),
    *_rights("scheduler", "", "configmaps", "list watch", namespace=MAKEWAY, name=CONFIGMAP),
    *_rights("scheduler", "", "configmaps", "list watch", namespace=MAKEWAY, name=BREAKER),
    *_rights("scheduler", "", "configmaps", "get", namespace=MAKEWAY, name=_KEYS),
    Right("planner", "delete", "", "pods", wanted=False),
    Right("planner", "create", "", "pods/eviction", wanted=False),
)


_FENCES: Final = {_LEASE: "scheduler", _NOMINATOR: "nominator"}
"""Leases that evictors read only where their holder is installed."""

_OWN: Final = {
    "find the installation": Right("", "get", "", "configmaps", MAKEWAY, "makeway-installation"),
    "change the mode": Right("", "patch", "", "configmaps", MAKEWAY, _POLICY),
    "set the brake": Right("", "patch", "", "configmaps", MAKEWAY, CONFIGMAP),
    "reset the breaker": Right("", "patch", "", "configmaps", MAKEWAY, BREAKER),
    "simulate on the live cluster": Right("", "list", "", "pods"),
}
"""What commands do with the rights of whoever runs them."""


async def replaces_the_scheduler(api: Api, namespace: str, accounts: Mapping[str, str]) -> bool:
    """Report whether makeway-scheduler runs as the cluster's own: it has no service account then.

    Raises:
        ApiUnavailable: the API server did not answer.
    """
    name = accounts.get("scheduler", "makeway-scheduler")
    try:
        return await read_object(api, f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}") is None
    except ApiError:
        return False


async def rights_results(at: CheckedCluster) -> list[CheckResult]:
    """Ask about every right of the parts that there are.

    Raises:
        ApiError, ApiUnavailable: the API server did not answer.
    """
    parts = at.form.parts
    asked = [
        replace(right, name=KUBE_LEASE) if at.replaced and right.name == _LEASE else right
        for right in RIGHTS
        if right.account in parts and _FENCES.get(right.name, right.account) in parts
    ]
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(right: Right) -> bool:
        async with limit:
            return await _allowed(at, right, at.user(right.account))

    answers = await asyncio.gather(*(ask(right) for right in asked))
    return list(judge(dict(zip(asked, answers, strict=True)), at.user))


async def allowed_by_all(at: CheckedCluster, rights: Iterable[Right]) -> list[Right] | None:
    """Return those of some rights that are missing; None where that may not be asked.

    Raises as `rights_results`.
    """
    try:
        return [right for right in rights if not await _allowed(at, right, at.user(right.account))]
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return None


def judge(answers: dict[Right, bool], user_of: Callable[[str], str]) -> Iterator[CheckResult]:
    """Return a result for each account. `user_of`: the user that it is."""
    by_account: dict[str, list[Right]] = defaultdict(list)
    for right in answers:
        by_account[right.account].append(right)
    for account, rights in by_account.items():
        name = f"rights of {account}"
        user = user_of(account)
        missing = [right for right in rights if right.wanted and not answers[right]]
        beyond = [right for right in rights if not right.wanted and answers[right]]
        if missing:
            told = ", ".join(map(str, missing))
            remedy = f"apply charts/makeway/rbac/{account}.yaml, or upgrade the chart"
            yield CheckResult(name, "wrong", f"{user} may not: {told}", remedy)
        elif beyond:
            told = ", ".join(map(str, beyond))
            yield CheckResult(
                name, "warning", f"{user} may: {told}", "take it away; only evictors delete pods"
            )
        else:
            yield CheckResult(name, "ok", f"{user} may do all that it needs")


async def own_result(at: CheckedCluster) -> CheckResult:
    """Say what whoever runs this may do: every user may ask that. Raises as `rights_results`."""
    answers = {what: await _allowed(at, right, "") for what, right in _OWN.items()}
    may = ", ".join(what for what, allowed in answers.items() if allowed)
    must_not = ", ".join(what for what, allowed in answers.items() if not allowed)
    parts = [f"you may {may}"] if may else []
    parts += [f"you may not {must_not}"] if must_not else []
    if not answers["find the installation"]:
        remedy = "ask an administrator; what a tenant may see is in docs/visibility.md"
        return CheckResult("your rights", "warning", "; ".join(parts), remedy)
    return CheckResult("your rights", "ok", "; ".join(parts))


async def _allowed(at: CheckedCluster, right: Right, user: str) -> bool:
    """Ask about a user, or, where that is empty, about ourselves."""
    resource, _, subresource = right.resource.partition("/")
    groups = ["system:authenticated"]
    if user != KUBE_SCHEDULER:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{at.namespace}"]
    return await may(
        at.api,
        user=user,
        groups=groups,
        verb=right.verb,
        group=right.group,
        resource=resource,
        subresource=subresource,
        namespace=at.namespace if right.namespace == MAKEWAY else right.namespace,
        name=right.name,
    )
