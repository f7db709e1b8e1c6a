"""Small clusters drawn by a seed, in which two features at least meet; every pair has its turn."""

import random
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

FEATURES: Final = (
    "toleration",
    "protection",
    "soft-budgets",
    "hard-budgets",
    "guarantee",
    "max",
    "lowered-quota",
    "daemonset",
    "units",
    "gangs",
    "caps",
    "breaker",
    "delay",
    "terminating",
    "external",
    "preemption-rules",
)
PAIRS: Final = tuple(pair for pair in combinations(FEATURES, 2) if pair != ("soft-budgets", "hard-budgets"))
"""What has to be on together; a namespace's budgets are soft or hard."""

PRIORITY: Final = 10
"""The preemptor's."""


@dataclass(frozen=True)
class Pod:
    """A pod of `cpu` cores. `left`: seconds of its grace that are left, None where it is not terminating.

    `group`, `budget`, `queue`, `priority_class`: by name, empty where it has none. `daemon`: a DaemonSet's.
    `tier`: of a label, empty where it has none.
    """

    name: str
    node: int
    cpu: int
    priority: int
    namespace: str = "shop"
    priority_class: str = ""
    scheduled_ago: int = 150
    group: str = ""
    budget: str = ""
    queue: str = ""
    daemon: bool = False
    never_evict: bool = False
    left: int | None = None
    tier: str = ""


@dataclass(frozen=True)
class Group:
    """A PodGroup: of mode `all` (whole), or a gang of `min_count`."""

    whole: bool
    priority: int
    min_count: int


@dataclass(frozen=True)
class PriorityClass:
    """What a class tolerates. `gone`: it was deleted; `recorded`: the record of tolerations has it."""

    minimum: int | None
    seconds: int
    gone: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class Queue:
    """Limits of a queue in cores; `lowered`: its maximum has just been set, with a delay."""

    guaranteed: int = 0
    maximum: int | None = None
    lowered: bool = False


@dataclass(frozen=True)
class Condition:
    """A condition on one label, as Kubernetes has them."""

    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """Whom a rule means: `env` of their namespaces, their own `tier`, classes and queues; all where empty."""

    env: Condition | None = None
    tier: Condition | None = None
    classes: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """Who may preempt whom. `least`: so many seconds a victim must have run, where it is allowed."""

    allow: bool
    preemptors: Side
    victims: Side
    least: int = 0


ENVS: Final = {"shop": "prod", "tools": "dev", "agents": "dev", "vault": ""}
"""The label env of the namespaces; empty where one has none."""


@dataclass(frozen=True)
class Case:
    """One cluster, one pod that needs room, and what is configured.

    `waited`: seconds for which the preemptor has not fitted.
    """

    seed: int
    features: tuple[str, ...]
    nodes: tuple[int, ...]
    pods: tuple[Pod, ...]
    preemptor: Pod
    waited: int
    victims_per_order: int
    groups: dict[str, Group] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)
    classes: dict[str, PriorityClass] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def on(self, feature: str) -> bool:
        """Report whether a feature is on."""
        return feature in self.features


def draw(seed: int, *, always: str = "") -> Case:
    """Draw a case: at most 3 nodes of 6 cores, 12 pods. Seeds one after the other go through all pairs.

    `always`: a feature that is on in every case.
    """
    pick = random.Random(seed)
    features = {*PAIRS[seed % len(PAIRS)], *([always] if always else [])}
    features |= {one for one in FEATURES if pick.random() < 0.2}
    if {"soft-budgets", "hard-budgets"} <= features:
        features.discard("soft-budgets" if "hard-budgets" in PAIRS[seed % len(PAIRS)] else "hard-budgets")
    on = features.__contains__
    groups = _groups(pick, features)
    classes = _classes(pick) if on("toleration") else {}
    tiers = ["", "gold", "lead"] if on("preemption-rules") else [""]
    if on("preemption-rules"):
        classes["batch"] = PriorityClass(None, 0)
    names = pick.choice([["root.a", "root.b"], ["root.p.a", "root.b"], ["root.p.a", "root.p.b"]])
    names = names if features & {"guarantee", "max", "lowered-quota"} else []
    nodes = tuple(pick.choice([4, 5, 6]) for _ in range(pick.choice([1, 2, 2, 3])))
    pods: list[Pod] = []
    for node, size in enumerate(nodes):
        left = size - pick.choice([0, 0, 0, 1])
        while left and len(pods) < 12:
            cpu = min(left, pick.choice([1, 1, 2, 2, 3]))
            left -= cpu
            group = pick.choice(["", "", *groups]) if groups else ""
            namespaces = ["shop", "shop", "vault", "tools"] if on("protection") else ["shop", "shop", "tools"]
            namespace = "shop" if group else pick.choice(namespaces)
            pods.append(
                Pod(
                    name=f"p{len(pods)}",
                    node=node,
                    cpu=cpu,
                    priority=pick.choice([0, 0, 1, 5, PRIORITY, PRIORITY + 5]),
                    namespace=namespace,
                    priority_class=pick.choice(["", *classes]),
                    scheduled_ago=pick.choice([50, 150]),
                    group=group,
                    budget=pick.choice(["", "x", "y"]) if namespace == "shop" and _budgets(features) else "",
                    queue=pick.choice(names) if names else "",
                    daemon=on("daemonset") and not group and pick.random() < 0.2,
                    never_evict=on("protection") and pick.random() < 0.3,
                    left=pick.choice([20, 20, 300, -100])
                    if on("terminating") and pick.random() < 0.4
                    else None,
                    tier=pick.choice(tiers),
                )
            )
    preemptor = Pod(
        name="urgent",
        node=pick.randrange(len(nodes)) if on("daemonset") else -1,
        cpu=pick.choice([1, 2, 2, 3]),
        priority=PRIORITY,
        namespace="agents" if on("daemonset") else "shop",
        priority_class="external" if on("external") else "",
        queue=pick.choice(names) if names else "",
        daemon=on("daemonset"),
        tier=pick.choice(tiers),
    )
    rules = [_rule(pick, [*classes, "external"], names) for _ in range(pick.choice([1, 1, 2, 3, 5]))]
    return Case(
        seed=seed,
        features=tuple(one for one in FEATURES if on(one)),
        nodes=nodes,
        pods=tuple(pods),
        preemptor=preemptor,
        waited=pick.choice([2, 60]) if on("delay") else 60,
        victims_per_order=pick.choice([1, 2]) if on("caps") else 100,
        groups=groups,
        budgets={name: pick.choice([0, 1, 1, 2]) for name in "xy"} if _budgets(features) else {},
        classes=classes,
        queues=_queues(pick, features, names, pods),
        rules=tuple(rules) if on("preemption-rules") else (),
    )


def _rule(pick: random.Random, classes: list[str], queues: list[str]) -> Rule:
    allow = pick.random() < 0.5
    preemptors, victims = _side(pick, classes, queues), _side(pick, classes, queues)
    return Rule(allow, preemptors, victims, least=pick.choice([0, 100, 150]) if allow else 0)


def _side(pick: random.Random, classes: list[str], queues: list[str]) -> Side:
    def some(names: list[str]) -> tuple[str, ...]:
        return tuple(pick.sample(names, min(len(names), 2))) if names and pick.random() < 0.25 else ()

    return Side(
        env=_condition(pick, ["prod", "dev"]),
        tier=_condition(pick, ["gold", "lead"]),
        classes=some(classes),
        queues=some([*queues, "root.p"] if queues else []),
    )


def _condition(pick: random.Random, values: list[str]) -> Condition | None:
    if pick.random() < 0.6:
        return None
    operator = pick.choice(["In", "In", "NotIn", "Exists", "DoesNotExist"])
    return Condition(operator, (pick.choice(values),) if operator.endswith("In") else ())


def is_below(queue: str, name: str) -> bool:
    """Report whether a queue is the one of that name, or below it."""
    return f"{queue}.".startswith(f"{name}.")


def _queues(pick: random.Random, features: set[str], names: list[str], pods: list[Pod]) -> dict[str, Queue]:
    lowered = pick.choice(["root.p", ".a"] if names[:1] == ["root.p.a"] else [".a"])
    found = {name: _queue(pick, features, name, pods, lowered=lowered) for name in names}
    below = [queue for name, queue in found.items() if is_below(name, "root.p")]
    if below:
        least = sum(queue.guaranteed for queue in below)
        found["root.p"] = _queue(pick, features, "root.p", pods, lowered=lowered, least=least)
    return found


def _budgets(features: set[str]) -> bool:
    return bool(features & {"soft-budgets", "hard-budgets"})


def _groups(pick: random.Random, features: set[str]) -> dict[str, Group]:
    priorities = [0, 3, 3, PRIORITY + 5]
    groups: dict[str, Group] = {}
    if "units" in features:
        groups |= {name: Group(True, pick.choice(priorities), 0) for name in ("u0", "u1")}
    if "gangs" in features:
        groups |= {name: Group(False, pick.choice(priorities), pick.choice([1, 2])) for name in ("g0", "g1")}
    return groups


def _classes(pick: random.Random) -> dict[str, PriorityClass]:
    minimum, seconds = pick.choice([None, PRIORITY, PRIORITY + 1]), pick.choice([-1, 100, 0])
    return {
        "steady": PriorityClass(minimum, seconds),
        "on-record": PriorityClass(PRIORITY + 1, pick.choice([-1, 100]), gone=True, recorded=True),
        "forgotten": PriorityClass(PRIORITY + 1, -1, gone=True),
    }


def _queue(
    pick: random.Random, features: set[str], name: str, pods: list[Pod], *, lowered: str, least: int = 0
) -> Queue:
    used = sum(pod.cpu for pod in pods if is_below(pod.queue, name))
    guaranteed = max(least, used - pick.choice([0, 1, 2])) if "guarantee" in features else 0
    if "lowered-quota" in features and name.endswith(lowered):
        maximum = max(1, least + 1, used - pick.choice([1, 2, 3]))
        return Queue(min(guaranteed, maximum - 1), maximum, lowered=True)
    if "max" not in features:
        return Queue(guaranteed)
    return Queue(guaranteed, max(1, guaranteed, used + pick.choice([0, 0, 1, 4])))
