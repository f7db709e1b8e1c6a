"""What the service accounts may do, against what they need: asked of the API server, which alone knows.

What they need is what charts/makeway/rbac grants them: rights.json is generated from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from makeway.cli.check.place import KUBE_SCHEDULER, CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import asked_of_each, may
from makeway.core.policy.brake import CONFIGMAP
from makeway.core.policy.breaker import CONFIGMAP as BREAKER
from makeway.runtime.kube import Api, ApiError, read_object

MAKEWAY: Final = "makeway-system"
"""In place of makeway's own namespace in rights, as in the manifests that grant them."""

KUBE_LEASE: Final = "kube-scheduler"
_LEASE: Final = "makeway-scheduler"
_NOMINATOR: Final = "makeway-nominator"


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


_SCHEDULING: Final = "scheduling.k8s.io"
_POLICY: Final = "makeway-policy"


def _of_scheduler(
    group: str, resource: str, verbs: str, *, namespace: str = "", name: str = ""
) -> list[Right]:
    return [Right("scheduler", verb, group, resource, namespace, name) for verb in verbs.split()]


OTHERS: Final = (
    *_of_scheduler("", "pods/status", "patch"),
    *_of_scheduler("", "pods/binding", "create"),
    *_of_scheduler(_SCHEDULING, "priorityclasses", "list watch"),
    *_of_scheduler("", "configmaps", "list watch", namespace=MAKEWAY, name="makeway-queues"),
    *_of_scheduler("", "configmaps", "list watch", namespace=MAKEWAY, name=_POLICY),
    *_of_scheduler("coordination.k8s.io", "leases", "get", namespace=MAKEWAY, name="makeway-planner"),
    *_of_scheduler("", "configmaps", "list watch", namespace=MAKEWAY, name=CONFIGMAP),
    *_of_scheduler("", "configmaps", "list watch", namespace=MAKEWAY, name=BREAKER),
    *_of_scheduler("", "configmaps", "get", namespace=MAKEWAY, name="makeway-keys"),
    Right("planner", "delete", "", "pods", wanted=False),
    Right("planner", "create", "", "pods/eviction", wanted=False),
)
"""Of the scheduler what shows that its roles are there at all; and what planners must not do."""


def needed() -> tuple[Right, ...]:
    """Return every right that is asked about. Those of the other parts are generated from their manifests."""
    written = Path(__file__).with_name("rights.json").read_bytes()
    return (*msgspec.json.decode(written, type=tuple[Right, ...]), *OTHERS)


_FENCES: Final = {_LEASE: "scheduler", _NOMINATOR: "nominator"}
"""Leases that evictors read only where their holder is installed."""


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
        for right in needed()
        if right.account in parts and _FENCES.get(right.name, right.account) in parts
    ]
    answers = await asked_of_each(lambda right: _allowed(at, right, at.user(right.account)), asked)
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


async def _allowed(at: CheckedCluster, right: Right, user: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    groups = ["system:authenticated"]
    if user != KUBE_SCHEDULER:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{at.namespace}"]
    return await may(
        at.api,
        {"user": user, "groups": groups},
        verb=right.verb,
        group=right.group,
        resource=resource,
        subresource=subresource,
        namespace=at.namespace if right.namespace == MAKEWAY else right.namespace,
        name=right.name,
    )
