"""`makeway why`: by whom a pod was preempted and what else there was; or why it is pending and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import typer

from makeway.bus.client import Bus
from makeway.cli.connect import completion
from makeway.cli.connect.objects import may_pods
from makeway.cli.connect.session import Installation, MayNotRead, NamespaceOption, connected
from makeway.cli.errors import UNREACHABLE, fail
from makeway.cli.history.streams import must_exist
from makeway.cli.output import OutputOption, Printer
from makeway.cli.text import joined
from makeway.cli.why import text as why_text
from makeway.cli.why.explanation import (
    Explanation,
    NotKept,
    Subject,
    of_decision,
    of_group,
    of_order,
    of_pod,
)
from makeway.cli.why.redaction import Redaction
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings

app = typer.Typer(add_completion=False)


@app.command()
@connected
async def why(
    installation: Installation,
    what: Annotated[
        str,
        typer.Argument(
            metavar="POD|PODGROUP|ORDER|DECISION",
            help="A pod, also one that is gone, as NAME or NS/NAME; a PodGroup, as podgroup/NAME; or an "
            "order's or decision's id, or its beginning.",
            autocompletion=completion.pods,
        ),
    ],
    *,
    namespace: NamespaceOption = "",
    output: OutputOption = "text",
) -> None:
    """Say why a pod was preempted, or why it is still pending.

    Of a pod that was preempted: by which order, or by which other scheduler, for whom, by which rule, what
    else was considered, and why the others stayed. Of a pending pod: why it cannot preempt, with counts and
    the nearest nodes, and the smallest changes that would unblock it, each checked by planning again with it.
    Of a pod, a user who may not list pods everywhere sees no name of another namespace, and nothing is
    planned again; ids of orders and decisions are for administrators.

    Of a PodGroup: the victims for all its members, on which nodes, what that costs term by term, and what
    other topology domains would have cost; or why there is no room, and what is missing.

    Exit code 1 where there is no such order or decision, or several ids begin so; and where there is no such
    pod and no preemption that names it.
    """
    printer = Printer(output)
    redaction = None
    kind, space, name = _object(what)
    try:
        async with installation.bus() as bus:
            await must_exist(bus)
            if what.startswith("ord-"):
                answer = await of_order(bus, what)
            elif what.startswith("dec-"):
                answer = await of_decision(bus, what)
            else:
                space = space or installation.namespace(namespace)
                settings = ConfigSettings(namespace=installation.makeway_namespace)
                async with installation.api() as api:
                    everything = await may_pods(api, "list")
                    with printer.progress(f"looking at {space}/{name}"):
                        answer = await _of_object(
                            bus, api, settings, kind, space=space, name=name, plan=everything
                        )
                redaction = None if everything else Redaction(answer, space)
    except MayNotRead as error:
        fail(
            f"no permission: {error.message}; conditions and Events of the pod say the same in counts "
            "(kubectl describe pod), or give --nats-url and a login",
            UNREACHABLE,
        )
    except NotKept as error:
        fail(f"{error}; is --namespace right?" if space else str(error))
    if printer.data:
        printer.document(answer if redaction is None else redaction.plain(msgspec.to_builtins(answer)))
        return
    for line in _lines(answer):
        printer.line(joined(line if redaction is None else redaction.text(line)))


_KINDS: Final = {"pod": "pod", "pods": "pod", "podgroup": "podgroup", "podgroups": "podgroup"}
"""Kinds as kubectl takes them, too."""


def _object(what: str) -> tuple[str, str, str]:
    """Return kind, namespace and name; what is not said is empty. A first part that is a kind is one."""
    kind, slash, rest = what.partition("/")
    known = _KINDS.get(kind.lower().partition(".")[0], "") if slash else ""
    space, _, name = (rest if known else what).rpartition("/")
    if not name or "/" in space:
        raise typer.BadParameter(f"{what} names no pod: give POD, NAMESPACE/POD or pod/NAMESPACE/POD")
    return known, space, name


async def _of_object(
    bus: Bus, api: Api, settings: ConfigSettings, kind: str, *, space: str, name: str, plan: bool
) -> Explanation:
    """Explain a pod or a PodGroup; where the kind is not said, the pod if there is anything of one."""
    if kind == "podgroup":
        return await of_group(bus, space, name)
    try:
        return await of_pod(bus, api, settings, space, name, plan=plan)
    except NotKept:
        if kind == "pod":
            raise
        try:
            return await of_group(bus, space, name)
        except NotKept:
            pass
        raise


def _lines(answer: Explanation) -> list[str]:
    if answer.state == "order":
        return list(why_text.of_order(answer.made_room[0]))
    if answer.state == "decision" and answer.last_decision is not None:
        return list(why_text.of_decision(answer.last_decision, answer.story))
    subject = Subject(answer.namespace, answer.name, group=answer.state == "group")
    lines: list[str] = []
    for taken in answer.taken_by:
        victims = list(filter(subject.takes, taken.victims))
        if subject.group:
            lines += why_text.group_preempted(taken, victims)
        for victim in () if subject.group else victims:
            lines += why_text.preempted(taken, victim)
    for other in answer.preempted_by_others:
        for victim in filter(subject.takes, other.evicted):
            lines += why_text.preempted_by_another(other, victim)
    lines += _state(answer)
    for other in answer.served_by_others[-1:]:
        lines += why_text.served_by_another(other)
    return lines


def _state(answer: Explanation) -> Iterator[str]:
    """Say why a pod is pending, whether room was made for it, or what was last decided for a group."""
    name, story = f"{answer.namespace}/{answer.name}", answer.story
    if answer.state == "group":
        if story is not None:
            yield from why_text.of_order(story)
        last, told = answer.last_decision, story.order if story is not None else None
        if last is not None and (told is None or last.decision_id != told.decision_id):
            yield from why_text.of_decision(last, None)
    elif answer.pending is not None:
        yield from why_text.waiting(answer, answer.pending)
    elif answer.state == "pending":
        yield f"{name} is pending: {answer.condition or 'it is not said why'}"
        yield from why_text.held_order(answer.waits_for)
    elif answer.state == "placed" and story is not None:
        yield f"{name} has a node; room was made for it"
        yield from why_text.of_order(story)
    elif answer.state == "placed" and answer.served_by_others:
        yield f"{name} has a node; room was made for it, not by makeway"
    elif answer.state == "placed":
        yield f"{name} has a node; no order concerns it, and no preemption by others was seen"
