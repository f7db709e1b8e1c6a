"""Hold `makeway simulate` against kube-scheduler: a pod as it was written, a cluster as dumped."""

from collections.abc import Iterator

from msgspec.structs import replace

from differential.case import NOW, UPSTREAM, Case, Victims
from differential.compare import Disagreement, Ranking, plans_alike, ranked_alike
from makeway.planner.offline.manifests import NewPod
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World


def world_of(case: Case) -> World:
    """Read the cluster as `simulate` does; a pod that is only placed in memory is on its node.

    A claim without a volume is given one: the scheduler here asks no binder of volumes, and `simulate`
    refuses what would wait for one.
    """
    world = World()
    world.enforce(UPSTREAM, "upstream")
    claims = [
        one if one.spec.volume_name else replace(one, spec=replace(one.spec, volume_name="bound"))
        for one in case.claims
    ]
    for items in (
        *(case.namespaces, case.nodes, case.budgets, claims, case.volumes),
        *(case.composite_pod_groups, case.pod_groups),
    ):
        for item in items:
            world.put(item)
    for pod in case.pods:
        node = case.assumed.get(pod.metadata.uid)
        world.put(pod if node is None else replace(pod, spec=replace(pod.spec, node_name=node)))
    return world


def disagreements(case: Case) -> Iterator[Disagreement]:
    """Return on what the two differ; nothing without a pod as written, or without all columns."""
    if case.written is None or not plans_alike(case):
        return
    answer, ranking = case.answer, Ranking(case)
    ours = Simulation(world_of(case), NOW, namespace="default").run(NewPod(case.written, "written"))
    theirs = "fits" if answer.fits else "refused"
    if answer.candidates and not answer.fits:
        theirs = "preempts" if answer.candidates[answer.chosen].uids else "waits"
    if (ours.result, ours.nodes_fitting) != (theirs, len(answer.fits)):
        detail = (
            f"theirs {theirs} with {len(answer.fits)} nodes, ours {ours.result} with {ours.nodes_fitting}"
        )
        yield Disagreement("simulated result", ours.node or ours.nominated_node or "", detail)
    elif theirs == "fits" and ours.node not in answer.fits:
        yield Disagreement("simulated node", ours.node or "", f"theirs {answer.fits}")
    elif theirs == "preempts" and ranked_alike(case):
        chosen = ranking.of(answer.candidates[answer.chosen])
        best = ranking.of(Victims(tuple(one.uid for one in ours.victims), ours.pdb_violations))
        if chosen != best:
            detail = f"theirs {answer.chosen} {chosen}, ours {ours.nominated_node} {best}"
            yield Disagreement("simulated choice", answer.chosen, detail)
