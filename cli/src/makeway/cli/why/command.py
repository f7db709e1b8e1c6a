"""`makeway why`: by whom a pod was preempted and what else there was; or why it is pending and what helps."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
import typer

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder
from makeway.cli.connect.session import Installation, NamespaceOption, connected
from makeway.cli.errors import fail
from makeway.cli.offline.finding import order_by_id
from makeway.cli.output import OutputOption, Printer
from makeway.cli.text import safe
from makeway.cli.why import text as why_text
from makeway.cli.why.redaction import Redaction, sees_all_pods
from makeway.cli.why.story import (
    Story,
    last_decision,
    ledger_of,
    orders_for,
    orders_that_took,
    preempted_by_others,
    story_of,
)
from makeway.core.k8s.objects import Pod, PodCondition
from makeway.core.k8s.pod_groups import group_of
from makeway.planner.offline.live import read_world
from makeway.planner.offline.pending import Pending, pending
from makeway.runtime.kube import Api, ApiError
from makeway.runtime.settings import ConfigSettings

app = typer.Typer(add_completion=False)

_HELD: Final = ("QueueFull", "QueueLimitsUnknown")
"""Reasons of the plugin's queue gate; see docs/policies/queue-gate.md."""

_NO_PLAN: Final = "no plan: "
"""How the plugin begins what it says of a pod that the planner has not answered for."""

_decode_pod = msgspec.json.Decoder(Pod).decode


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is known of one pod, or of one order.

    state: "preempted", "pending", "placed" or "order". taken_by: orders that took the pod, oldest first.
    preempted_by_others: preemptions of it by kube-scheduler itself or another scheduler, likewise.
    made_room: orders that made room for it. pending, last_decision: of a pod that is pending. held: the
    condition by which its queue holds it, where it does. unplanned: why its scheduler had no plan for it,
    where it says so. condition: what the pod itself says of why it is pending, for a user to whom nothing
    else may be told. group: the PodGroup that a pending pod names.
    """

    state: str
    namespace: str
    name: str
    uid: str
    taken_by: tuple[Story, ...]
    made_room: tuple[Story, ...]
    pending: Pending | None
    last_decision: DecisionRecord | None
    held: PodCondition | None = None
    unplanned: str = ""
    condition: str = ""
    group: str = ""
    preempted_by_others: tuple[Comparison, ...] = ()


@app.command()
@connected
async def why(
    installation: Installation,
    what: Annotated[
        str,
        typer.Argument(
            metavar="POD|ORDER", help="A pod, also one that is gone, as NAME or NS/NAME; or an order's id."
        ),
    ],
    *,
    namespace: NamespaceOption = "",
    output: OutputOption = "text",
) -> None:
    """Say why a pod was preempted, or why it is still pending.

    Of a pod that was preempted: by which order, or by which other scheduler, for whom, by which rule, what
    else was considered, and what spared the others. Of a pending pod: why it cannot preempt, with counts and
    the nearest nodes, and the smallest changes that would unblock it, each checked by planning again with it.
    Of a pod, a user who may not list pods everywhere sees no name of another namespace, and nothing is
    planned again; an order's id is for administrators.

    Exit code 1 where there is no such order, and no such pod and no preemption that names it.
    """
    printer = Printer(output)
    redaction = None
    async with installation.bus() as bus:
        if what.startswith("ord-"):
            answer = await _order(bus, what)
        else:
            space, _, name = what.removeprefix("pod/").rpartition("/")
            space = space or installation.namespace(namespace)
            settings = ConfigSettings(namespace=installation.makeway_namespace)
            async with installation.api() as api:
                everything = await sees_all_pods(api)
                with printer.progress(f"looking at {space}/{name}"):
                    answer = await _pod(bus, api, settings, space, name, plan=everything)
            redaction = None if everything else Redaction(answer, space)
    if printer.data:
        printer.document(answer if redaction is None else redaction.plain(msgspec.to_builtins(answer)))
        return
    for line in _lines(answer):
        printer.line(safe(line if redaction is None else redaction.text(line)))


async def _order(bus: Bus, order_id: str) -> Explanation:
    order = await order_by_id(bus, order_id)
    if order is None:
        fail(f"there is no order {order_id}; orders are kept for a week")
    preemptor = order.preemptor
    return Explanation(
        state="order",
        namespace=preemptor.namespace if preemptor else "",
        name=preemptor.name if preemptor else order.queue,
        uid=preemptor.uid if preemptor else "",
        taken_by=(),
        made_room=(await story_of(bus, order),),
        pending=None,
        last_decision=None,
    )


async def _pod(
    bus: Bus, api: Api, settings: ConfigSettings, namespace: str, name: str, *, plan: bool
) -> Explanation:
    raw = await _read_pod(api, namespace, name)
    pod = _decode_pod(raw) if raw is not None else None
    uid = pod.metadata.uid if pod else ""
    taken = await orders_that_took(bus, namespace, name, uid)
    others = await preempted_by_others(bus, namespace, name, uid)
    waits = pod is not None and not pod.spec.node_name and pod.status.phase in (None, "", "Pending")
    made = await orders_for(bus, namespace, name, uid) if pod is not None else []
    if pod is None and not taken and not others:
        fail(
            f"there is no pod {namespace}/{name}, no order of the last week names one as a victim, and no "
            "preemption by others was seen in the last three days that took one; is --namespace right?"
        )
    found = await _pending(bus, api, settings, raw) if raw is not None and waits and plan else None
    return Explanation(
        state="pending" if waits else "preempted" if taken or others else "placed",
        namespace=namespace,
        name=name,
        uid=uid or _uid(taken, others, namespace, name),
        taken_by=tuple([await story_of(bus, order) for order in taken]),
        made_room=tuple([await story_of(bus, order) for order in made[-1:]]),
        pending=found,
        last_decision=await last_decision(bus, uid) if waits else None,
        held=_held(pod) if pod is not None and waits else None,
        unplanned=unplanned(pod) if pod is not None and waits else "",
        condition=_condition(pod) if pod is not None and waits else "",
        group=group_of(pod) if pod is not None and waits else "",
        preempted_by_others=tuple(others),
    )


def _held(pod: Pod) -> PodCondition | None:
    """Return the condition by which the queue gate holds a pod, if it does."""
    return next(
        (
            one
            for one in pod.status.conditions or ()
            if (one.type, one.status) == ("PodScheduled", "False") and one.reason in _HELD
        ),
        None,
    )


def _condition(pod: Pod) -> str:
    """Return what the scheduler says in the pod's condition; empty where it has not said anything."""
    return next(
        (
            f"{one.reason}: {one.message or 'no message'}"
            for one in pod.status.conditions or ()
            if (one.type, one.status) == ("PodScheduled", "False")
        ),
        "",
    )


def unplanned(pod: Pod) -> str:
    """Return why the pod's scheduler had no plan for it, from the pod's condition; empty where it had one."""
    messages = (
        one.message or ""
        for one in pod.status.conditions or ()
        if (one.type, one.status) == ("PodScheduled", "False")
    )
    return next(
        (_NO_PLAN + rest for _, found, rest in (m.partition(_NO_PLAN) for m in messages) if found), ""
    )


async def _pending(bus: Bus, api: Api, settings: ConfigSettings, raw: bytes) -> Pending:
    world = await read_world(api, settings)
    now = datetime.now(UTC)
    ledger = await ledger_of(bus, now)
    uid = _decode_pod(raw).metadata.uid
    in_flight, leaving = ledger.in_flight((), now, asking=uid), ledger.leaving(now)
    return pending(world, raw, now, in_flight=in_flight, leaving=leaving)


async def _read_pod(api: Api, namespace: str, name: str) -> bytes | None:
    try:
        return await api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def _uid(taken: list[EvictionOrder], others: list[Comparison], namespace: str, name: str) -> str:
    """Return the UID of the last incarnation that an order took, or else another's preemption."""
    victims = [
        *(victim for order in taken[-1:] for victim in order.victims),
        *(
            victim
            for one in others[-1:]
            if one.default_preemption
            for victim in one.default_preemption.victims
        ),
    ]
    return next((one.uid for one in victims if (one.namespace, one.name) == (namespace, name)), "")


def _lines(answer: Explanation) -> list[str]:
    if answer.state == "order":
        return list(why_text.of_order(answer.made_room[0]))
    lines: list[str] = []
    for taken in answer.taken_by:
        for victim in taken.order.victims:
            if victim.uid == answer.uid or (victim.namespace, victim.name) == (answer.namespace, answer.name):
                lines += why_text.preempted(taken, victim)
    for other in answer.preempted_by_others:
        for victim in other.default_preemption.victims if other.default_preemption else ():
            if victim.uid == answer.uid or (victim.namespace, victim.name) == (answer.namespace, answer.name):
                lines += why_text.preempted_by_another(other, victim)
    story = answer.made_room[0] if answer.made_room else None
    if answer.pending is not None:
        lines += why_text.waiting(
            answer.pending,
            story=story,
            last=answer.last_decision,
            held=answer.held,
            unplanned=answer.unplanned,
            group=answer.group,
        )
    elif answer.state == "pending":
        lines.append(
            f"{answer.namespace}/{answer.name} is pending: {answer.condition or 'it is not said why'}"
        )
    elif answer.state == "placed":
        told = "room was made for it" if story is not None else "no order concerns it"
        lines.append(f"{answer.namespace}/{answer.name} has a node; {told}")
        if story is not None:
            lines += why_text.of_order(story)
    return lines
