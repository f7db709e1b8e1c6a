"""What a tenant is shown: every field and sentence of an answer, without names of other namespaces."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from makeway.bus.comparison import Comparison
from makeway.bus.messages import (
    Awaited,
    DecisionRecord,
    Dependency,
    EvictionOrder,
    GroupDecision,
    NearNode,
    Obstacle,
    OrderedGroup,
    OrderMember,
    Outcome,
    PodRef,
    Preemptor,
    RankedCandidate,
    Refusal,
    Rollback,
    Spared,
    Victim,
    VictimOutcome,
)
from makeway.bus.queue_report import QueueReport, QueueState, QuotaEnd, QuotaProcess, QuotaWaiting
from makeway.cli.apiserver.tenant_view import TenantView
from makeway.cli.text import HIDDEN
from makeway.cli.why.command import _lines
from makeway.cli.why.explanation import Explanation
from makeway.cli.why.story import Story
from makeway.core.k8s.disruption import PREEMPTION_HELD
from makeway.core.k8s.objects import PodCondition
from makeway.dev.samples import MESSAGES
from makeway.planner.offline.results import (
    Change,
    Counterfactual,
    Pending,
    SimulatedPod,
    SimulationReport,
)

OWN = "shop"
SECRETS = ("bank", "ledger", "uid-of-ledger")
FOREIGN: dict[str, Any] = {"namespace": "bank", "name": "ledger", "uid": "uid-of-ledger"}
SENTENCE = (
    "bank/ledger stays: PodDisruptionBudget bank/ledger; asked by shop/cart for nvidia.com/gpu, 0/3 nodes"
)

foreign = Victim(
    **FOREIGN,
    node="n1",
    priority=5,
    grace_period_seconds=0,
    rule="lower-priority",
    detail=SENTENCE,
    unit="bank/ledger",
)
own = replace(foreign, namespace=OWN, name="cart", uid="uid-of-cart")
preemptor = Preemptor(**FOREIGN, priority=9, scheduler_name="s")
ours = Preemptor(namespace=OWN, name="cart", uid="uid-of-cart", priority=9, scheduler_name="s")
spared = Spared(**FOREIGN, priority=5, rule="r", detail=SENTENCE)
refusal = Refusal(
    reason="NoVictims",
    message=SENTENCE,
    node_reasons={SENTENCE: 3},
    depends_on=(Dependency(kind="PodDisruptionBudget", name="ledger", namespace="bank"),),
)
near = NearNode(
    node="n1", spared=(spared, replace(spared, namespace=OWN, name="cart", uid="u")), spared_total=2
)
candidate = RankedCandidate(
    node="n1", victims=(foreign, own), awaited=(Awaited(uid="uid-of-ledger", order_id="o"),), spared=(spared,)
)


def sample(name: str, kind: type[Any]) -> Any:
    found = MESSAGES[name]
    assert isinstance(found, kind)
    return found


def story() -> Story:
    order: EvictionOrder = sample("order.full", EvictionOrder)
    outcome: Outcome = sample("outcome.full", Outcome)
    record: DecisionRecord = sample("decision.full", DecisionRecord)
    became = VictimOutcome(**FOREIGN, result="failed", message=SENTENCE)
    return Story(
        order=replace(
            order,
            preemptor=preemptor,
            victims=(own, foreign),
            awaited=candidate.awaited,
            nominations_to_clear=(PodRef(**FOREIGN),),
        ),
        outcome=replace(
            outcome,
            preemptor_uid="uid-of-ledger",
            message=SENTENCE,
            victims=(became,),
            nominations_cleared=("uid-of-ledger",),
            rollback=Rollback(conditions_cleared=("uid-of-ledger",)),
        ),
        decision=replace(
            record,
            preemptor=preemptor,
            victims=(own, foreign),
            candidates=(candidate,),
            diagnosis=refusal,
            nearest=(near,),
        ),
    )


def simulated() -> SimulatedPod:
    return SimulatedPod(
        namespace=OWN,
        name="cart",
        result="refused",
        preemptor=ours,
        queue="root.shop",
        mode="enforce",
        node=None,
        nominated_node=None,
        victims=(foreign, own),
        pdb_violations=0,
        candidates=(candidate,),
        candidates_total=1,
        diagnosis=refusal,
        spared_by_rule={"r": 1},
        nearest=(near,),
        nodes_total=3,
        nodes_fitting=0,
        nodes_potential=3,
        nodes_excluded={SENTENCE: 1},
        warnings=(SENTENCE,),
    )


def change(kind: Any, what: str) -> Counterfactual:
    changes = (Change(kind=kind, text=f"{what}: more", object=what, field="f", now=[1], then=[2]),)
    return Counterfactual(changes=changes, node="n1", victims=(foreign,), at=None)


def explained() -> Explanation:
    comparison: Comparison = sample("comparison.full", Comparison)
    assert comparison.makeway is not None
    choice = replace(comparison.makeway, victims=(own, foreign))
    other = replace(
        comparison,
        preemptor=preemptor,
        makeway=choice,
        default_preemption=choice,
        refusal=refusal,
        note=SENTENCE,
    )
    changes = (
        change("priority", "pod"),
        change("disruption-budget", "PodDisruptionBudget bank/ledger"),
        change("disruption-budget", "PodDisruptionBudget shop/web"),
        change("queue-guaranteed", "queue root.bank"),
        change("policy", "policy"),
    )
    return Explanation(
        state="pending",
        namespace=OWN,
        name="cart",
        uid="uid-of-cart",
        taken_by=(story(),),
        made_room=(story(),),
        pending=Pending(answer=simulated(), unblocked_by=changes),
        last_decision=story().decision,
        preempted_by_others=(other,),
        served_by_others=(other,),
    )


def assert_hidden(answer: Any) -> None:
    text = json.dumps(msgspec.to_builtins(answer, str_keys=True))
    for secret in SECRETS:
        assert secret not in text


def test_no_field_and_no_sentence_of_an_explanation_names_another_namespaces_pod() -> None:
    shown = TenantView(OWN).explanation(explained())

    assert_hidden(shown)
    assert "\n".join(_lines(shown)).count(HIDDEN)
    assert "shop/cart" in "\n".join(_lines(shown))
    assert shown.taken_by[0].order.victims[0].name == "cart"
    assert msgspec.json.decode(msgspec.json.encode(shown), type=Explanation) == shown


def test_a_tenant_is_told_what_holds_the_order_for_a_pod() -> None:
    held = PodCondition(type=PREEMPTION_HELD, status="True", reason="Budget", message="until 12:00")

    shown = TenantView(OWN).explanation(replace(explained(), pending=None, state="pending", waits_for=held))

    assert "  its order waits: Budget: until 12:00" in _lines(shown)


def test_no_pod_group_of_another_namespace_is_named_where_its_order_took_the_tenants_pod() -> None:
    group = OrderedGroup(**FOREIGN, priority=9, scheduler_name="s", must_place=2)
    member = OrderMember(**FOREIGN, node="n1")
    told = story()
    assert told.decision is not None
    plan = GroupDecision(members=2, awaited=candidate.awaited)
    told = Story(
        order=replace(
            told.order, kind="group", preemptor=None, queue="root.bank", group=group, members=(member,)
        ),
        outcome=told.outcome,
        decision=replace(
            told.decision, kind="group", preemptor=None, queue="root.bank", group=group, group_plan=plan
        ),
    )
    answer = replace(explained(), pending=None, last_decision=None, taken_by=(told,), made_room=())

    shown = TenantView(OWN).explanation(answer)

    assert_hidden(shown)
    assert f"for:   group {HIDDEN}" in "\n".join(_lines(shown))


def test_the_queue_of_another_namespaces_pod_is_told_neither_by_itself_nor_in_its_detail() -> None:
    told = story()
    assert told.decision is not None
    detail = "root.bank keeps 3 CPUs of its guarantee"
    told = Story(
        order=replace(told.order, queue="root.bank", victims=(replace(foreign, detail=detail),)),
        outcome=None,
        decision=replace(told.decision, queue="root.bank"),
    )

    shown = TenantView(OWN).explanation(replace(explained(), taken_by=(told,)))

    assert "root.bank" not in json.dumps(msgspec.to_builtins(shown.taken_by, str_keys=True))


def test_of_a_pod_of_another_namespace_that_stays_no_words_are_told_that_name_it_or_its_queue() -> None:
    refused = 'pods "ledger-0" is forbidden: the disruption budget ledger needs 3 healthy pods'
    outcome = replace(sample("outcome.full", Outcome), message=f"bank/ledger-0: 403 Forbidden: {refused}")
    became = (
        VictimOutcome(**FOREIGN, result="failed", reason="Forbidden", message=f"403 Forbidden: {refused}"),
        VictimOutcome(**FOREIGN, result="spared", reason="queue-guaranteed", message="root.bank keeps cpu 3"),
        VictimOutcome(namespace=OWN, name="cart", uid="u", result="failed", message="403 Forbidden: cart"),
    )
    told = replace(story(), outcome=replace(outcome, victims=became))

    shown = TenantView(OWN).explanation(replace(explained(), made_room=(told,)))

    assert_hidden(shown)
    assert shown.made_room[0].outcome is not None
    assert [one.message for one in shown.made_room[0].outcome.victims] == [
        "403 Forbidden",
        "",
        "403 Forbidden: cart",
    ]


def test_changes_that_name_what_is_not_the_tenants_are_left_out() -> None:
    shown = TenantView(OWN).explanation(explained())

    assert shown.pending is not None
    assert [one.changes[0].object for one in shown.pending.unblocked_by] == [
        "pod",
        "PodDisruptionBudget shop/web",
    ]


def test_a_simulation_says_how_many_would_go_and_names_the_tenants_own() -> None:
    report = SimulationReport(
        at=story().order.created_at,
        nodes=3,
        policy_revision="",
        queues_revision="",
        groups=(),
        pods=(simulated(),),
        quotas=(),
        warnings=("pod bank/ledger is left out",),
    )

    shown = TenantView(OWN).simulation(report)

    assert_hidden(shown)
    assert [(one.name, one.priority) for one in shown.pods[0].victims] == [(HIDDEN, 5), ("cart", 5)]
    assert shown.pods[0].victims[0].uid == shown.pods[0].candidates[0].victims[0].uid


def test_a_tenant_sees_the_queues_that_its_pods_may_use_and_those_above() -> None:
    at = story().order.created_at
    wait = QuotaWaiting(reason="unavailable", message=SENTENCE, since=at, until=at)
    end = QuotaEnd(
        result="bestEffort", at=at, message=SENTENCE, blocked=(Obstacle(reason="r", message=SENTENCE),)
    )
    report = QueueReport(
        api_version="v1",
        planner="p",
        at=at,
        revision="1",
        misplaced=7,
        queues=(
            QueueState(path="root", namespaces=("unknown",)),
            QueueState(path="root.bank", namespaces=("bank",)),
            QueueState(path="root.bank.ledger", namespaces=("bank",)),
            QueueState(path="root.both", namespaces=("bank", OWN), last=end),
            QueueState(
                path="root.open",
                process=QuotaProcess(since=at, order_id="o", waits_for=("root.bank",), waiting=wait),
            ),
        ),
    )

    shown = TenantView(OWN).queues(report, "root")

    assert_hidden(shown)
    assert [one.path for one in shown.queues] == ["root", "root.both", "root.open"]
    assert shown.queues[1].namespaces == (OWN,)
    assert [one.path for one in TenantView(OWN).queues(report, "root.open").queues] == ["root.open"]
    assert TenantView(OWN).queues(report, "root.bank").unknown


def test_what_a_quota_waits_for_names_no_namespace_to_a_tenant() -> None:
    at = story().order.created_at
    for reason, message in (
        ("victims-per-namespace", "3 more victims in namespace bank than the 20 of the last minute"),
        ("mode-off", "root.both uses pods 3 of at most pods 1; the brake holds bank, ledger"),
    ):
        wait = QuotaWaiting(reason=reason, message=message, since=at, until=at)
        process = QuotaProcess(since=at, waiting=wait)
        queue = QueueState(path="root.both", namespaces=("bank", OWN), process=process)
        report = QueueReport(api_version="v1", planner="p", at=at, revision="1", queues=(queue,))

        (shown,) = TenantView(OWN).queues(report, "root").queues

        assert shown.process is not None
        assert shown.process.waiting == replace(wait, message=f"it waits ({reason})")


def test_where_pods_without_a_queue_are_held_a_tenant_with_queues_sees_no_open_ones() -> None:
    paths = ("root", "root.@unplaced", "root.bank", "root.shop", "root.shop.web", "root.shopping")
    report = QueueReport(
        api_version="v1",
        planner="p",
        at=story().order.created_at,
        queues=tuple(QueueState(path=path) for path in paths),
    )

    shown = TenantView(OWN).queues(report, "root")

    assert [one.path for one in shown.queues] == ["root", "root.shop", "root.shop.web"]
    assert len(TenantView("other").queues(report, "root").queues) == len(paths)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0/3 nodes are available: nvidia.com/gpu, topology.kubernetes.io/zone", None),
        ("pod shop/cart: shop/cart-1 stays", None),
        ("without bank/ledger-0, shop/cart", f"without {HIDDEN}, shop/cart"),
        ("PDB 7/ledger: one more", f"PDB {HIDDEN}: one more"),
        ("(bank/ledger)", f"({HIDDEN})"),
    ],
)
def test_a_name_in_a_sentence_is_told_from_what_looks_like_one(text: str, shown: str | None) -> None:
    assert TenantView(OWN).text(text) == (shown or text)
