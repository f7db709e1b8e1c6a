"""What `makeway check` looks at in Kubernetes and on NATS: what, how, and what to do where that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.cli.check import components
from makeway.cli.check.bus import answer_result, consumer_result, stream_results
from makeway.cli.check.clocks import Reading
from makeway.cli.check.cluster import (
    admission_result,
    configuration_results,
    pods_results,
    secrets_results,
)
from makeway.cli.check.keys import keys_result
from makeway.cli.check.minors import judge_schedulers
from makeway.cli.check.place import CheckedBus, CheckedCluster
from makeway.cli.check.pod_groups import pod_group_results
from makeway.cli.check.priority_classes import class_result
from makeway.cli.check.result import CheckResult
from makeway.cli.check.rights import rights_results
from makeway.cli.history.comparisons import comparisons, sentences, summed
from makeway.runtime.kube import ApiError
from makeway.runtime.process import version

_COMPARED: Final = timedelta(days=1)

_LISTEN_SECONDS: Final = 1.0
"""How long components have to answer; they do so within milliseconds where they run."""


At = TypeVar("At", CheckedCluster, CheckedBus)


@dataclass(frozen=True)
class Look(Generic[At]):
    """One thing to look at. remedy: where the user may not, or NATS does not answer.

    evicts: only where something evicts pods.
    """

    what: str
    how: Callable[[At], Awaitable[Sequence[CheckResult] | CheckResult]]
    remedy: str
    evicts: bool = False

    async def results(self, at: At) -> Sequence[CheckResult]:
        """Look; what the user may not see is not known. Raises ApiError, ApiUnavailable."""
        if self.evicts and not at.form.evicts:
            return ()
        try:
            found = await self.how(at)
        except BusError as error:
            told = "; ".join(filter(None, (str(error), at.denied)))
            return (CheckResult(self.what, "wrong", told, self.remedy),)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return (CheckResult(self.what, "unknown", error.message, self.remedy),)
        return (found,) if isinstance(found, CheckResult) else found


async def _answers(at: CheckedBus) -> Sequence[CheckResult]:
    """Ask all components how they are; where one observes, also what that has found. Raises BusError."""
    before = datetime.now(UTC)
    found = await at.bus.components.ask(_LISTEN_SECONDS)
    after = datetime.now(UTC)
    at.readings.extend(Reading(f"{one.component} {one.identity}", one.at, before, after) for one in found)
    results = list(
        components.judge(
            found,
            version=version(),
            cluster_uid=at.cluster_uid,
            namespace=at.namespace,
            parts=(*at.form.parts, *(("shadow",) if at.form.shadow else ())),
        )
    )
    results += judge_schedulers(found, at.minor)
    results += components.deleted(found, at.not_stored)
    if any("observe" in (one.mode, *one.namespace_modes.values()) for one in found):
        results.append(await _compared(at.bus))
    return results


async def _compared(bus: Bus) -> CheckResult:
    """What mode observe has found in the last day: news, and nothing that is wrong."""
    found = summed(await comparisons(bus, datetime.now(UTC) - _COMPARED))
    worse = found.results.get("worse", 0)
    remedy = "see `makeway history --compare --since 1d`" if worse else ""
    return CheckResult("observed in a day", "warning" if worse else "ok", "; ".join(sentences(found)), remedy)


async def _unplanned(at: CheckedBus) -> Sequence[CheckResult]:
    state, _ = await at.bus.control()
    if not at.form.plugin or state is None or state.unplanned is None:
        return ()
    return (components.unplanned_result(state.unplanned),)


LOOKS: Final[Sequence[Look[CheckedCluster]]] = (
    Look("rights", rights_results, "ask an administrator, who may create subjectaccessreviews"),
    Look("pod groups", pod_group_results, "ask whoever may read the discovery of scheduling.k8s.io"),
    Look("pods", pods_results, "ask whoever may list pods there"),
    Look("configuration", configuration_results, "ask whoever may list ConfigMaps there"),
    Look("priority classes", class_result, "ask whoever may list PriorityClasses"),
    Look("signing keys", keys_result, "ask whoever may read makeway's Secrets"),
    Look("secrets", secrets_results, "ask whoever may list Secrets there"),
    Look("admission policies", admission_result, "ask whoever may read admission policies", evicts=True),
)

_READ: Final = "see that JetStream runs, and that this user may read the streams"

NATS_LOOKS: Final[Sequence[Look[CheckedBus]]] = (
    Look("NATS", answer_result, "see that NATS runs"),
    Look("streams", stream_results, _READ),
    Look("evictors' consumer", consumer_result, _READ, evicts=True),
    Look("control state", _unplanned, _READ),
    Look("components", _answers, "see that this user may ask the components, subject STATUS of makeway"),
)
