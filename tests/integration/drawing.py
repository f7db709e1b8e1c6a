"""Small random clusters with one preemptor each, for kube-scheduler and makeway side by side.

`draw(seed, slot)` is pure: the same seed is the same cluster. What the policy of these tests protects is
drawn with the rule that protects it. kube-scheduler knows no such rule, so `as_seen_by_kube_scheduler` raises
the priority of protected pods above the preemptor's: then it may take exactly what makeway may take.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from integration.builders import Manifest, NodeBuilder, PodBuilder, make_node, make_pod
from integration.queueing import Tree, queue, queues_yaml

ZONES = ("zone-a", "zone-b", "zone-c")
ZONE = "topology.kubernetes.io/zone"
GPU = "example.com/gpu"
DRIVER = "gpu.example.com"
GUARDED = "drawn-guarded"
"""The namespace that the policy of these tests protects."""
UNTOUCHABLE = "drawn-untouchable"
"""The PriorityClass of protected pods where kube-scheduler plays: above every preemptor's."""
TOLERANT = "drawn-tolerant"
"""A PriorityClass of low priority whose pods tolerate preemption for ever, by its annotations."""
NEVER_EVICT = "makeway.dev/never-evict"
ALOOF_FROM = "tests.makeway.dev/aloof-from"
SHUNNED = "tests.makeway.dev/shunned"
SLOTS = 8
"""How many drawn clusters stand in one control plane at a time; each has queues of its own."""

CLASSES: tuple[Manifest, ...] = tuple(
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": annotations},
        "value": value,
    }
    for name, value, annotations in (
        (UNTOUCHABLE, 900_000, {}),
        (
            TOLERANT,
            10,
            {
                "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "100000",
                "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "-1",
            },
        ),
    )
)

DEVICE_CLASS: Manifest = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "drawn-gpu"},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
        "extendedResourceName": GPU,
    },
}


def policy() -> dict[str, Any]:
    """The policy that protects the drawn pods."""
    return {
        "mode": "enforce",
        "disruptionBudgets": "hard",
        "hardBudgetNamespaces": ["*"],
        "protection": {"namespaces": [GUARDED], "neverEvictNamespaces": ["*"]},
    }


def queues() -> str:
    """The queues of every slot: `full` holds two cores, `kept` is guaranteed more than is ever in it."""
    slots: list[Tree] = [
        queue(f"slot{slot}", queue("full", max=2), queue("kept", guaranteed=90)) for slot in range(SLOTS)
    ]
    return queues_yaml(*slots)


@dataclass(frozen=True)
class DrawnPod:
    """A pod that runs before the preemptor comes.

    `rule` protects it, "" where none does. `useless`: to take it is allowed, and alone makes no room in the
    preemptor's full queue.
    """

    builder: PodBuilder
    rule: str = ""
    useless: bool = False

    @property
    def guarded(self) -> bool:
        """Whether it runs in the protected namespace."""
        return self.rule == "protected-namespace"


@dataclass(frozen=True)
class Drawn:
    """One cluster; builders serve once, so draw it again to build it again."""

    seed: int
    slot: int
    guarded: bool
    nodes: tuple[NodeBuilder, ...]
    pods: tuple[DrawnPod, ...]
    preemptor: PodBuilder
    volume_zones: tuple[str, ...] = ()
    dra_nodes: tuple[str, ...] = ()
    shape: tuple[str, ...] = field(default=())

    @property
    def protected(self) -> tuple[DrawnPod, ...]:
        """The pods that no preemption may take."""
        return tuple(pod for pod in self.pods if pod.rule)

    def as_seen_by_kube_scheduler(self) -> Drawn:
        """Draw the same cluster again, with protected pods out of the preemptor's reach by their priority."""
        again = draw(self.seed, self.slot, guarded=self.guarded)
        for pod in again.pods:
            if pod.rule or pod.useless:
                pod.builder.priority(UNTOUCHABLE)
        return again


def pad(pod: PodBuilder) -> None:
    """Give a pod a required node affinity of more than 1 MiB that every node satisfies."""
    values = [f"{number:063d}" for number in range(17_000)]
    never = {"matchExpressions": [{"key": "drawn/none", "operator": "NotIn", "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [never]}}
    pod.spec(affinity={"nodeAffinity": required})


_SHAPES = ("selector", "taints", "volume", "gpu", "filter", "aloof", "plain")
_RULES = ("protected-namespace", "never-evict", "preemption-toleration", "hard-budget", "guaranteed")


def draw(seed: int, slot: int, *, guarded: bool = False) -> Drawn:
    """Draw a cluster of two to six nodes, or of some thirty where only few can ever host the preemptor.

    Args:
        seed: Decides everything.
        slot: Whose queues its pods use, 0 to SLOTS - 1.
        guarded: Draw protected pods for certain, and something to keep the preemptor away from the rest.
    """
    chance = random.Random(seed)
    shapes = set(chance.sample(_SHAPES, chance.choice((1, 1, 2))))
    at_max = chance.random() < 0.2
    wide = chance.random() < 0.12
    if wide:
        # Nodes that no column of the planner's rules out, and only few others.
        shapes.add(chance.choice(("volume", "gpu", "filter")))
    cores = chance.choice((1, 2))
    size = 1 if at_max else chance.randint(1, cores)
    usable = chance.randint(1, 2 if wide else 3)
    useless = chance.randint(22, 28) if wide else chance.randint(0, 3)

    preemptor = make_pod("preemptor").priority("high").cpu(size)
    if at_max:
        preemptor.label("queue", f"root.slot{slot}.full")
        shapes.discard("gpu")
    zones = tuple(chance.sample(ZONES, chance.choice((1, 1, 2)))) if "volume" in shapes else ()
    nodes: list[NodeBuilder] = []
    pods: list[DrawnPod] = []
    dra: list[str] = []
    for number in range(usable + useless):
        good = number >= useless
        node = make_node(f"n{number:02d}").cpu(cores)
        _shape_node(chance, node, shapes, zones, good=good)
        if "gpu" in shapes:
            offered = chance.choice(("dra", "dra", "plugin")) if good else chance.choice(("plugin", "none"))
            if offered == "plugin":
                node.resource(GPU, 1)
            if offered == "dra":
                dra.append(node.name)
        nodes.append(node)
        pods += _fill(chance, node.name, cores, good=good, shapes=shapes)
    _ask_of_nodes(preemptor, shapes)
    pods = _with_rules(chance, pods, slot, at_max=at_max, certainly=guarded)
    return Drawn(
        seed=seed,
        slot=slot,
        guarded=guarded,
        nodes=tuple(nodes),
        pods=tuple(pods),
        preemptor=preemptor,
        volume_zones=zones,
        dra_nodes=tuple(dra),
        shape=(*sorted(shapes), *(["queue-at-max"] if at_max else []), *(["wide"] if wide else [])),
    )


def _shape_node(
    chance: random.Random, node: NodeBuilder, shapes: set[str], zones: tuple[str, ...], *, good: bool
) -> None:
    """Give a node zone, labels and taints; a node that is not good lacks what the preemptor needs."""
    others = [zone for zone in ZONES if zone not in zones]
    zone = chance.choice(zones or ZONES) if good or "volume" not in shapes else chance.choice(others)
    node.label(ZONE, zone)
    wanting = [shape for shape in ("selector", "taints") if shape in shapes]
    lacking = "" if good or not wanting else chance.choice(wanting)
    if "selector" in shapes and lacking != "selector":
        node.label("drawn/pool", "fast")
    if lacking == "taints":
        node.taint("drawn/reserved", "yes")
    elif "taints" in shapes and chance.random() < 0.5:
        node.taint("drawn/dedicated", "yes")


def _ask_of_nodes(preemptor: PodBuilder, shapes: set[str]) -> None:
    if "selector" in shapes:
        preemptor.spec(nodeSelector={"drawn/pool": "fast"})
    if "taints" in shapes:
        preemptor.spec(tolerations=[{"key": "drawn/dedicated", "operator": "Exists"}])
    if "gpu" in shapes:
        preemptor.resource(GPU, 1)
    if "filter" in shapes:
        preemptor.annotation(ALOOF_FROM, "loud")
    if "aloof" in shapes:
        preemptor.anti_affinity("drawn/app", "rival")
    if "volume" in shapes:
        preemptor.spec(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def _fill(chance: random.Random, node: str, cores: int, *, good: bool, shapes: set[str]) -> list[DrawnPod]:
    """Fill a node with pods of half a core or one; those of nodes that cannot be used rank lowest."""
    pods: list[DrawnPod] = []
    left = cores * 1000
    while left > 0:
        cpu = min(left, chance.choice((500, 1000)))
        priority = chance.choice(("low", "mid", "mid", "high") if good else ("neg", "low"))
        pod = make_pod(f"{node}-p{len(pods)}").priority(priority).cpu(f"{cpu}m").on(node)
        if "filter" in shapes and chance.random() < 0.4:
            pod.label(SHUNNED, "loud")
        if "aloof" in shapes and chance.random() < 0.4:
            pod.label("drawn/app", "rival")
        pods.append(DrawnPod(pod))
        left -= cpu
    if "filter" in shapes and not good:
        stays = make_pod(f"{node}-stays").priority("high").label(SHUNNED, "loud").on(node)
        pods.append(DrawnPod(stays))
    return pods


def _with_rules(
    chance: random.Random, pods: list[DrawnPod], slot: int, *, at_max: bool, certainly: bool
) -> list[DrawnPod]:
    """Put some pods under a rule. At max, two cores of pods are in the full queue and all others stay."""
    if at_max:
        return _at_max(chance, pods, slot)
    if not certainly and chance.random() < 0.5:
        return pods
    rules = chance.sample(_RULES, chance.randint(1, 2))
    share = 0.7 if certainly else 0.35
    return [_under(chance.choice(rules), pod, slot) if chance.random() < share else pod for pod in pods]


def _at_max(chance: random.Random, pods: list[DrawnPod], slot: int) -> list[DrawnPod]:
    """Choose pods of two cores for the full queue; kube-scheduler may take no other than those."""
    chosen, left = set(), 2000
    for pod in chance.sample(pods, len(pods)):
        requests = pod.builder.build()["spec"]["containers"][0]["resources"]["requests"]
        cpu = int(requests.get("cpu", "0m").removesuffix("m"))
        if cpu == 1000 and cpu <= left:
            chosen.add(pod.builder.name)
            left -= cpu
    if left:
        return pods
    return [
        DrawnPod(pod.builder.label("queue", f"root.slot{slot}.full"))
        if pod.builder.name in chosen
        else replace(pod, useless=True)
        for pod in pods
    ]


def _under(rule: str, pod: DrawnPod, slot: int) -> DrawnPod:
    builder = pod.builder
    match rule:
        case "never-evict":
            builder.annotation(NEVER_EVICT, "true")
        case "preemption-toleration":
            builder.priority(TOLERANT)
        case "hard-budget":
            builder.label("drawn/covered", "yes")
        case "guaranteed":
            builder.label("queue", f"root.slot{slot}.kept")
    return DrawnPod(builder, rule)
