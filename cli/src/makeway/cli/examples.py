"""What `--help` of each command begins with: how it is called, and what for. Pure.

Arguments by command; the name under which `makeway` was called is put before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "planner": (("planner --leader-elect", "as the chart runs it, with a standby"),),
    "evictor": (("evictor --mode observe", "refuse each order without an effect"),),
    "nominator": (("nominator --mode observe", "plan for pods whose class is opted in, and nominate none"),),
    "ui-server": (
        (
            "ui-server --page-listen :8080 --host ui.example.com --https",
            "behind an Ingress of that name",
        ),
    ),
    "streams": (("streams --wait 60 --keep", "set the streams up once NATS answers, and keep them so"),),
    "check": (
        ("check", "is all well? If not, what is to be done"),
        ("check --wait --timeout 5m", "after helm upgrade: wait until nothing is wrong"),
    ),
    "mode": (
        ("mode", "the effective mode, and which components confirm it"),
        ("mode off --reason 'incident 42'", "stop every eviction now"),
        ("mode enforce -n shop", "begin in one namespace"),
    ),
    "breaker": (("breaker", "what it has stopped, and why"), ("breaker reset", "close it")),
    "keys new": (("keys new", "make the keys that are missing"),),
    "keys rotate": (
        ("keys rotate", "bring in new keys while makeway works"),
        ("keys rotate --finish", "later: drop the old ones"),
    ),
    "history": (
        ("history --follow --since 5m", "what is in flight, and how it ends, as it happens"),
        ("history --follow -o json", "every decision, order and outcome, as it comes"),
        ("history --unreadable -o wide", "which messages were put aside, and why"),
        ("history --since 1d -n shop", "which pods of a namespace were evicted, and for whom"),
        ("history --compare", "what makeway would have done better, and worse"),
    ),
    "options": (("options", "how a command reaches NATS and Kubernetes"),),
    "simulate": (
        ("simulate -f pod.yaml", "which pods would be evicted for these?"),
        ("simulate --queues queues.yaml", "which pods would be evicted for lowered quotas?"),
    ),
    "why": (
        ("why web-0 -n shop", "why was the pod preempted, or why is it pending?"),
        ("why ord-01m84d157f", "what is behind an order? Its beginning is enough"),
    ),
    "replay": (("replay ord-01m84d157f", "decide again what was decided, and compare"),),
    "ui": (("ui --open", "look at it in a browser"),),
    "queues": (
        ("queues", "limits and usage, as a tree"),
        ("queues root.shop", "all that is known of one"),
    ),
    "policy lint": (("policy lint policy.yaml queues.yaml", "would they be accepted?"),),
    "policy explain": (("policy explain policy.yaml", "who may preempt whom, rule by rule"),),
    "demo": (("demo --keep", "see it work, and leave the cluster up"),),
    "dev up": (("dev up --mode observe", "a cluster to try things on"),),
    "dev build": (("dev build", "build what the cluster needs, which takes minutes"),),
    "dev down": (("dev down --all", "end every cluster"),),
    "dev env": (('eval "$(makeway dev env)"', "use the cluster in this shell"),),
    "dev status": (("dev status", "what runs, and what does not"),),
}


def lines(path: str, called: str) -> Iterator[str]:
    """Return the examples of a command as they are printed, each below what it is for, as kubectl does.

    path: of the command, without `makeway`. called: the name under which `makeway` was called.
    """
    for arguments, comment in EXAMPLES.get(path, ()):
        yield f"  # {comment}"
        yield f"  {_whole(arguments, called)}"


def _whole(arguments: str, called: str) -> str:
    return arguments if arguments.startswith("eval ") else f"{called} {arguments}"
