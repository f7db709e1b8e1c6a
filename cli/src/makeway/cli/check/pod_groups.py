"""What `makeway check` says of pod groups: which are served, who may read them, and what happens to gangs."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.check.rights import Right, allowed_by_all
from makeway.cli.connect.configmaps import read_map
from makeway.core.config.document import ConfigError
from makeway.core.k8s.pod_groups import GROUP, ONE_BY_ONE
from makeway.core.policy.document import KEY, Policy, parse_policy
from makeway.runtime.kube import Api, ApiError
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api

NAME: Final = "pod groups"
GROUP_RIGHTS: Final = (
    *(Right("planner", verb, GROUP, kind) for kind in (POD_GROUPS, COMPOSITES) for verb in ("list", "watch")),
    *(Right("evictor", "get", GROUP, kind) for kind in (POD_GROUPS, COMPOSITES)),
    *(Right("evictor", verb, "", "pods") for verb in ("list", "watch")),
)
"""What charts/makeway/rbac/pod-groups.yaml grants, which a test compares."""


async def pod_group_results(at: CheckedCluster) -> list[CheckResult]:
    """Judge what becomes of pods of groups; nothing where the cluster has none. Raises as `Api.request`."""
    served = await pod_group_api(at.api)
    if not served.version:
        return []
    missing = await allowed_by_all(at, [one for one in GROUP_RIGHTS if one.account in at.form.parts])
    return list(judge(served, await _policy(at.api, at.namespace), missing))


def judge(served: PodGroupApi, policy: Policy | None, missing: list[Right] | None) -> Iterator[CheckResult]:
    """Say what is wrong. `policy` None: it cannot be read. `missing` None: it cannot be asked."""
    text = f"{GROUP}/{served.version} is served; groups of mode all are evicted whole"
    if missing:
        told = ", ".join(f"{right.account}: {right}" for right in missing)
        remedy = "apply charts/makeway/rbac/pod-groups.yaml, or upgrade the chart"
        yield CheckResult(
            NAME, "wrong", f"{text}; pods of groups stay, since they may not be read: {told}", remedy
        )
    elif served.version == ONE_BY_ONE and policy is not None and policy.groups.preemptors == "upstream":
        yield CheckResult(
            NAME,
            "warning",
            f"{text}; kube-scheduler 1.36 preempts for the pods of a gang one by one, also where not enough "
            "of them can ever run, unless its gate WorkloadAwarePreemption is on",
            "groups.preemptors: hold in the policy evicts nothing for them",
        )
    else:
        yield CheckResult(NAME, "ok", text)


async def _policy(api: Api, namespace: str) -> Policy | None:
    try:
        stored = await read_map(api, namespace, "makeway-policy")
        return parse_policy(stored.data.get(KEY, ""), KEY) if stored.version else Policy()
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
    except ConfigError:
        pass
    return None
