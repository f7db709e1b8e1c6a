"""What `makeway check` says of lost work: where it counts, of how many pods the annotation cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.configmaps import read_map
from makeway.cli.connect.objects import METADATA_LIST, Bare, MoreError, paged
from makeway.core.config.document import ConfigError
from makeway.core.policy.document import KEY, parse_policy
from makeway.core.policy.lost_work import CHECKPOINTED_AT, NEVER_SAVED, checkpointed_at
from makeway.core.text import counted, first_few
from makeway.runtime.pages import UnreadableObject

NAME: Final = "lost work"

MOST_PODS: Final = 20_000
"""Pods that are looked at: some 40 MB of metadata."""

_SHOWN: Final = 5
"""Pods that are named."""


async def lost_work_result(at: CheckedCluster) -> Sequence[CheckResult]:
    """Read what pods say of their saves; nothing where no policy asks for it. Raises as `Api.request`."""
    stored = await read_map(at.api, at.namespace, "makeway-policy")
    try:
        policy = parse_policy(stored.data.get(KEY, ""), KEY)
    except ConfigError:
        return ()
    if policy.lost_work.rank == "off" and "lostWork" not in policy.groups.objective:
        return ()

    looked_at, saying, more = 0, 0, False
    unreadable: list[str] = []
    try:
        async for pod in paged(at.api, "/api/v1/pods", Bare, MOST_PODS, accept=METADATA_LIST):
            looked_at += 1
            if isinstance(pod, UnreadableObject) or CHECKPOINTED_AT not in (pod.metadata.annotations or {}):
                continue
            saying += 1
            if checkpointed_at(pod.metadata) == NEVER_SAVED:
                unreadable.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    except MoreError:
        more = True
    return (judge(looked_at, saying, unreadable, more=more),)


def judge(looked_at: int, saying: int, unreadable: Sequence[str], *, more: bool) -> CheckResult:
    """Say whose annotation counts as absent. `saying`: how many pods have it. `more`: pods are left."""
    of = f"the first {looked_at} pods" if more else counted(looked_at, "pod")
    text = f"{saying} of {of} say when they saved"
    if not unreadable:
        return CheckResult(NAME, "ok", text)
    told = f"{text}; of {len(unreadable)} {CHECKPOINTED_AT} cannot be read, and counts as absent: "
    remedy = "write it as 2026-11-27T20:15:00Z"
    return CheckResult(NAME, "warning", told + first_few(unreadable, _SHOWN), remedy)
