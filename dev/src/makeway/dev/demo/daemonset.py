"""The simple preemptor: a DaemonSet's pods get room on full nodes, each on the one that is its own."""

from __future__ import annotations

from makeway.bus.messages import EvictionOrder
from makeway.core.policy.facts import ALLOW_PREEMPTION
from makeway.dev.demo import manifests
from makeway.dev.demo.stage import SETTLE_SECONDS, Stage
from makeway.dev.demo.timeline import PodSeen, when

START_DELAY_SECONDS = 3

_POLICY = f"""\
apiVersion: makeway.dev/v1
kind: Policy
daemonSets:
  enabled: true
  namespaces: [{manifests.NAMESPACE}]
  preemption_start_delay: {START_DELAY_SECONDS}
  preemption_victim_pods_selection_strategy: single,multiple
  single_max_deviation_percent: 10
  multiple_max_victims: 3
"""


async def play(stage: Stage) -> None:
    """Tell it, top to bottom."""
    await fill(stage)
    await ship_logs(stage)
    await take_the_last_class(stage)


async def fill(stage: Stage) -> None:
    """Two full nodes: services and a job with its driver, all of one priority."""
    narrator = stage.narrator
    narrator.chapter("Two full nodes")
    await stage.create(
        [
            manifests.policy(_POLICY),
            manifests.priority_class("service", manifests.BATCH_PRIORITY),
            manifests.priority_class("platform", manifests.URGENT_PRIORITY),
            manifests.node("node-a"),
            manifests.node("node-b"),
        ]
    )
    await stage.create(
        [
            manifests.pod("checkout", "service", "3", node="node-a"),
            manifests.pod("reports", "service", "500m", node="node-a"),
        ]
    )
    thumbnails = manifests.pod("thumbnails", "service", "500m", node="node-a")
    thumbnails["metadata"]["labels"][ALLOW_PREEMPTION] = "false"
    driver_uid, _ = await stage.create_one(manifests.pod("driver", "service", "2", node="node-b"))
    workers = [manifests.pod(f"worker-{number}", "service", "1", node="node-b") for number in (1, 2)]
    for worker in workers:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver_uid}
        worker["metadata"]["ownerReferences"] = [owner]
    await stage.create([thumbnails, *workers])
    await stage.running(
        dict.fromkeys(("checkout", "reports", "thumbnails", "driver", "worker-1", "worker-2"), 1)
    )
    narrator.cluster(stage.timeline.living())
    narrator.say(
        f"All have priority {manifests.BATCH_PRIORITY}, and every CPU is taken. reports and thumbnails"
    )
    narrator.say("ask for 500m each, and thumbnails asked to be taken last. driver owns its workers.")
    narrator.say("The policy turns the simple preemptor on:")
    narrator.say(_POLICY.partition("daemonSets:\n")[2].rstrip())


async def ship_logs(stage: Stage) -> None:
    """Pods of equal priority make room on both nodes, after the start delay."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("A DaemonSet of the same priority")
    _, sent = await stage.create_one(_daemonset("logs", "service", "500m"))
    narrator.begin(sent, f"DaemonSet logs created: 500m on every node, priority {manifests.BATCH_PRIORITY}")
    pods = await _pods_of(stage, "logs", 2)
    orders: dict[str, EvictionOrder] = {}
    over: list[bool] = []
    for pod in pods:
        bound = await stage.bound(pod.uid, pod.name)
        order, outcome = await stage.last_outcome(pod.uid)
        orders[order.node] = order
        for refused in timeline.refusals(pod.uid)[:1]:
            narrator.refusal(refused)
            # Kubernetes tells since when a pod has not fitted in whole seconds.
            due = refused.diagnosis.retry_at if refused.diagnosis else None
            over.append(due is not None and due <= order.created_at)
        narrator.decision(await stage.decision_of(order))
        narrator.order(order)
        narrator.outcome(outcome)
        narrator.bound(bound.at, order, f"{pod.name} bound to {bound.node}")
    narrator.timetable()

    early = min(map(when, orders.values())) - sent
    narrator.claim(
        f"no pod was evicted before the start delay was over: the first after {early:.1f} s",
        len(over) == len(pods) and all(over),
    )
    narrator.claim(
        "on node-a the one regular pod of the right size went, not the large one, nor the one that opted out",
        _victims(orders, "node-a") == [("reports", "daemonset-single")],
    )
    workers = _victims(orders, "node-b")
    narrator.claim(
        "on node-b, where every pod is far too large, one worker went rather than its driver",
        len(workers) == 1 and workers[0] in {(f"worker-{n}", "daemonset-multiple") for n in (1, 2)},
    )
    living = {pod.app for pod in timeline.living() if pod.running}
    narrator.claim("all other pods run on", {"checkout", "thumbnails", "driver"} <= living)


async def take_the_last_class(stage: Stage) -> None:
    """A DaemonSet of higher priority: another's pod would fit to a hair, and stays."""
    timeline, narrator = stage.timeline, stage.narrator
    narrator.chapter("Pods of DaemonSets stay, whatever their priority")
    _, sent = await stage.create_one(_daemonset("metrics", "platform", "500m", node="node-a"))
    narrator.begin(sent, f"DaemonSet metrics created: 500m on node-a, priority {manifests.URGENT_PRIORITY}")
    (pod,) = await _pods_of(stage, "metrics", 1)
    made = await stage.preemption(pod.uid, pod.name)
    stage.tell(made)
    narrator.claim(
        "thumbnails, which had asked to be taken last, went now",
        _victims({made.order.node: made.order}, "node-a") == [("thumbnails", "daemonset-single")],
    )
    logs = [pod.node for pod in timeline.living() if pod.app == "logs" and pod.running]
    narrator.claim("logs, of lower priority and the same size, runs on", sorted(logs) == ["node-a", "node-b"])
    spared = {one.rule for candidate in made.decision.candidates for one in candidate.spared}
    narrator.claim("the decision record says by which rule", spared == {"daemonset-pod"})


async def _pods_of(stage: Stage, app: str, count: int) -> list[PodSeen]:
    """Wait until the DaemonSet's controller has made its pods."""

    def made() -> list[PodSeen] | None:
        pods = [pod for pod in stage.timeline.living() if pod.app == app]
        return pods if len(pods) == count else None

    await stage.timeline.until(f"{count} pods of {app}", made, SETTLE_SECONDS)
    return sorted(made() or [], key=lambda pod: pod.name)


def _victims(orders: dict[str, EvictionOrder], node: str) -> list[tuple[str, str]]:
    return [(victim.name, victim.rule) for victim in orders[node].victims] if node in orders else []


def _daemonset(name: str, priority_class: str, cpu: str, node: str = "") -> manifests.Manifest:
    """A DaemonSet for every node, or for one."""
    labels = {"app": name}
    spec = manifests.pod_spec(priority_class, cpu)
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
