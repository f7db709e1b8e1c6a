"""One message of every kind and shape, made up: the golden files, and the examples of the reference.

`minimal` has the required fields alone, `full` every field, with text that encoders differ about.
`MALFORMED` is what both sides must refuse, each for the reason that stands first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from makeway.bus import codec
from makeway.bus.commit import CommitReply, CommitRequest, Offer, offered
from makeway.bus.comparison import Choice, ComparedGroup, Comparison
from makeway.bus.component_status import ComponentStatus
from makeway.bus.control import ControlState, EnforcedQuota, Limits, QueueLimit, SettledQuota, Unplanned
from makeway.bus.decisions import (
    DecisionRecord,
    GroupDecision,
    NearNode,
    Obstacle,
    PricedDomain,
    QueueShare,
    QuotaDecision,
    RankedCandidate,
    Spared,
)
from makeway.bus.envelope import Envelope
from makeway.bus.group_plan import (
    MOST_TOPOLOGY_KEYS,
    GroupPlan,
    GroupPlanReply,
    GroupPlanRequest,
    GroupPreemptor,
    GroupPrice,
    GroupVictim,
    MemberClass,
    MemberPlacement,
    TopologyDomain,
)
from makeway.bus.messages import (
    API_VERSION,
    MOST_MEMBERS,
    Awaited,
    Begun,
    BegunUnit,
    ClosedDomain,
    EvictionOrder,
    Fence,
    Message,
    NominationToClear,
    OrderedGroup,
    OrderMember,
    Outcome,
    Placement,
    Preemptor,
    Rollback,
    StreamPosition,
    Victim,
    VictimFacts,
    VictimOutcome,
    Void,
)
from makeway.bus.plan import (
    Candidate,
    Dependency,
    NodeSelection,
    PlanReply,
    PlanRequest,
    Profile,
    Refusal,
    Removable,
)

_AT: Final = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
_LATER: Final = datetime(2026, 1, 31, 12, 0, 0, 250_040, tzinfo=UTC)
_ODD_TEXT: Final = (
    '<b>&amp;</b> "quoted" back\\slash / tab\t line\n \x01\x7f grüße 漢字 \N{GRINNING FACE} \u2028\u2029'
)

_CLUSTER: Final = "7d7a0f0e-5a5c-4c9b-9b7f-0c6f3f6f2f10"
_URGENT: Final = "0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c001"
_BATCH_A: Final = "0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c002"
_BATCH_B: Final = "0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c003"
_OTHER: Final = "0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c004"
_ORDER: Final = "ord-01kg9w8000zzzzzzzzzzzzzzzz"
_OTHER_ORDER: Final = "ord-01kg9w7zzz0000000000000000"
_DECISION: Final = "dec-01kg9w8000yyyyyyyyyyyyyyyy"
_REQUEST: Final = "req-01kg9w8000xxxxxxxxxxxxxxxx"
_PLANNER: Final = "planner-0_1_3f2a9c10"
_EVICTOR: Final = "evictor-0_1_77b0aa42"
_SCHEDULER: Final = "control-plane-1_1_a0b1c2d3"
_NOMINATOR: Final = "makeway/nominator/nominator-0_1_9a8b7c6d"

_CLOSED: Final = ClosedDomain(rule="podAntiAffinity", key="example.com/rack", value="r1")
_POD: Final = msgspec.Raw(
    b'{"metadata":{"name":"urgent","namespace":"shop","uid":"' + _URGENT.encode() + b'",'
    b'"annotations":{"note":"a < b & c > d"}},"spec":{"priority":1000,"schedulerName":"default-scheduler",'
    b'"containers":[{"name":"main","resources":{"requests":{"cpu":"2","memory":"1Gi"}}}]}}'
)

_PREEMPTOR: Final = Preemptor(
    namespace="shop", name="urgent", uid=_URGENT, priority=1000, scheduler_name="default-scheduler"
)
_AWAITED: Final = Awaited(uid=_OTHER, order_id=_OTHER_ORDER)
_TERMINATING: Final = Awaited(uid=_BATCH_B, namespace="batch", name="batch-b", until=_AT)
_VICTIM_A: Final = Victim(
    namespace="batch",
    name="batch-a",
    uid=_BATCH_A,
    node="node-1",
    priority=-100,
    grace_period_seconds=30,
    rule="lower-priority",
    facts=VictimFacts(resource_version="90210", priority_class="batch", scheduled_at=_AT, never_evict=True),
)
_VICTIM_B: Final = Victim(
    namespace="batch",
    name="batch-b",
    uid=_BATCH_B,
    node="node-1",
    priority=0,
    grace_period_seconds=0,
    rule="lower-priority",
    pdb_violating=True,
    assumed=True,
    detail="regular, gives cpu 2 of 3 needed; one of 2, at most 10",
)
_OUTCOMES_READ: Final = StreamPosition(created="2026-01-30T08:15:00.123456789Z", sequence=512)
_REFUSAL: Final = Refusal(
    reason="NoVictims",
    message=_ODD_TEXT,
    node_reasons={"NothingRemovable": 3, "DoesNotFitEmpty": 12},
    retry_at=_LATER,
    depends_on=(
        Dependency(kind="PodDisruptionBudget", name="batch", namespace="batch"),
        Dependency(kind="PriorityClass", name="urgent"),
    ),
)

_REQUEST_MINIMAL: Final = PlanRequest(
    api_version=API_VERSION,
    request_id=_REQUEST,
    cluster_uid=_CLUSTER,
    mode="enforce",
    timeout_milliseconds=100,
    max_candidates=16,
    profile=Profile(name="default-scheduler"),
    pod=_POD,
    nodes=NodeSelection(),
)
_REQUEST_FULL: Final = msgspec.structs.replace(
    _REQUEST_MINIMAL,
    mode="observe",
    profile=Profile(
        name="default-scheduler",
        filters=("NodeUnschedulable", "NodeName", "NodeResourcesFit"),
        filter_args={
            "PodTopologySpread": msgspec.Raw(b'{"defaultingType":"System"}'),
            "NodeResourcesFit": msgspec.Raw(b'{"ignoredResources":["example.com/<x>"]}'),
        },
    ),
    nodes=NodeSelection(names=("node-7", "node-8"), all_but=True),
    nominations=(Placement(namespace="shop", name="earlier", uid=_OTHER, node="node-2"),),
    assumed=(Placement(namespace="shop", name="placed", uid=_BATCH_B, node="node-3"),),
    seen={"nodes": 40_961, "pods": 41_003},
    ahead=True,
    ignore_columns=True,
    outcomes_read=_OUTCOMES_READ,
)
_REPLY_CANDIDATES: Final = PlanReply(
    api_version=API_VERSION,
    request_id=_REQUEST,
    planner=_PLANNER,
    status="candidates",
    snapshot_revision=9_007_199_254_740_993,
    policy_revision="sha256:00ff",
    decision_id=_DECISION,
    candidates=(
        Candidate(
            node="node-1",
            removable=(
                Removable(
                    uid=_BATCH_B, rule="lower-priority", victim=True, pdb_violating=True, lost_work=3_600_000
                ),
                Removable(uid=_BATCH_A, rule="lower-priority"),
                Removable(
                    uid=_OTHER, rule="lower-group-priority", unit="PodGroup batch/train", node="node-7"
                ),
            ),
            awaited=(_AWAITED, _TERMINATING),
            pdb_violations=1,
            max_victims=10,
        ),
        Candidate(node="node-2"),
    ),
    unmodelled=(Candidate(node="node-9", removable=(Removable(uid=_OTHER, rule="lower-priority"),)),),
    unmodelled_total=40,
)
_GROUP_REQUEST_MINIMAL: Final = GroupPlanRequest(
    api_version=API_VERSION,
    request_id=_REQUEST,
    cluster_uid=_CLUSTER,
    mode="enforce",
    timeout_milliseconds=100,
    profile=Profile(name="default-scheduler"),
    group=GroupPreemptor(namespace="shop", name="train", uid=_URGENT, priority=1000),
    classes=(MemberClass(pod=_POD, count=8, nodes=NodeSelection()),),
    must_place=8,
)
_GROUP_REQUEST_FULL: Final = msgspec.structs.replace(
    _GROUP_REQUEST_MINIMAL,
    mode="observe",
    profile=Profile(
        name="default-scheduler",
        filters=("NodeResourcesFit",),
        filter_args={"NodeResourcesFit": msgspec.Raw(b'{"ignoredResources":["example.com/<x>"]}')},
    ),
    classes=(
        MemberClass(pod=_POD, count=1, nodes=NodeSelection(names=("node-7",), all_but=True)),
        MemberClass(pod=_POD, count=6, nodes=NodeSelection(names=("node-1", "node-2"))),
        MemberClass(pod=_POD, count=1, nodes=NodeSelection(), same_nodes_as=1),
    ),
    must_place=5,
    topology=("topology.kubernetes.io/zone",),
    placed=(Placement(namespace="shop", name="train-0", uid=_BATCH_B, node="node-3"),),
    nominations=(Placement(namespace="shop", name="earlier", uid=_OTHER, node="node-2"),),
    assumed=(Placement(namespace="shop", name="train-0", uid=_BATCH_B, node="node-3"),),
    seen={"nodes": 40_961, "pods": 41_003},
    outcomes_read=_OUTCOMES_READ,
)
_GROUP_REPLY_CANDIDATES: Final = GroupPlanReply(
    api_version=API_VERSION,
    request_id=_REQUEST,
    planner=_PLANNER,
    status="candidates",
    snapshot_revision=17,
    policy_revision="sha256:00ff",
    decision_id=_DECISION,
    plan=GroupPlan(
        placements=(
            MemberPlacement(member_class=1, node="node-1", count=4),
            MemberPlacement(member_class=0, node="node-2", count=1),
        ),
        victims=(
            GroupVictim(uid=_BATCH_B, node="node-1", rule="lower-priority", pdb_violating=True),
            GroupVictim(
                uid=_BATCH_A, node="node-7", rule="lower-group-priority", unit="PodGroup batch/train"
            ),
            GroupVictim(uid=_OTHER, node="node-8", rule="lower-priority", closes=_CLOSED),
        ),
        awaited=(_AWAITED,),
        domains=(TopologyDomain(key="topology.kubernetes.io/zone", value=""),),
        price=GroupPrice(
            pdb_violations=1,
            highest_priority=-100,
            groups_broken=1,
            highest_victims=1,
            priority_sum=4_294_967_196,
            victims=3,
            lost_work_seconds=7_200,
        ),
    ),
    left_to_verification=("pod-affinity",),
)
_ORDER_MINIMAL: Final = EvictionOrder(
    order_id=_ORDER,
    kind="quota",
    cluster_uid=_CLUSTER,
    fence=Fence(kind="kv", name="makeway-planner", epoch=0),
    writer=_PLANNER,
    created_at=_AT,
    not_after=_AT + timedelta(seconds=60),
)
_ORDER_FULL: Final = EvictionOrder(
    order_id=_ORDER,
    kind="pod",
    cluster_uid=_CLUSTER,
    fence=Fence(kind="lease", name="makeway-scheduler", namespace="kube-system", epoch=3),
    writer=_SCHEDULER,
    created_at=_LATER,
    not_after=_LATER + timedelta(seconds=60),
    preemptor=_PREEMPTOR,
    queue="root.shop",
    node="node-1",
    node_uid="0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c0ff",
    decision_id=_DECISION,
    victims=(_VICTIM_A, _VICTIM_B),
    awaited=(_AWAITED,),
    nominations_to_clear=(NominationToClear(namespace="shop", name="earlier", uid=_OTHER),),
    pdb_violations=1,
    store_by=_LATER + timedelta(seconds=5),
)
_ORDER_VOID: Final = msgspec.structs.replace(
    _ORDER_MINIMAL, queue="root.shop", not_after=_AT, void=Void(reason="late", message=_ODD_TEXT)
)
_OFFER_MINIMAL: Final = Offer(decision_id=_DECISION, cluster_uid=_CLUSTER, preemptor_uid=_URGENT, at=_AT)
_OFFER_FULL: Final = msgspec.structs.replace(
    _OFFER_MINIMAL,
    pods=offered([("node-1", _BATCH_A), ("node-1", _BATCH_B)]),
    daemonset_node="node-1",
    unfit_since=_AT,
    closing={_OTHER: _CLOSED},
)
_ORDER_GROUP: Final = EvictionOrder(
    order_id=_ORDER,
    kind="group",
    cluster_uid=_CLUSTER,
    fence=Fence(kind="lease", name="makeway-scheduler", namespace="kube-system", epoch=3),
    writer=_SCHEDULER,
    created_at=_LATER,
    not_after=_LATER + timedelta(seconds=60),
    queue="root.shop",
    decision_id=_DECISION,
    victims=(
        _VICTIM_A,
        msgspec.structs.replace(_VICTIM_B, node="node-2", unit="PodGroup batch/train"),
        msgspec.structs.replace(_VICTIM_A, name="blocker", uid=_OTHER, node="node-3", closes=_CLOSED),
    ),
    awaited=(_AWAITED,),
    nominations_to_clear=(NominationToClear(namespace="shop", name="earlier", uid=_OTHER, node="node-2"),),
    pdb_violations=1,
    group=OrderedGroup(
        namespace="shop",
        name="train-7",
        uid=_URGENT,
        priority=1000,
        scheduler_name="default-scheduler",
        must_place=2,
        min_count=3,
    ),
    members=(
        OrderMember(
            namespace="shop",
            name="train-7-a",
            uid="0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c011",
            node="node-1",
            node_uid="0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c0ff",
        ),
        OrderMember(
            namespace="shop", name="train-7-b", uid="0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c012", node="node-2"
        ),
    ),
)
_COMMIT_MINIMAL: Final = CommitRequest(
    api_version=API_VERSION,
    order_id=_ORDER,
    cluster_uid=_CLUSTER,
    bridge=_NOMINATOR,
    fence=Fence(kind="lease", name="makeway-nominator", namespace="makeway-system", epoch=3),
    offer="{}",
    placements=(
        OrderMember(
            namespace="shop",
            name="urgent",
            uid=_URGENT,
            node="node-1",
            node_uid="0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c0ff",
        ),
    ),
    store_by=_LATER + timedelta(seconds=5),
)
_COMMIT_FULL: Final = msgspec.structs.replace(
    _COMMIT_MINIMAL,
    placements=_ORDER_GROUP.members,
    group=_ORDER_GROUP.group,
    after=17,
    victims=(_BATCH_A,),
    awaited=(_AWAITED, _TERMINATING),
    in_memory=(_OTHER,),
    lasts_seconds=60,
)
_COMMIT_STORED: Final = CommitReply(
    api_version=API_VERSION, order_id=_ORDER, planner=_PLANNER, status="stored", order=_ORDER_FULL
)
_COMMIT_VOID: Final = CommitReply(
    api_version=API_VERSION,
    order_id=_ORDER,
    planner=_PLANNER,
    status="void",
    void=Void(reason="preemptor-gone", message=_ODD_TEXT),
)
_BEGUN_MINIMAL: Final = Begun(order_id=_ORDER, cluster_uid=_CLUSTER, at=_AT, units=(), priority=1000)
_BEGUN_FULL: Final = Begun(
    order_id=_ORDER,
    cluster_uid=_CLUSTER,
    at=_AT,
    units=(
        BegunUnit(unit="PodGroup batch/night", first=_BATCH_A, priority=10),
        BegunUnit(unit="CompositePodGroup batch/day", first=_OTHER),
    ),
    priority=-(2**31),
    namespace="shop",
    daemonset_node="node-1",
)
_OUTCOME_MINIMAL: Final = Outcome(
    order_id=_ORDER,
    kind="pod",
    cluster_uid=_CLUSTER,
    epoch=3,
    result="expired",
    evictor=_EVICTOR,
    started_at=_AT,
    finished_at=_AT,
)
_OUTCOME_FULL: Final = Outcome(
    order_id=_ORDER,
    kind="pod",
    cluster_uid=_CLUSTER,
    epoch=3,
    result="failed",
    evictor=_EVICTOR,
    started_at=_AT,
    finished_at=_LATER,
    preemptor_uid=_URGENT,
    node="node-1",
    queue="root.shop",
    reason="DeleteRefused",
    message=_ODD_TEXT,
    retry_at=_LATER,
    room=80,
    deliveries=2,
    victims=(
        VictimOutcome(
            namespace="batch",
            name="batch-a",
            uid=_BATCH_A,
            result="deleted",
            attempts=2,
            grace_period_seconds=30,
            deleted_at=_LATER,
        ),
        VictimOutcome(
            namespace="batch",
            name="batch-b",
            uid=_BATCH_B,
            result="failed",
            reason="Forbidden",
            message="admission refused it",
            attempts=1,
        ),
        VictimOutcome(namespace="batch", name="batch-c", uid=_OTHER, result="notAttempted"),
    ),
    nominations_cleared=(_OTHER,),
    rollback=Rollback(nomination_reverted=True, conditions_cleared=(_BATCH_B,)),
)
_OUTCOME_GROUP: Final = Outcome(
    order_id=_ORDER,
    kind="group",
    cluster_uid=_CLUSTER,
    epoch=3,
    result="failed",
    evictor=_EVICTOR,
    started_at=_AT,
    finished_at=_LATER,
    preemptor_uid=_URGENT,
    reason="delete-refused",
    message="batch/batch-a: admission refused it",
    deliveries=1,
    victims=(
        VictimOutcome(namespace="batch", name="batch-a", uid=_BATCH_A, result="failed", reason="refused"),
    ),
    rollback=Rollback(
        conditions_cleared=(_BATCH_A,), nominations_reverted=("0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c011",)
    ),
)
_DECISION_MINIMAL: Final = DecisionRecord(
    decision_id=_DECISION,
    request_id=_REQUEST,
    kind="pod",
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_AT,
    mode="off",
    status="notSynced",
    snapshot_revision=0,
)
_SPARED: Final = Spared(
    namespace="batch",
    name="train-0",
    uid="uid-train-0",
    priority=100,
    rule="preemption-toleration",
    detail="1000 < minimum-preemptable-priority 10000 of PriorityClass steady, for 600 s",
    until=_LATER,
)
_DECISION_FULL: Final = DecisionRecord(
    decision_id=_DECISION,
    request_id=_REQUEST,
    kind="pod",
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_LATER,
    mode="enforce",
    status="candidates",
    snapshot_revision=17,
    policy_revision="sha256:00ff",
    preemptor=_PREEMPTOR,
    queue="root.shop",
    nodes_total=5000,
    nodes_potential=4000,
    candidates_total=312,
    unmodelled_total=4,
    nominated_node="node-1",
    victims=(_VICTIM_A, _VICTIM_B),
    pdb_violations=1,
    candidates=(
        RankedCandidate(
            node="node-1",
            victims=(_VICTIM_A, _VICTIM_B),
            awaited=(_AWAITED, _TERMINATING),
            pdb_violations=1,
            highest_priority=-100,
            priority_sum=4_294_967_196,
            latest_start=_AT,
            decided_by="lowest-priority-sum",
            spared=(_SPARED,),
            spared_total=9,
            lost_work_seconds=3_600,
        ),
        RankedCandidate(node="node-2"),
    ),
    diagnosis=_REFUSAL,
    spared_by_rule={"preemption-toleration": 12, "mirror-pod": 1},
    nearest=(
        NearNode(
            node="node-3",
            missing={"memory": 2**40, "cpu": 500},
            spared=(
                _SPARED,
                Spared(
                    namespace="kube-system",
                    name="proxy",
                    uid="uid-proxy",
                    priority=-1,
                    rule="mirror-pod",
                    detail=_ODD_TEXT,
                ),
            ),
            spared_total=2,
        ),
        NearNode(node="node-4"),
    ),
    plan_duration_microseconds=1834,
    recording="rec-01kgw5g0000123456789abcdef",
    ahead=True,
    left_to_verification=("podAntiAffinity", "topologySpread"),
)
_DECISION_QUOTA: Final = DecisionRecord(
    decision_id=_DECISION,
    request_id=_REQUEST,
    kind="quota",
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_LATER,
    mode="enforce",
    status="candidates",
    snapshot_revision=18,
    queue="root.shop",
    victims=(_VICTIM_A,),
    quota=QuotaDecision(
        result="bestEffort",
        usage={"memory": 100, "cpu": 5000},
        max={"memory": 55},
        need={"memory": 45},
        shares=(QueueShare(queue="root.shop.web", amounts={"memory": 45}),),
        freed={"memory": 40},
        short={"memory": 5},
        blocked=(Obstacle(reason="queue-guaranteed", message="1 pod kept by the guarantee of root.shop"),),
    ),
)
_DECISION_GROUP: Final = DecisionRecord(
    decision_id=_DECISION,
    request_id=_REQUEST,
    kind="group",
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_LATER,
    mode="enforce",
    status="candidates",
    snapshot_revision=19,
    victims=(_VICTIM_A,),
    group=OrderedGroup(
        namespace="shop",
        name="train",
        uid="aa0e8400-e29b-41d4-a716-446655440000",
        priority=1000,
        scheduler_name="default-scheduler",
        must_place=2,
        min_count=4,
    ),
    group_plan=GroupDecision(
        members=3,
        objective=("budgets", "victims"),
        placements=(MemberPlacement(member_class=0, node="node-1", count=2),),
        awaited=(Awaited(uid="bb0e8400-e29b-41d4-a716-446655440000", order_id=_OTHER_ORDER),),
        domains=(TopologyDomain(key="topology.kubernetes.io/zone", value="a"),),
        price=GroupPrice(victims=1, priority_sum=5, highest_priority=5, groups_broken=0),
        priced=(
            PricedDomain(
                domains=(TopologyDomain(key="topology.kubernetes.io/zone", value="b"),),
                placeable=1,
            ),
        ),
        placeable=1,
        missing={"cpu": 500},
    ),
)
_CONTROL_MINIMAL: Final = ControlState(revision=0, mode="off", cluster_uid=_CLUSTER)
_CONTROL_FULL: Final = ControlState(
    revision=12,
    mode="enforce",
    cluster_uid=_CLUSTER,
    policy_revision="sha256:00ff",
    namespace_modes={"shop": "observe", "batch": "off"},
    limits=Limits(victims_per_order=100, orders_in_flight=0),
    queues_revision="sha256:11ee",
    queues=(
        QueueLimit(path="root"),
        QueueLimit(
            path="root.shop",
            max={"memory": 2**63 - 1, "cpu": 64_000, "example.com/gpu": 0},
            namespaces=("shop", "shop-test"),
            guaranteed={"memory": 2**40, "cpu": 500},
        ),
        QueueLimit(path="root.shop.<web>", max={"pods": 20}),
    ),
    hard_budget_namespaces=("*",),
    group_preemptors="hold",
    unplanned=Unplanned(
        protecting=("protection.namespaces", "hardBudgetNamespaces"),
        restricting=("limits", "queues", "PriorityClass <low>"),
        default="fallback",
        system="hold",
    ),
    exempt_namespaces=("kube-system", "makeway-system"),
    settled=(
        SettledQuota(path="root.shop", max={"cpu": 64_000}, delay_microseconds=600_000_000, mode="enforce"),
    ),
    enforcing=(EnforcedQuota(path="root.shop.<web>", max={"pods": 20}, need={"pods": 4}),),
    pods=1200,
    tolerations_revision="4711",
)

_COMPARISON_MINIMAL: Final = Comparison(
    decision_id=_DECISION,
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_LATER,
    planned_at=_AT,
    preemptor=_PREEMPTOR,
    result="undetermined",
)
_COMPARISON_FULL: Final = Comparison(
    decision_id=_DECISION,
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_LATER,
    planned_at=_AT,
    preemptor=_PREEMPTOR,
    result="better",
    queue="root.shop",
    decided_by="fewest-pdb-violations",
    makeway=Choice(
        node="node-1",
        victims=(_VICTIM_A,),
        highest_priority=-100,
        priority_sum=2**31 - 100,
        latest_start=_AT,
    ),
    default_preemption=Choice(
        node="node-2",
        victims=(_VICTIM_B,),
        pdb_violations=1,
        highest_priority=0,
        priority_sum=2**31,
        groups_broken=1,
    ),
    refusal=_REFUSAL,
    plan_duration_microseconds=1834,
    nominated_after_microseconds=12_000,
    evicted_after_microseconds=40_000,
    shared=True,
    asked=False,
    left_to_verification=("NodePorts",),
    restored_pods=2,
    past_complete=False,
    planned_after_microseconds=8000,
    note=_ODD_TEXT,
)
_COMPARISON_GROUP: Final = Comparison(
    decision_id=_DECISION,
    cluster_uid=_CLUSTER,
    planner=_PLANNER,
    at=_LATER,
    planned_at=_AT,
    preemptor=Preemptor(
        namespace="shop", name="train", uid=_URGENT, priority=1000, scheduler_name="default-scheduler"
    ),
    result="better",
    decided_by="lowest-priority-sum",
    makeway=Choice(
        node="node-1",
        nodes=("node-1", "node-3"),
        victims=(_VICTIM_A,),
        highest_priority=-100,
        priority_sum=2**31 - 100,
    ),
    default_preemption=Choice(
        node="node-1",
        nodes=("node-1", "node-2"),
        victims=(_VICTIM_A, _VICTIM_B),
        highest_priority=0,
        priority_sum=2**32 - 100,
    ),
    group=ComparedGroup(members=2, must_place=2, objective=("budgets", "prioritySum")),
)
_STATUS_MINIMAL: Final = ComponentStatus(
    api_version=API_VERSION,
    component="planner",
    identity=_PLANNER,
    version="0.1.0",
    cluster_uid=_CLUSTER,
    at=_AT,
    mode="observe",
    own_mode="enforce",
)
_STATUS_FULL: Final = ComponentStatus(
    api_version=API_VERSION,
    component="scheduler",
    identity=_SCHEDULER,
    version="0.1.0",
    cluster_uid=_CLUSTER,
    at=_LATER,
    mode="enforce",
    own_mode="enforce",
    namespace_modes={"shop": "observe", "batch": "off"},
    revision=12,
    policy_revision="sha256:00ff",
    told_policy_revision="sha256:00ff",
    queues_revision="sha256:11ee",
    leading=True,
    trouble=_ODD_TEXT,
    brake="batch, shop",
    caps="3 of 500 victims in the last minute",
    breaker="everywhere: clock-skew",
    signatures="require; messages failed: 0",
    kubernetes="1.37",
    loops="pods like shop/web-1 are preempted again and again for pods like batch/train-1",
    queue_gates=("default-scheduler", "makeway-scheduler"),
)


MESSAGES: Final[Mapping[str, Message]] = {
    "plan-request.minimal": _REQUEST_MINIMAL,
    "plan-request.full": _REQUEST_FULL,
    "plan-reply.not-synced": PlanReply(
        api_version=API_VERSION, request_id=_REQUEST, planner=_PLANNER, status="notSynced"
    ),
    "plan-reply.candidates": _REPLY_CANDIDATES,
    "plan-reply.refused": PlanReply(
        api_version=API_VERSION,
        request_id=_REQUEST,
        planner=_PLANNER,
        status="refused",
        snapshot_revision=17,
        decision_id=_DECISION,
        refusal=_REFUSAL,
        sample=Candidate(node="node-4", removable=(Removable(uid=_BATCH_A, rule="lower-priority"),)),
    ),
    "group-plan-request.minimal": _GROUP_REQUEST_MINIMAL,
    "group-plan-request.full": _GROUP_REQUEST_FULL,
    "group-plan-reply.not-synced": GroupPlanReply(
        api_version=API_VERSION, request_id=_REQUEST, planner=_PLANNER, status="notSynced"
    ),
    "group-plan-reply.candidates": _GROUP_REPLY_CANDIDATES,
    "group-plan-reply.refused": GroupPlanReply(
        api_version=API_VERSION, request_id=_REQUEST, planner=_PLANNER, status="refused", refusal=_REFUSAL
    ),
    "order.minimal": _ORDER_MINIMAL,
    "order.full": _ORDER_FULL,
    "order.group": _ORDER_GROUP,
    "order.void": _ORDER_VOID,
    "commit.minimal": _COMMIT_MINIMAL,
    "commit.full": _COMMIT_FULL,
    "commit-reply.stored": _COMMIT_STORED,
    "commit-reply.void": _COMMIT_VOID,
    "offer.minimal": _OFFER_MINIMAL,
    "offer.full": _OFFER_FULL,
    "begun.minimal": _BEGUN_MINIMAL,
    "begun.full": _BEGUN_FULL,
    "outcome.minimal": _OUTCOME_MINIMAL,
    "outcome.full": _OUTCOME_FULL,
    "outcome.group": _OUTCOME_GROUP,
    "decision.minimal": _DECISION_MINIMAL,
    "decision.full": _DECISION_FULL,
    "decision.quota": _DECISION_QUOTA,
    "decision.group": _DECISION_GROUP,
    "control.minimal": _CONTROL_MINIMAL,
    "control.full": _CONTROL_FULL,
    "comparison.minimal": _COMPARISON_MINIMAL,
    "comparison.full": _COMPARISON_FULL,
    "comparison.group": _COMPARISON_GROUP,
    "component-status.minimal": _STATUS_MINIMAL,
    "component-status.full": _STATUS_FULL,
}
"""By kind and variant."""


def _envelope(message: codec.StreamMessage, component: str, identity: str) -> Envelope:
    wrapped = codec.wrap(message, codec.source(component, identity), at=_LATER)
    return msgspec.json.decode(wrapped, type=Envelope)


_ORDER_EVENT: Final = _envelope(_ORDER_FULL, "scheduler", _SCHEDULER)
_ORDER_GROUP_EVENT: Final = _envelope(_ORDER_GROUP, "scheduler", _SCHEDULER)

ENVELOPES: Final[Mapping[str, Envelope]] = {
    "order-envelope.full": _ORDER_EVENT,
    "order-envelope.group": _ORDER_GROUP_EVENT,
    "order-envelope.minimal": _envelope(_ORDER_MINIMAL, "planner", _PLANNER),
    "order-envelope.signed": msgspec.structs.replace(
        _ORDER_EVENT, keyid="UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4", signature="c2lnbmVk"
    ),
    "begun-envelope.full": _envelope(_BEGUN_FULL, "evictor", _EVICTOR),
    "outcome-envelope.full": _envelope(_OUTCOME_FULL, "evictor", _EVICTOR),
    "outcome-envelope.group": _envelope(_OUTCOME_GROUP, "evictor", _EVICTOR),
    "decision-envelope.full": _envelope(_DECISION_FULL, "planner", _PLANNER),
    "comparison-envelope.full": _envelope(_COMPARISON_FULL, "planner", _PLANNER),
    "control-envelope.full": _envelope(_CONTROL_FULL, "planner", _PLANNER),
}
"""By kind and variant."""

_REQUEST_BYTES: Final = codec.encode(_REQUEST_FULL)
_REPLY_BYTES: Final = codec.encode(_REPLY_CANDIDATES)
_GROUP_REQUEST_BYTES: Final = codec.encode(_GROUP_REQUEST_FULL)
_GROUP_REPLY_BYTES: Final = codec.encode(_GROUP_REPLY_CANDIDATES)
_EVENT_BYTES: Final = codec.encode(_ORDER_EVENT)
_GROUP_EVENT_BYTES: Final = codec.encode(_ORDER_GROUP_EVENT)
_CONTROL_EVENT: Final = codec.encode(ENVELOPES["control-envelope.full"])
_TOO_DEEP: Final = b"[" * (codec.MAX_DEPTH + 1) + b"]" * (codec.MAX_DEPTH + 1)

MALFORMED: Final[Mapping[str, bytes]] = {
    "plan-request.not-json.empty": b"",
    "plan-request.not-json.cut": _REQUEST_BYTES[:-1],
    "plan-request.not-json.two-values": _REQUEST_BYTES + b"{}",
    "plan-request.invalid.a-list": b"[]",
    "plan-request.invalid.null": b"null",
    "plan-request.invalid.no-version": _REQUEST_BYTES.replace(b'"apiVersion"', b'"apiVersions"'),
    "plan-request.invalid.no-pod": _REQUEST_BYTES.replace(b'"pod":', b'"pods":'),
    "plan-request.invalid.number-for-text": _REQUEST_BYTES.replace(f'"{_REQUEST}"'.encode(), b"7"),
    "plan-request.unknown-version.v2": _REQUEST_BYTES.replace(b"makeway.dev/v1", b"makeway.dev/v2"),
    "plan-request.too-deep.pod": _REQUEST_BYTES.replace(bytes(_POD), _TOO_DEEP),
    "plan-reply.unknown-version.v2": b'{"apiVersion":"makeway.dev/v2","answer":42}',
    "plan-reply.invalid.empty-node": _REPLY_BYTES.replace(b'"node-1"', b'""'),
    "plan-reply.invalid.text-for-list": b'{"apiVersion":"makeway.dev/v1","requestId":"r","planner":"p",'
    b'"status":"candidates","candidates":"node-1"}',
    "group-plan-request.invalid.no-group": _GROUP_REQUEST_BYTES.replace(b'"group":', b'"groups":'),
    "group-plan-request.invalid.no-classes": _GROUP_REQUEST_BYTES.replace(b'"classes":', b'"class":'),
    "group-plan-request.invalid.negative-count": _GROUP_REQUEST_BYTES.replace(b'"count":6', b'"count":-6'),
    "group-plan-request.invalid.too-many-members": _GROUP_REQUEST_BYTES.replace(
        b'"mustPlace":5', b'"mustPlace":' + str(MOST_MEMBERS + 1).encode()
    ),
    "group-plan-request.invalid.too-many-topology-keys": _GROUP_REQUEST_BYTES.replace(
        b'"topology":[', b'"topology":[' + b'"x",' * MOST_TOPOLOGY_KEYS
    ),
    "group-plan-request.unknown-version.v2": _GROUP_REQUEST_BYTES.replace(
        b"makeway.dev/v1", b"makeway.dev/v2"
    ),
    "group-plan-reply.invalid.empty-node": _GROUP_REPLY_BYTES.replace(b'"node-1"', b'""'),
    "group-plan-reply.unknown-version.v2": b'{"apiVersion":"makeway.dev/v2","plan":42}',
    "order-envelope.not-json.cut": _EVENT_BYTES[:40],
    "order-envelope.invalid.no-data": _EVENT_BYTES.replace(b'"data":', b'"date":'),
    "order-envelope.invalid.no-id": _EVENT_BYTES.replace(f'"id":"{_ORDER}",'.encode(), b""),
    "order-envelope.invalid.empty-source": _EVENT_BYTES.replace(
        f'"source":"makeway/scheduler/{_SCHEDULER}"'.encode(), b'"source":""'
    ),
    "order-envelope.invalid.no-time-zone": _EVENT_BYTES.replace(
        b'"time":"2026-01-31T12:00:00.250040Z"', b'"time":"2026-01-31T12:00:00.250040"'
    ),
    "order-envelope.invalid.data-without-time-zone": _EVENT_BYTES.replace(
        b'"notAfter":"2026-01-31T12:01:00.250040Z"', b'"notAfter":"2026-01-31 12:01:00"'
    ),
    "order-envelope.invalid.another-content": _EVENT_BYTES.replace(b"application/json", b"text/plain"),
    "order-envelope.invalid.data-without-order-id": _EVENT_BYTES.replace(b'"orderId"', b'"orderID_"'),
    "order-envelope.invalid.group-without-uid": _GROUP_EVENT_BYTES.replace(
        f'"uid":"{_URGENT}"'.encode(), b'"uid":""'
    ),
    "order-envelope.invalid.negative-must-place": _GROUP_EVENT_BYTES.replace(
        b'"mustPlace":2', b'"mustPlace":-2'
    ),
    "order-envelope.invalid.member-without-node": _GROUP_EVENT_BYTES.replace(b',"node":"node-2"}]', b"}]"),
    "order-envelope.unknown-version.v2": _EVENT_BYTES.replace(b"order.v1", b"order.v2"),
    "order-envelope.unknown-version.cloudevents-2": _EVENT_BYTES.replace(
        b'"specversion":"1.0"', b'"specversion":"2.0"'
    ),
    "order-envelope.unknown-type.someone-elses": _EVENT_BYTES.replace(
        b"dev.makeway.order.v1", b"com.example.a"
    ),
    "order-envelope.unknown-type.an-outcome": codec.encode(ENVELOPES["outcome-envelope.full"]),
    "control-envelope.invalid.no-mode": _CONTROL_EVENT.replace(b'"mode":', b'"modes":'),
    "control-envelope.invalid.another-mode": _CONTROL_EVENT.replace(b'"observe"', b'"watch"'),
    "control-envelope.invalid.negative-limit": _CONTROL_EVENT.replace(
        b'"victimsPerOrder":100', b'"victimsPerOrder":-1'
    ),
    "control-envelope.invalid.negative-quota": _CONTROL_EVENT.replace(b'"cpu":64000', b'"cpu":-64000'),
    "control-envelope.invalid.quota-beyond-64-bits": _CONTROL_EVENT.replace(
        b'"memory":9223372036854775807', b'"memory":9223372036854775808'
    ),
    "control-envelope.invalid.quota-as-a-quantity": _CONTROL_EVENT.replace(b'"cpu":64000', b'"cpu":"64"'),
    "control-envelope.invalid.queue-without-path": _CONTROL_EVENT.replace(b'"path":"root"', b'"path":""'),
}
"""By kind, the reason for which it is refused, and what is wrong."""
