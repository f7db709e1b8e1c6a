"""What the components' own answers say: who is there, which versions, in step with the planner. Pure.

And what becomes of pods that there is no plan for, in mode enforce.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from makeway.bus.component_status import ComponentStatus
from makeway.bus.control import Unplanned
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.form import PARTS

_WITHOUT: Final = {
    "planner": "nothing is planned; pods wait or preempt as the profile and the policy's whenUnplanned say",
    "evictor": "orders wait and expire; no pod is evicted",
    "scheduler": "no scheduler with MakeWay is connected to this NATS",
    "nominator": "no nominator asks for plans for pods whose class is opted in; they wait",
    "shadow": "plans are not verified, and pods that only filters can judge wait",
}
_WITHOUT_PLUGIN: Final = {
    "planner": "nothing is planned; kube-scheduler preempts by itself, and pods of opted-in classes wait"
}
"""The same where no scheduler asks for plans."""
_START: Final = "see why: `kubectl -n {namespace} get pods`"
_START_SCHEDULER: Final = "see whether it runs, and natsURL among the MakeWay arguments of its profile"

_WITHOUT_A_PLAN: Final = "scheduler without a plan"
_ACTS: Final = "kube-scheduler's own preemption acts, where the profile has it"

_SIGNERS: Final = ("planner", "evictor")
"""The parts that have private keys."""
_FAILED: Final = "messages failed: "
_KEYS: Final = "see docs/operating.md, keys of signatures"


def judge(
    statuses: Sequence[ComponentStatus],
    *,
    version: str,
    cluster_uid: str,
    namespace: str,
    parts: Collection[str] = PARTS["plugin"],
) -> Iterator[CheckResult]:
    """Judge the answers that came.

    `version`: of this command; `cluster_uid`: of the cluster it talks to; `parts`: those that there must be.
    """
    for component in _WITHOUT:
        there = [one for one in statuses if one.component == component]
        if there or component in parts:
            without = _WITHOUT if "scheduler" in parts else _WITHOUT | _WITHOUT_PLUGIN
            yield from _presence(component, there, namespace, without[component])
        for one in there:
            yield from _own(one, cluster_uid)
    yield from _leading([one for one in statuses if one.component == "planner"])
    yield from _versions(statuses, version)
    # A shadow goes by no mode, and signs nothing.
    deciding = [one for one in statuses if one.component != "shadow"]
    yield from _in_step(deciding)
    yield from _caps([one for one in statuses if one.caps])
    yield from _breakers([one for one in statuses if one.component == "evictor"])
    yield from _loops([one for one in statuses if one.component == "planner" and one.leading])
    yield from _signatures(deciding)


def _presence(
    component: str, there: Sequence[ComponentStatus], namespace: str, without: str
) -> Iterator[CheckResult]:
    if not there:
        start = _START_SCHEDULER if component == "scheduler" else _START
        remedy = start.format(namespace=namespace)
        yield CheckResult(component, "wrong", f"none answers: {without}", remedy)
        return
    names = ", ".join(one.identity for one in there)
    yield CheckResult(component, "ok", f"{len(there)} running: {names}")


def _own(one: ComponentStatus, cluster_uid: str) -> Iterator[CheckResult]:
    name = f"{one.component} {one.identity}"
    if one.trouble:
        remedy = (
            _KEYS
            if any(part in one.trouble for part in _of_keys(one))
            else f"see its log, and docs/operating.md under {one.component}"
        )
        yield CheckResult(name, "wrong", one.trouble, remedy)
    if one.cluster_uid and cluster_uid and one.cluster_uid != cluster_uid:
        yield CheckResult(
            name,
            "wrong",
            f"it belongs to another cluster ({one.cluster_uid})",
            "clusters that share a NATS need a subject prefix each: subjectPrefix of the chart",
        )


def _caps(evictors: Sequence[ComponentStatus]) -> Iterator[CheckResult]:
    """How much of the policy's caps on evictions is used; where orders wait for them, that is told first."""
    for one in evictors:
        waits = "; orders that wait" in one.caps
        yield CheckResult(
            f"caps of {one.identity}",
            "warning" if waits else "ok",
            one.caps,
            "what is it that evicts so much: makeway history; the caps are `limits` of the policy"
            if waits
            else "",
        )


def _breakers(evictors: Sequence[ComponentStatus]) -> Iterator[CheckResult]:
    """Whether the breaker of an evictor is open, and for what."""
    remedy = "find the cause by docs/runbooks/MakewayBreakerOpen.md, then: `makeway breaker reset`"
    opened = [one for one in evictors if one.breaker]
    for one in opened:
        yield CheckResult(f"breaker of {one.identity}", "wrong", one.breaker, remedy)
    if evictors and not opened:
        yield CheckResult("breaker", "ok", "closed in every evictor")


def _loops(planners: Sequence[ComponentStatus]) -> Iterator[CheckResult]:
    """Whether owners' pods are preempted for one another's again and again."""
    found = [one.loops for one in planners if one.loops]
    for loops in found:
        yield CheckResult("preemption loops", "warning", loops, "see docs/runbooks/MakewayPreemptionLoop.md")
    if planners and not found:
        yield CheckResult("preemption loops", "ok", "none in the last ten minutes")


def _signatures(statuses: Sequence[ComponentStatus]) -> Iterator[CheckResult]:
    """Whether all parts sign and verify alike, and whether what they read does verify.

    What a part names as its trouble is a finding of its own.
    """
    modes = {one.identity: one.signatures.partition(";")[0] or "off" for one in statuses}
    used = sorted(set(modes.values()))
    if len(used) > 1:
        told = ", ".join(f"{identity} {mode}" for identity, mode in modes.items())
        remedy = (
            "set signatures.mode of the chart, or --signatures, to one value; unsigned messages are refused"
        )
        yield CheckResult("signatures", "wrong" if "require" in used else "warning", told, remedy)
    elif used:
        yield CheckResult("signatures", "ok", f"{used[0]} in every part")
    for one in statuses:
        parts = one.signatures.split("; ")
        about = [part for part in parts if part.startswith(_FAILED) and part != f"{_FAILED}0"]
        about += [part for part in _of_keys(one) if part not in one.trouble]
        about += [part for part in parts if part == "signs nothing" and one.component in _SIGNERS]
        if about:
            yield CheckResult(f"signatures of {one.identity}", "warning", "; ".join(about), _KEYS)


def _of_keys(one: ComponentStatus) -> list[str]:
    """Return what a part says to be wrong with its keys."""
    _, *parts = one.signatures.split("; ")
    return [part for part in parts if not part.startswith(("signs ", _FAILED))]


def _leading(planners: Sequence[ComponentStatus]) -> Iterator[CheckResult]:
    if not planners:
        return
    leaders = [one for one in planners if one.leading]
    if len(leaders) == 1:
        warm = f", {len(planners) - 1} stand by" if len(planners) > 1 else ""
        yield CheckResult(
            "planner in sync", "ok", f"{leaders[0].identity} leads and has read the cluster{warm}"
        )
    elif not leaders:
        remedy = "wait for the Lease to run out (6 s), then see the planners' logs for lease_"
        yield CheckResult(
            "planner in sync", "wrong", "no planner leads, or none has read the cluster yet", remedy
        )
    else:
        names = ", ".join(one.identity for one in leaders)
        remedy = "run them with --leader-elect; for the seconds in which a leader changes this is harmless"
        yield CheckResult("planner in sync", "warning", f"{len(leaders)} lead: {names}", remedy)


def _versions(statuses: Sequence[ComponentStatus], version: str) -> Iterator[CheckResult]:
    if not statuses:
        return
    others = sorted({f"{one.component} {one.version}" for one in statuses if one.version != version})
    if not others:
        yield CheckResult("versions", "ok", f"every component and this command are {version}")
        return
    remedy = "upgrade planners and evictors first, then schedulers, and use the command of their version"
    yield CheckResult("versions", "warning", f"this command is {version}; {', '.join(others)}", remedy)


def _in_step(statuses: Sequence[ComponentStatus]) -> Iterator[CheckResult]:
    """Whether all go by what the leading planner says."""
    leader = next((one for one in statuses if one.component == "planner" and one.leading), None)
    if leader is None:
        return
    behind = [one for one in statuses if one.component != "planner" and one.revision != leader.revision]
    if behind:
        names = ", ".join(f"{one.component} {one.identity} at {one.revision}" for one in behind)
        yield CheckResult(
            "control state",
            "wrong",
            f"the planner says revision {leader.revision}; {names}",
            "they have not heard of it yet, or cannot read it; see their logs",
        )
        return
    modes = "".join(f", {namespace}: {mode}" for namespace, mode in leader.namespace_modes.items())
    told = f"all go by revision {leader.revision}: mode {leader.mode}{modes}"
    if leader.mode == "off" and leader.brake != "everywhere":
        remedy = "`makeway mode observe` compares and evicts no pod; `makeway mode enforce` begins"
        yield CheckResult(
            "control state", "warning", f"{told}: nothing is planned, no pod is evicted", remedy
        )
    else:
        yield CheckResult("control state", "ok", told)
    held = [one for one in statuses if one.own_mode != "enforce" and one.mode != leader.mode]
    for one in held:
        yield CheckResult(
            f"{one.component} {one.identity}",
            "warning",
            f"its own argument holds it to mode {one.own_mode}",
            "take --mode, or mode in the profile's MakeWay arguments, away to follow the policy alone",
        )


def deleted(statuses: Sequence[ComponentStatus], not_stored: Iterable[str]) -> Iterator[CheckResult]:
    """Say which policy and queues components go by that are stored no more. Pure."""
    for kind in not_stored:
        kept = {revision for one in statuses if (revision := getattr(one, f"{kind}_revision"))}
        if kept:
            told = f"deleted; {', '.join(sorted(kept))} stays effective, and whoever starts waits"
            remedy = "apply it again, or an empty one to be without"
            yield CheckResult(f"{kind} ConfigMap makeway-{kind}", "wrong", told, remedy)


def unplanned_result(told: Unplanned) -> CheckResult:
    """Say what restricts preemption, and for whom it acts without a plan all the same."""
    if told.protecting:
        names = ", ".join((*told.protecting, *told.restricting))
        return CheckResult(_WITHOUT_A_PLAN, "ok", f"nothing is evicted, since pods are protected: {names}")
    if not told.restricting:
        return CheckResult(_WITHOUT_A_PLAN, "ok", f"nothing restricts preemption: {_ACTS}")
    acting = [name for name in ("default", "system") if getattr(told, name) == "fallback"]
    names = ", ".join(told.restricting)
    if len(acting) == 1:
        rest = f"pods wait, but {_ACTS} for those of whenUnplanned.{acting[0]}"
    else:
        rest = f"{_ACTS}, by whenUnplanned" if acting else "pods wait"
    return CheckResult(_WITHOUT_A_PLAN, "ok", f"preemption is restricted by {names}: {rest}")
