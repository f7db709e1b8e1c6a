"""The question about a pod, and who answers it: the shadow scheduler where there is one, else the planner."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from makeway.bus import codec, tracing
from makeway.bus.errors import BusError, Malformed
from makeway.bus.ids import request_id
from makeway.bus.messages import API_VERSION
from makeway.bus.plan import MemberClass, NodeSelection, PlanReply, PlanRequest, Profile
from makeway.core.k8s.unmodelled import ONLY_FILTERS_KNOW, unmodelled
from makeway.nominator import decide
from makeway.nominator.attempts import LONGEST_PAUSE
from makeway.nominator.cluster import StoredPod
from makeway.nominator.parts import NominatorParts
from makeway.nominator.shadow import VERIFIES_SECONDS
from makeway.nominator.steady import steady_now

PLAN_SECONDS: Final = 2.0
"""How long a plan may take. No scheduling cycle waits here."""

ON_THE_WAY_SECONDS: Final = 0.5
"""How much longer an answer is waited for: that there was no plan in time is an answer too."""

CANDIDATES: Final = 16
"""Nodes that a plan may name, as many as the plugin asks for."""

LONGEST_SILENCE_SECONDS: Final = 10.0
"""How long a planner that does not answer is left alone at the most."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class NoAnswer:
    """Why there is no plan and no refusal of one. `reason`, `message`: as a refusal has them; may be empty.

    `longest`: how long its pod waits at the most.
    """

    reason: str = ""
    message: str = ""
    longest: timedelta = LONGEST_PAUSE


class Questions:
    """Those of one nominator, while it leads."""

    def __init__(self, parts: NominatorParts) -> None:
        self._parts = parts
        self._quiet_until = 0.0
        self._silences = 0

    def quiet(self) -> bool:
        """Report whether the planner is left alone for a moment, as it did not answer."""
        return time.monotonic() < self._quiet_until

    async def ask(self, stored: StoredPod, mode: str) -> PlanReply | NoAnswer:
        """Ask about a pod as it was read."""
        try:
            what = unmodelled(stored.raw)
            if what and self._parts.shadow is None:
                return self._only_filters(what)
            request = self._request(stored, mode)
        except msgspec.DecodeError as error:
            self._parts.metrics.plans.labels("unreadable").inc()
            return NoAnswer("Unreadable", str(error))
        data = codec.encode(request)
        if len(data) > codec.MAX_BYTES:
            self._parts.metrics.plans.labels("unreadable").inc()
            _log.warning("plan_request_too_large", request_id=request.request_id, bytes=len(data))
            return NoAnswer("TooLarge", f"the question is {len(data)} bytes, more than NATS carries")
        verified = await self._ask_shadow(request)
        if verified is not None:
            return verified
        if what:
            return self._only_filters(f"{what}, and no shadow scheduler has verified a plan")
        return await self._ask_planner(data, request.request_id)

    def _request(self, stored: StoredPod, mode: str) -> PlanRequest:
        """Write the question that the plugin would ask; without nodes, as no filter was asked."""
        meta = stored.pod.metadata
        nominated = (one for one in self._parts.pods.nominated() if one.uid != meta.uid)
        pod = decide.as_preemptor(stored.raw, for_filters=self._parts.shadow is not None)
        return PlanRequest(
            api_version=API_VERSION,
            request_id=request_id(steady_now()),
            cluster_uid=self._parts.writer.cluster_uid,
            mode="observe" if mode == "observe" else "enforce",
            timeout_milliseconds=int(PLAN_SECONDS * 1000),
            max_candidates=CANDIDATES,
            profile=Profile(name=stored.pod.spec.scheduler_name or "default-scheduler"),
            classes=(MemberClass(pod=msgspec.Raw(pod), count=1, nodes=NodeSelection()),),
            nominations=decide.nominations(nominated),
            outcomes_read=self._parts.streams.outcomes_read,
        )

    def _only_filters(self, what: str) -> NoAnswer:
        self._parts.metrics.plans.labels("unmodelled").inc()
        return NoAnswer(ONLY_FILTERS_KNOW, f"only the scheduler's own filters can judge {what}")

    async def _ask_shadow(self, request: PlanRequest) -> PlanReply | None:
        """Return the shadow scheduler's answer; None where there is no shadow, or it does not answer."""
        if self._parts.shadow is None:
            return None
        # The shadow gives the planner what it leaves it of that.
        asked = msgspec.structs.replace(request, timeout_milliseconds=int((VERIFIES_SECONDS - 1) * 1000))
        return await self._parts.shadow.ask(codec.encode(asked), request.request_id)

    async def _ask_planner(self, data: bytes, asked: str) -> PlanReply | NoAnswer:
        """Return the planner's answer; where there is none all wait a moment, and the others come first then.

        It may be this one pod that ends the planner, or takes it too long.
        """
        seconds = PLAN_SECONDS + ON_THE_WAY_SECONDS
        try:
            with tracing.span("request", request_id=asked):
                reply = codec.decode(PlanReply, await self._parts.bus.request_plan(data, seconds))
        except (BusError, Malformed) as error:
            label = "unreadable" if isinstance(error, Malformed) else "unreachable"
            self._parts.metrics.plans.labels(label).inc()
            pause = min(2.0**self._silences, LONGEST_SILENCE_SECONDS)
            self._quiet_until, self._silences = time.monotonic() + pause, min(self._silences + 1, 16)
            _log.warning("plan_request_failed", request_id=asked, reason=str(error))
            return NoAnswer(longest=timedelta(seconds=LONGEST_SILENCE_SECONDS))
        self._silences = 0
        return reply if reply.request_id == asked else NoAnswer()
