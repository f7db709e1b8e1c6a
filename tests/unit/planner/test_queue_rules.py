"""Ordinary preemption between queues: maxima are not passed, guarantees are kept."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.quantity import MAX_INT64
from makeway.core.policy.document import Policy, QueueRules
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.amounts import over
from makeway.core.queues.quota_exemption import EXEMPT_NAMESPACE
from makeway.core.queues.tree import QueueTree
from makeway.core.queues.victims import run_to_end
from makeway.planner.commit.removable import removable_pods
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.quota.decide import answering
from makeway.planner.snapshot.changes import Adopt, Enforce, PutPod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, LOW, MID, NOW, ask, make_budget, make_node, make_pod, make_snapshot
from unit.planner.caching import plan


def pod(uid: str, path: str, node: str = "", priority: int = LOW, size: int = 100) -> PodRecord:
    return make_pod(uid, node, priority, size, labels={"queue": path}, facts=PodFacts(queue=path))


def snapshot_of(built: QueueTree, *pods: PodRecord, nodes: int = 1) -> Snapshot:
    snapshot = make_snapshot([make_node(f"n{number}") for number in range(1, nodes + 1)], pods)
    snapshot.apply(Adopt(built, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))
    return snapshot


def victims(result: Plan | PlanRefusal) -> dict[str, list[str]]:
    assert isinstance(result, Plan), result
    return {one.node: sorted(pod.pod.uid for pod in one.victims) for one in result.candidates}


def test_a_queue_at_its_guarantee_is_exempt_though_its_pods_are_less_important() -> None:
    built = tree(queue("a", guaranteed={"cpu": 300}), queue("b"), queue("p"))
    low = [pod(f"a{number}", "root.a", "n1", LOW) for number in range(3)]
    mid = [pod(f"b{number}", "root.b", "n1", MID) for number in range(2)]
    snapshot = snapshot_of(built, *low, *mid)

    result = plan(snapshot, ask(pod("new", "root.p", priority=HIGH)), NOW)

    assert victims(result)["n1"] in (["b0"], ["b1"])
    assert {one.pod.uid for one in as_a(Plan, result).candidates[0].removable} == {"b0", "b1"}


def test_victims_of_one_plan_together_leave_the_guarantee() -> None:
    built = tree(queue("a", guaranteed={"cpu": 250}), queue("p"))
    snapshot = snapshot_of(built, *(pod(f"a{number}", "root.a", "n1") for number in range(5)))

    one = plan(snapshot, ask(pod("small", "root.p", priority=HIGH, size=200)), NOW)
    refused = plan(snapshot, ask(pod("large", "root.p", priority=HIGH, size=300)), NOW)

    assert len(victims(one)["n1"]) == 2
    assert isinstance(refused, PlanRefusal)
    assert "queue-guaranteed" in refused.message
    assert refused.exempt == {"queue-guaranteed": 3}
    assert ("ConfigMap", "makeway-system", "makeway-queues") in refused.depends_on
    assert refused.retry_at == NOW + timedelta(minutes=1), "no event tells that the queue uses more elsewhere"


def test_what_live_orders_remove_no_longer_counts_towards_the_guarantee() -> None:
    built = tree(queue("a", guaranteed={"cpu": 300}), queue("p"))
    pods = [pod(f"a{number}", "root.a", "n1") for number in range(4)] + [pod("far", "root.a", "n2")]
    snapshot = snapshot_of(built, *pods, pod("b", "root.p", "n1", HIGH), nodes=2)
    preemptor = pod("new", "root.p", priority=MID, size=200)

    free = plan(snapshot, ask(preemptor, nodes=["n1"]), NOW)
    busy = plan(snapshot, ask(preemptor, nodes=["n1"], in_flight={"far": "ord-1"}), NOW)

    assert len(victims(free)["n1"]) == 2
    assert isinstance(busy, PlanRefusal)


def test_what_orders_have_just_removed_no_longer_counts_towards_the_guarantee() -> None:
    built = tree(queue("a", guaranteed={"cpu": 300}), queue("p"))
    pods = [pod(f"a{number}", "root.a", f"n{number % 2 + 1}") for number in range(6)]
    snapshot = snapshot_of(built, *pods, nodes=2)
    preemptor = pod("new", "root.p", priority=MID, size=400)

    assert len(victims(plan(snapshot, ask(preemptor, nodes=["n1"]), NOW))["n1"]) == 2
    refused = as_a(PlanRefusal, plan(snapshot, ask(preemptor, nodes=["n1"], leaving=["a1", "a3"]), NOW))

    assert refused.exempt == {"queue-guaranteed": 2}
    [near] = refused.nearest
    assert {one.verdict.detail for one in near.exempt.pods} == {
        "the pods of its queue on this node would together go below a guarantee"
    }


def test_a_preemptor_whose_queue_is_at_max_evicts_from_its_own_queue_only() -> None:
    built = tree(queue("p", maximum={"cpu": 200}), queue("b"))
    snapshot = snapshot_of(
        built,
        *(pod(f"p{number}", "root.p", "n1", MID) for number in range(2)),
        *(pod(f"b{number}", "root.b", "n1", LOW) for number in range(3)),
    )

    result = plan(snapshot, ask(pod("new", "root.p", priority=HIGH)), NOW)

    assert victims(result)["n1"] in (["p0"], ["p1"])


def test_a_preemptor_is_refused_where_its_queue_is_full_of_more_important_pods() -> None:
    built = tree(queue("p", maximum={"cpu": 200}), queue("b"))
    snapshot = snapshot_of(
        built,
        *(pod(f"p{number}", "root.p", "n1", HIGH) for number in range(2)),
        *(pod(f"b{number}", "root.b", "n1", LOW) for number in range(3)),
    )

    result = as_a(PlanRefusal, plan(snapshot, ask(pod("new", "root.p", priority=MID)), NOW))

    assert "Queue root.p at max: cpu 200m of 200m" in result.message
    assert ("Queue", "", "root.p") in result.depends_on
    assert "lacks" not in result.message, "no node lacks a queue's limit"


def test_an_ancestors_maximum_may_be_kept_by_evicting_from_a_sibling() -> None:
    built = tree(queue("team", queue("p"), queue("a"), maximum={"cpu": 300}), queue("b"))
    snapshot = snapshot_of(
        built,
        *(pod(f"a{number}", "root.team.a", "n1", MID) for number in range(3)),
        *(pod(f"b{number}", "root.b", "n1", LOW) for number in range(2)),
    )

    result = plan(snapshot, ask(pod("new", "root.team.p", priority=HIGH)), NOW)

    (gone,) = victims(result)["n1"]
    assert gone.startswith("a")


def test_where_no_queue_is_near_a_limit_the_plan_is_that_without_queues() -> None:
    built = tree(queue("p", maximum=10**6), queue("b", guaranteed={"cpu": 1}))
    pods = [pod(f"b{number}", "root.b", f"n{number % 3 + 1}") for number in range(12)]
    with_queues, without = snapshot_of(built, *pods, nodes=3), snapshot_of(built, *pods, nodes=3)
    without.apply(Adopt(None, ""))
    question = ask(pod("new", "root.p", priority=HIGH, size=300))

    assert victims(plan(with_queues, question, NOW)) == victims(plan(without, question, NOW))


def test_the_label_of_a_running_pod_takes_it_into_no_other_queue() -> None:
    built = tree(queue("a", guaranteed={"cpu": 300}), queue("b"), queue("p"))
    placed = {f"{name}{number}": name for name, many in (("a", 3), ("b", 2)) for number in range(many)}
    snapshot = snapshot_of(built, *(pod(uid, f"root.{name}", "n1") for uid, name in placed.items()))
    for uid, name in placed.items():
        snapshot.apply(PutPod(pod(uid, "root.b" if name == "a" else "root.a", "n1")))
    question = ask(pod("new", "root.p", priority=HIGH))

    found = as_a(Plan, plan(snapshot, question, NOW))

    goes = {one.pod.uid for one in found.candidates[0].removable}
    assert goes == {"b0", "b1"}
    assert removable_pods(snapshot, question, [snapshot.pods[uid] for uid in placed], NOW).keys() == goes


def test_the_label_of_a_running_pod_frees_nothing_of_another_queues_maximum() -> None:
    built = tree(queue("p", maximum={"cpu": 200}), queue("b"))
    snapshot = snapshot_of(built, pod("p0", "root.p", "n1"), pod("z0", "root.b", "n1"))
    snapshot.apply(PutPod(pod("z0", "root.p", "n1")))

    assert victims(plan(snapshot, ask(pod("new", "root.p", priority=HIGH, size=200)), NOW)) == {"n1": ["p0"]}


PATHS = ("root.t.a", "root.t.b", "root.c", "root.p")
AMOUNT = st.integers(0, 12)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PATHS), st.integers(1, 3), st.integers(1, 4), st.sampled_from([LOW, MID, HIGH])
        ),
        max_size=14,
    ),
    st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT),
    st.integers(0, 12),
    st.integers(1, 5),
)
def test_no_subset_of_the_removable_breaks_a_guarantee_and_the_victims_keep_the_maximum(
    running: list[tuple[str, int, int, int]], guaranteed: tuple[int, ...], maximum: int, size: int
) -> None:
    a, b, t, c = ({"cpu": amount} for amount in guaranteed)
    built = tree(
        queue("t", queue("a", guaranteed=a), queue("b", guaranteed=b), guaranteed=t),
        queue("c", guaranteed=c),
        queue("p", maximum={"cpu": maximum}),
    )
    pods = [
        pod(f"{number}", path, f"n{node}", priority, cpu)
        for number, (path, node, cpu, priority) in enumerate(running)
    ]
    snapshot = make_snapshot([make_node(f"n{number}", 12) for number in (1, 2, 3)], pods)
    snapshot.apply(Adopt(built, "queues-1"))
    preemptor = pod("new", "root.p", priority=MID, size=size)

    result = plan(snapshot, ask(preemptor), NOW)

    if isinstance(result, PlanRefusal):
        return
    for one in (*result.candidates, *result.unmodelled):
        usage, _ = snapshot.queues.without([each.pod.uid for each in one.removable])
        for each in one.removable:
            leaf = snapshot.queues.number_of(each.pod)
            for guard in built.line(leaf):
                if guard.path in ("root", "root.p"):
                    continue
                for name, least in guard.guaranteed.items():
                    assert usage.of(guard.number).get(name, 0) >= least
    for one in result.candidates:
        usage, _ = snapshot.queues.without([each.pod.uid for each in one.victims])
        own = built.at("root.p")
        usage.add(own.number, preemptor.requests)
        assert not over(usage.of(own.number), own.maximum)


def exempt_question(**given: object) -> Plan | PlanRefusal:
    """Ask for a pod whose queue is full of more important pods, beside one of another queue."""
    built = tree(queue("p", maximum={"cpu": 200}), queue("b"))
    snapshot = snapshot_of(
        built,
        *(pod(f"p{number}", "root.p", "n1", HIGH) for number in range(2)),
        *(pod(f"b{number}", "root.b", "n1", LOW) for number in range(3)),
    )
    policy = Policy(queues=QueueRules(exempt_namespaces=("infra",)))
    snapshot.apply(Enforce(policy, "r", ("ConfigMap", "makeway-system", "makeway-policy")))
    facts = {"priority": MID, "labels": {"queue": "root.p"}, "facts": PodFacts(queue="root.p"), **given}
    return plan(snapshot, ask(make_pod("new", size=100, **facts)), NOW)  # type: ignore[arg-type]


def test_a_preemptor_of_an_exempt_namespace_is_not_refused_for_its_full_queue() -> None:
    for namespace in ("infra", "makeway-system"):
        assert victims(exempt_question(namespace=namespace))["n1"] in (["b0"], ["b1"], ["b2"])
    assert isinstance(exempt_question(namespace="kube-system"), PlanRefusal)  # not in this policy


def test_a_preemptor_of_a_system_priority_is_not_refused_for_its_full_queue() -> None:
    assert victims(exempt_question(priority=2_000_000_000))["n1"] in (["b0"], ["b1"], ["b2"])


def test_a_quota_evicts_nothing_of_a_namespace_that_its_queue_does_not_hold() -> None:
    built = tree(queue("p", maximum={"cpu": 100}), queue("b"))
    snapshot = snapshot_of(
        built,
        *(
            make_pod(
                f"{namespace}-{number}",
                "n1",
                labels={"queue": "root.p"},
                namespace=namespace,
                facts=PodFacts(namespace=namespace, queue="root.p"),
            )
            for namespace in ("kube-system", "default")
            for number in range(2)
        ),
    )
    limited = built.at("root.p")

    inputs = QuotaInputs(
        decision_id="d",
        at=NOW,
        queue="root.p",
        maximum=dict(limited.maximum),
        mode="enforce",
        leaving=frozenset(),
    )
    found = run_to_end(answering(snapshot, built, inputs))

    assert {one.namespace for one in found.victims} == {"default"}
    assert [one.reason for one in found.plan.blocked] == [EXEMPT_NAMESPACE]


def test_what_a_hard_budget_keeps_uses_up_nothing_of_a_guarantee() -> None:
    def of_app(uid: str, priority: int) -> PodRecord:
        labels = {"queue": "root.a", "app": uid}
        return make_pod(uid, "n1", priority, 250, labels=labels, facts=PodFacts(queue="root.a"))

    policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))
    budget = make_budget("pdb", {"app": "kept"}, 0)
    snapshot = make_snapshot(["n1"], [of_app("kept", LOW), of_app("goes", MID)], [budget], policy=policy)
    snapshot.apply(Adopt(tree(queue("a", guaranteed={"cpu": 250}), queue("b")), "queues-1"))

    result = plan(snapshot, ask(pod("new", "root.b", priority=HIGH, size=250)), NOW)

    assert victims(result) == {"n1": ["goes"]}


def test_terminating_pods_that_request_more_than_64_bits_hold_fail_no_plan() -> None:
    built = tree(queue("p", maximum={"memory": 200}))
    huge = {"memory": MAX_INT64}
    going = [
        make_pod(uid, "n1", requests=huge, ends=10, facts=PodFacts(queue="root.p"))
        for uid in ("t1", "t2", "t3")
    ]
    snapshot = snapshot_of(built, *going, pod("p1", "root.p", "n1"))

    assert victims(plan(snapshot, ask(pod("new", "root.p", priority=HIGH)), NOW)) == {"n1": []}
