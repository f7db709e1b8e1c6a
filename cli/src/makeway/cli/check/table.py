"""What `makeway check` looks at in Kubernetes: what, how, and whom to ask where the user may not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from makeway.cli.check.admission import admission_result
from makeway.cli.check.cluster import configuration_results, pods_results
from makeway.cli.check.keys import keys_result
from makeway.cli.check.pod_groups import pod_group_results
from makeway.cli.check.priority_classes import class_result
from makeway.cli.check.result import CheckResult
from makeway.cli.check.rights import own_result, rights_results
from makeway.cli.connect.form import Form
from makeway.runtime.kube import Api, ApiError


@dataclass(frozen=True)
class CheckedCluster:
    """Where to look. form: what is installed. replaced: makeway-scheduler runs as the cluster's own."""

    api: Api
    namespace: str
    form: Form
    replaced: bool


@dataclass(frozen=True)
class Look:
    """One thing to look at. remedy: where the user may not. evicts: only where something evicts pods."""

    what: str
    how: Callable[[CheckedCluster], Awaitable[Sequence[CheckResult] | CheckResult]]
    remedy: str
    evicts: bool = False

    async def results(self, at: CheckedCluster) -> Sequence[CheckResult]:
        """Look; what the user may not see is not known. Raises ApiError, ApiUnavailable."""
        if self.evicts and not at.form.evicts:
            return ()
        try:
            found = await self.how(at)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return (CheckResult(self.what, "unknown", error.message, self.remedy),)
        return (found,) if isinstance(found, CheckResult) else found


LOOKS: Final = (
    Look("your rights", lambda at: own_result(at.api, at.namespace), "ask an administrator"),
    Look(
        "rights",
        lambda at: rights_results(at.api, at.namespace, at.form, replaced=at.replaced),
        "ask an administrator, who may create subjectaccessreviews",
    ),
    Look(
        "pod groups",
        lambda at: pod_group_results(at.api, at.namespace, at.form, replaced=at.replaced),
        "ask whoever may read the discovery of scheduling.k8s.io",
    ),
    Look("pods", lambda at: pods_results(at.api, at.namespace), "ask whoever may list pods there"),
    Look(
        "configuration",
        lambda at: configuration_results(at.api, at.namespace, plugin=at.form.plugin),
        "ask whoever may list ConfigMaps there",
    ),
    Look(
        "priority classes",
        lambda at: class_result(at.api, nominator="nominator" in at.form.parts),
        "ask whoever may list PriorityClasses",
    ),
    Look(
        "signing keys",
        lambda at: keys_result(at.api, at.namespace),
        "ask whoever may read makeway's Secrets",
    ),
    Look(
        "admission policies",
        lambda at: admission_result(at.api, at.namespace),
        "ask whoever may read admission policies",
        evicts=True,
    ),
)
