"""What the product answers for a drawn case, and where that is not what the documents say."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from makeway.bus.messages import EvictionOrder, Fence, Outcome
from makeway.core.k8s import objects
from makeway.core.k8s.daemonset_owner import daemonset_owner
from makeway.core.k8s.pod_groups import GroupKey, PodGroup, group_record
from makeway.core.policy.toleration_record import parse_record
from makeway.evictor.judge.verdicts import Refused
from makeway.planner.offline.manifests import NewPod
from makeway.planner.offline.quotas import lowered
from makeway.planner.offline.simulation import Simulation
from makeway.planner.plan.planner import plan
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal
from makeway.runtime.config import ConfigContent
from makeway.runtime.pod_group_api import PodGroupApi
from pairs import building, oracle
from pairs.drawing import Case, Pod
from unit.evictor import building as orders
from unit.evictor.test_service import World

NOMINATORS = Fence(kind="lease", namespace="makeway-system", name="makeway-nominator", epoch=orders.EPOCH)


def disagreements(case: Case) -> list[str]:
    """Return in sentences what the product does otherwise than documented; empty where nothing."""
    there = building.world(case)
    everywhere = tuple(range(len(case.nodes)))
    found = plan(there.snapshot, building.question(case, there, everywhere), building.NOW)
    return [
        *_planned(case, found),
        *_simulated(case, found),
        *_verdicts(case),
        *_capped(case),
        *_quotas(case),
    ]


def _planned(case: Case, found: Plan | PlanRefusal) -> Iterator[str]:
    nodes = tuple(range(len(case.nodes)))
    if any(oracle.fits(case, node) for node in nodes):
        return
    waits = _waits(case)
    if isinstance(found, PlanRefusal):
        possible = [node for node in nodes if oracle.feasible(case, node) and _is_asked(case, node)]
        if possible and not waits:
            yield f"plan refuses ({found.reason}: {found.message}), n{possible[0]} is feasible"
        return
    for candidate in found.candidates:
        yield from (f"plan: {one}" for one in _candidate(case, candidate))
    if waits and any(one.victims for one in found.candidates):
        yield "plan: victims before the DaemonSet's delay is over"
    if found.candidates:
        if oracle.on_its_way(case) and found.candidates[0].victims:
            roomy = [node for node in nodes if oracle.free(case, node, oracle.SOON) >= case.preemptor.cpu]
            if any(_is_asked(case, node) for node in roomy):
                yield "plan: a running pod is evicted though terminating ones make the room in its queue"
        if any(oracle.coming(case, node) for node in nodes if _is_asked(case, node)):
            if found.candidates[0].victims:
                yield "plan: a running pod is evicted though terminating ones make the room"
        else:
            yield from (f"evictor: {one}" for one in _carried_out(case, found))


def _waits(case: Case) -> bool:
    return case.preemptor.daemon and case.waited < building.START_DELAY


def _is_asked(case: Case, node: int) -> bool:
    return not case.preemptor.daemon or node == case.preemptor.node


def _candidate(case: Case, candidate: PlanCandidate) -> Iterator[str]:
    node = int(candidate.node.removeprefix("n"))
    victims = [_pod(case, one.pod.name) for one in candidate.victims]
    if rule := oracle.broken(case, victims, node=node):
        yield f"{candidate.node}: {[one.name for one in victims]}: {rule}"
    for one in candidate.removable:
        pod = _pod(case, one.pod.name)
        simple = case.preemptor.daemon and not one.unit
        if not oracle.removable(case, pod, simple=simple) and not oracle.removable(case, pod):
            yield f"{candidate.node}: {pod.name} is named removable: {oracle.kept(case, pod)}"
    room = oracle.free(case, node, 10**6) + sum(pod.cpu for pod in victims if pod.node == node)
    if room < case.preemptor.cpu:
        yield f"{candidate.node}: {[one.name for one in victims]} make no room"


def _simulated(case: Case, found: Plan | PlanRefusal) -> Iterator[str]:
    there = building.world(case)
    manifest = building.preemptor(case)
    del manifest["metadata"]["uid"]
    if case.preemptor.priority_class:
        del manifest["spec"]["priority"], manifest["spec"]["preemptionPolicy"]
    answer = Simulation(there, building.NOW, namespace="shop").run(NewPod(manifest, "pods.yaml"))
    nodes = [node for node in range(len(case.nodes)) if _is_asked(case, node)]
    fits = any(oracle.fits(case, node) for node in nodes)
    if fits != (answer.result == "fits"):
        yield f"simulate says {answer.result}, it {'fits' if fits else 'does not fit'}"
    if answer.result == "preempts":
        victims = [_pod(case, one.name) for one in answer.victims]
        node = int((answer.nominated_node or "").removeprefix("n"))
        if rule := oracle.broken(case, victims, node=node):
            yield f"simulate: n{node}: {[one.name for one in victims]}: {rule}"
        planned = found.candidates[0].victims if isinstance(found, Plan) and found.candidates else ()
        if {one.name for one in victims} != {one.pod.name for one in planned}:
            yield f"simulate takes {[one.name for one in victims]}, plan {[one.pod.name for one in planned]}"
    elif answer.result == "refused" and not _waits(case):
        why = answer.diagnosis.message if answer.diagnosis else ""
        yield from (
            f"simulate refuses ({why}), n{node} is feasible"
            for node in nodes[:1]
            if oracle.feasible(case, node)
        )


def _verdicts(case: Case) -> Iterator[str]:
    """Let the evictor judge each pod, or unit, in an order of its own."""
    for element in oracle.elements(case, case.pods):
        leaving = element[0].group and oracle.is_leaving(case, element[0].group)
        if leaving or len(element) > case.victims_per_order:
            continue
        node = element[0].node
        unit = _unit(case, element[0])
        simple = case.preemptor.daemon and not unit and node == case.preemptor.node
        expected = all(oracle.removable(case, pod, simple=simple) for pod in element)
        outcome, deleted = _evict(_evictor(case), _order(case, element, node))
        if expected != (outcome.result == "succeeded") or (deleted != set() and not expected):
            names = [pod.name for pod in element]
            yield f"evictor on {names}: {outcome.result} {outcome.message}; removable: {expected}"


def _capped(case: Case) -> Iterator[str]:
    """Let one evictor carry out an order for each pod, and count what it deletes within a minute."""
    if not case.on("caps"):
        return
    world, times = _evictor(case), list[datetime]()
    for number, pod in enumerate(case.pods):
        order = msgspec.structs.replace(_order(case, [pod], pod.node), order_id=f"ord-{number}")
        if not oracle.whole(case, pod):
            times += [one.deleted_at for one in _evict(world, order)[0].victims if one.deleted_at]
    for begun in times:
        number = sum(begun <= other < begun + timedelta(minutes=1) for other in times)
        if number > case.victims_per_order:
            yield f"evictor: {number} pods deleted in a minute, {case.victims_per_order} allowed"
            return


def _carried_out(case: Case, found: Plan) -> Iterator[str]:
    best = found.candidates[0]
    victims = [_pod(case, one.pod.name) for one in best.victims]
    if not victims:
        return
    order = _order(case, victims, int(best.node.removeprefix("n")))
    outcome, deleted = _evict(_evictor(case), order)
    if (outcome.result, deleted) != ("succeeded", {pod.name for pod in victims}):
        names = [pod.name for pod in victims]
        yield f"{names} of the plan: {outcome.result} {outcome.message}, {deleted} deleted"
    if case.on("breaker"):
        stopped = _evictor(case)
        stopped.breaker = lambda order: Refused("breaker-open", "the breaker is open")
        outcome, deleted = _evict(stopped, order)
        if outcome.result == "succeeded" or deleted:
            yield f"{deleted} deleted though the breaker is open"


def _quotas(case: Case) -> Iterator[str]:
    if not case.on("lowered-quota"):
        return
    for found in lowered(building.world(case).snapshot, building.tree(case, before=True), building.NOW):
        limit = case.queues[found.queue].maximum or 0
        victims = [_pod(case, one.name) for one in found.victims]
        left = oracle.used(case, found.queue, leaving=False)
        left -= oracle.freed_in(victims, found.queue)
        if rule := oracle.quota_broken(case, victims, found.queue):
            yield f"quota: {[pod.name for pod in victims]}: {rule}"
        if (found.quota.result in ("success", "notNeeded")) != (left <= limit):
            yield f"quota: {found.quota.result}, {left} of {limit} cores are left"
        if left > limit and oracle.quota_feasible(case, found.queue):
            yield f"quota: {found.quota.result}, though it can come down: {found.message}"
        for element in oracle.elements(case, victims):
            if left + oracle.freed_in(element, found.queue) <= limit:
                yield f"quota: {[pod.name for pod in element]} need not go"
        yield from _quota_carried_out(case, found.queue, victims)


def _quota_carried_out(case: Case, queue: str, victims: list[Pod]) -> Iterator[str]:
    for element in oracle.elements(case, victims):
        if len(element) > case.victims_per_order:
            continue
        order = _order(case, element, element[0].node)
        fence = replace_fence(order, "makeway-planner")
        order = msgspec.structs.replace(
            order, kind="quota", queue=queue, preemptor=None, node="", node_uid="", fence=fence
        )
        outcome, deleted = _evict(_evictor(case), order)
        if deleted != {pod.name for pod in element}:
            names = [pod.name for pod in element]
            yield f"quota: the evictor deletes {deleted} of {names}: {outcome.message}"


def replace_fence(order: EvictionOrder, name: str) -> Fence:
    """Return the fence of a part in makeway's namespace."""
    return msgspec.structs.replace(order.fence, namespace="makeway-system", name=name)


def _order(case: Case, victims: list[Pod] | oracle.Element, node: int) -> EvictionOrder:
    named = [
        orders.make_victim(
            pod.name,
            namespace=pod.namespace,
            uid=building.uid(pod),
            node=f"n{pod.node}",
            priority=oracle.priority_of(case, pod),
            unit=_unit(case, pod),
        )
        for pod in victims
    ]
    meant = case.preemptor
    preemptor = orders.make_preemptor(
        namespace=meant.namespace, name=meant.name, uid=building.uid(meant), priority=meant.priority
    )
    changes = {"writer": "makeway/nominator/n1", "fence": NOMINATORS} if case.on("external") else {}
    where = {"node": f"n{node}", "node_uid": f"node-{node}"}
    return orders.make_order(*named, preemptor=preemptor, **where, **changes)


def _unit(case: Case, pod: Pod) -> str:
    return f"PodGroup shop/{pod.group}" if pod.group and case.groups[pod.group].whole else ""


def _evict(world: World, order: EvictionOrder) -> tuple[Outcome, set[str]]:
    """Let an evictor carry out an order; return its outcome, and the pods that it has deleted so far."""
    cluster, urgent = world.cluster, world.cluster.pods["urgent"]
    status = msgspec.structs.replace(urgent.status, nominated_node_name=order.node)
    cluster.put(msgspec.structs.replace(urgent, status=status))
    outcome = asyncio.run(world.carry_out(order))
    return outcome, {*cluster.deletes(), *cluster.evictions()}


def _evictor(case: Case) -> World:
    """Return an evictor on the cluster."""
    pods = [msgspec.convert(building.running(case, pod), objects.Pod) for pod in case.pods]
    world = World(msgspec.convert(building.preemptor(case), objects.Pod), *pods)
    world.policy = building.policy(case)
    if case.queues:
        world.queues.offer(ConfigContent("queues.yaml", building.queues_text(case)))
    cluster = world.cluster
    for number in range(len(case.nodes)):
        metadata = objects.Metadata(name=f"n{number}", uid=f"node-{number}")
        cluster.nodes[f"n{number}"] = objects.Node(metadata=metadata)
    cluster.classes = building.classes(case)
    read = (msgspec.convert(one, objects.Namespace) for one in building.namespaces(case))
    cluster.namespaces = {one.metadata.name: one for one in read}
    cluster.tolerations = parse_record(building.record(case))
    cluster.group_api = PodGroupApi("v1beta1", "v1alpha3")
    for group in building.groups(case):
        known = msgspec.convert(group, PodGroup)
        cluster.groups[GroupKey("shop", known.metadata.name)] = group_record(known, composite=False)
    for daemonset in building.daemonsets(case):
        owner = daemonset_owner(msgspec.convert(daemonset, objects.DaemonSet))
        cluster.daemonsets[owner.namespace, owner.name] = owner
    return world


def _pod(case: Case, name: str) -> Pod:
    return next(pod for pod in case.pods if pod.name == name)
