"""The parts of a planner, made in three steps: what it sees, what it decides from that, and how it leads.

Nothing is read, asked or written here; `makeway.planner.service.process` runs the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.orders import OrderWriter
from makeway.core.policy.mode import Mode
from makeway.planner.commit.committer import Committer, CommitterSettings
from makeway.planner.commit.nominated import NominatedPods
from makeway.planner.commit.versions import PodVersions
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe.loop import ObserveLoop, OwnOrders
from makeway.planner.observe.past import ShortPast
from makeway.planner.plan.promised import ComingNodes, wait_for_promise
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.quota.decide import mode_of
from makeway.planner.quota.gates import QueueGates
from makeway.planner.quota.loop import QuotaLoop, QuotaSettings
from makeway.planner.recording.journal import Journal
from makeway.planner.recording.recorder import Recorder
from makeway.planner.service.configuration.class_warnings import ClassWarnings
from makeway.planner.service.configuration.control import UNPLANNED_ANNOTATION, Control, lease_note
from makeway.planner.service.configuration.queue_warnings import QueueWarnings
from makeway.planner.service.configuration.reader import Configuration
from makeway.planner.service.decisions import Decisions
from makeway.planner.service.handler import GroupPlanner, Planner, PodPlanner
from makeway.planner.service.orders.commit_judge import CommitJudge
from makeway.planner.service.orders.follower import OrderFollower
from makeway.planner.service.orders.ledger import Ledger
from makeway.planner.service.orders.limits import by_namespace
from makeway.planner.service.orders.marks import Marks
from makeway.planner.service.orders.quota_fence import PlannerFence
from makeway.planner.service.orders.repair import RepairProposer
from makeway.planner.service.pending_updates import apply_forever
from makeway.planner.service.plan_requests import PlannerInfo, PlanRequests
from makeway.planner.service.queue_query import QueueQueryHandler, follow_queues
from makeway.planner.service.searches import A, GroupSearch, PodSearch, Q, R, Search
from makeway.planner.service.status import PlannerStatus
from makeway.planner.service.tolerations import TolerationKeeper
from makeway.planner.service.watch import Watch
from makeway.planner.snapshot.changes import Change, Enforce
from makeway.planner.snapshot.pending_updates import CHUNK
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.events import EventRecorder
from makeway.runtime.kube import Api
from makeway.runtime.lease import Leadership, LeaseSettings
from makeway.runtime.settings import ConfigSettings


@dataclass(frozen=True, kw_only=True)
class PlannerContext:
    """What a planner is given: its name and settings, and the cluster and bus that it is connected to.

    `mode`: how far plugin and evictors are told to go at the most. `lease`: answer only while holding it;
    None answers always. `remembered`: this cluster's last control state, None where there is none.
    """

    identity: str
    mode: Mode
    lease: LeaseSettings | None
    config: ConfigSettings
    api: Api
    bus: Bus
    cluster_uid: str
    remembered: ControlState | None
    registry: CollectorRegistry


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The snapshot, and everything that follows the cluster, the orders and the configuration for it."""

    metrics: PlannerMetrics
    ledger: Ledger
    journal: Journal
    snapshot: Snapshot
    decisions: Decisions
    marks: Marks
    events: EventRecorder
    class_warnings: ClassWarnings
    tolerations: TolerationKeeper
    observing: ObserveLoop
    coming: ComingNodes
    watch: Watch
    nominated: NominatedPods
    versions: PodVersions
    in_flight: OrderFollower
    configuration: Configuration

    def unsynced(self) -> str:
        """Return what is missing before there is anything to plan on; empty where nothing is."""
        if not self.watch.synced:
            return f"the snapshot is not complete: {self.watch.unhealthy()}"
        self.snapshot.updates.serving = True
        if not self.in_flight.synced:
            return "orders and outcomes have not been read yet"
        return self.configuration.unsynced() or self.snapshot.pending_updates.pending

    def hold_back(self, question: Question, plan: Plan, now: datetime) -> Plan | PlanRefusal:
        """Leave out of a plan what would continue a preemption loop; refuse one that waits for a node."""
        classes = self.snapshot.priority_classes
        waiting = wait_for_promise(self.coming, classes, question, plan, now)
        if isinstance(waiting, PlanRefusal):
            return waiting
        return self.observing.hold_back(question.preemptor, waiting, now)

    def runs(self) -> list[Coroutine[Any, Any, Any]]:
        """Return the coroutines that keep it up to date; each runs for ever."""
        return [
            *self.watch.runs(),
            *self.configuration.runs(),
            self.tolerations.run(),
            apply_forever(self.snapshot.pending_updates),
            apply_forever(self.snapshot.upkeep, half_the_time=True),
            self.events.write_forever(),
            self.in_flight.follow_orders(),
            self.in_flight.follow_outcomes(),
            self.in_flight.quarantine_forever(),
            self.decisions.write_forever(),
            self.observing.poll_forever(),
            self.observing.plan_forever(),
            self.observing.write_forever(),
        ]


@dataclass(frozen=True, kw_only=True)
class DecisionParts:
    """What answers, orders and tells, from what is seen."""

    planner: PodPlanner
    committer: Committer
    group_planner: GroupPlanner
    repairing: RepairProposer
    quotas: QuotaLoop
    control: Control
    recorder: Recorder
    queue_answers: QueueQueryHandler
    queue_warnings: QueueWarnings


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A planner. `leadership` is None where every planner answers."""

    seen: ClusterState
    deciding: DecisionParts
    leadership: Leadership | None
    fence: PlannerFence
    status: PlannerStatus
    checks: Callable[[], dict[str, str]]


def parts_of(context: PlannerContext) -> Parts:
    """Return a planner that nothing runs yet."""
    seen = _seen(context)
    return _leading(context, seen, _deciding(context, seen))


def _seen(context: PlannerContext) -> ClusterState:
    api, bus, metrics = context.api, context.bus, PlannerMetrics(context.registry)
    journal = Journal(lambda: snapshot.undecided)
    past = ShortPast()

    def applied(change: Change) -> None:
        journal.note(change)
        past.note(change, snapshot.revision)

    def unsynced() -> str:
        return seen.unsynced()

    def staying(uid: str) -> bool:
        pod = snapshot.pods.get(uid)
        return pod is not None and bool(pod.node) and not pod.terminating

    snapshot = Snapshot(chunk=CHUNK, applied=applied)
    ledger = Ledger(staying)
    marks = Marks()
    events = EventRecorder(api, "makeway.dev/planner", context.identity)
    warnings = ClassWarnings(events)
    tolerations = TolerationKeeper(api, snapshot, events, metrics, namespace=context.config.namespace)
    orders = OwnOrders(
        name=ledger.names,
        read_until=lambda: ledger.read_until,
        serve=ledger.makes_room_for,
        in_flight=lambda uid, now: ledger.in_flight(now, asking=uid),
    )
    observing = ObserveLoop(
        context.identity,
        snapshot=snapshot,
        bus=bus,
        metrics=metrics,
        orders=orders,
        past=past,
        cluster_uid=context.cluster_uid,
        unsynced=unsynced,
    )
    configuration = Configuration(api, context.config, context.registry, events, context.remembered)
    policy, source = configuration.policy, context.config.policy_object()

    def enforce() -> None:
        snapshot.apply(Enforce(configuration.in_force, policy.revision, source))

    policy.subscribe(enforce)
    configuration.brake.subscribe(enforce)
    follow_queues(configuration.queues, snapshot)
    coming = ComingNodes()
    nominated, versions = NominatedPods(), PodVersions()
    seen = ClusterState(
        metrics=metrics,
        ledger=ledger,
        journal=journal,
        snapshot=snapshot,
        decisions=Decisions(bus, metrics, journal=journal),
        marks=marks,
        events=events,
        class_warnings=warnings,
        tolerations=tolerations,
        observing=observing,
        coming=coming,
        watch=Watch(
            api,
            snapshot,
            metrics,
            context.cluster_uid,
            pods=(marks, observing, nominated, versions),
            classes=(warnings, tolerations),
            coming=coming,
        ),
        nominated=nominated,
        versions=versions,
        in_flight=OrderFollower(
            bus,
            ledger,
            metrics,
            datetime.now(UTC),
            orders_read=observing.orders_read,
            ended=observing.ended,
        ),
        configuration=configuration,
    )
    return seen


def _deciding(context: PlannerContext, seen: ClusterState) -> DecisionParts:
    bus, cluster_uid, configuration = context.bus, context.cluster_uid, seen.configuration

    def braked() -> str:
        return configuration.brake.current.scope()

    quotas = QuotaLoop(
        QuotaSettings(
            cluster_uid=cluster_uid,
            identity=context.identity,
            mode=lambda: mode_of(configuration.in_force, context.mode),
            ready=lambda: not seen.unsynced(),
            gates=QueueGates(bus.components, cluster_uid).names,
            braked=braked,
        ),
        snapshot=seen.snapshot,
        ledger=seen.ledger,
        orders=bus,
        writer=OrderWriter(bus),
        decisions=seen.decisions,
        metrics=seen.metrics,
        tell=configuration.tell_of_queues,
    )
    control = Control(
        bus,
        cluster_uid,
        lambda: _control_state(context, seen),
        seen.metrics,
        quotas.memory,
        pods=lambda: len(seen.snapshot.pods),
    )
    quotas.remember = control.changed
    configuration.subscribe(control.changed)
    configuration.subscribe(quotas.changed)
    requests = PlanRequests(
        PlannerInfo(cluster_uid, context.identity),
        snapshot=seen.snapshot,
        unsynced=seen.unsynced,
        brake=lambda: configuration.brake.current,
        seal=lambda offer: bus.signatures.wrap(offer, bus.source, bus.subjects.commit).decode(),
    )
    committer = Committer(
        CommitterSettings(
            cluster_uid=cluster_uid,
            identity=context.identity,
            subjects=bus.subjects,
            signatures=bus.signatures,
            unsynced=seen.unsynced,
            pod=seen.snapshot.pods.get,
        ),
        judge=CommitJudge(
            seen.snapshot,
            seen.ledger,
            configuration,
            seen.nominated.nodes,
            context.mode,
            versions=seen.versions.by_uid,
        ).judge,
        ledger=seen.ledger,
        writer=OrderWriter(bus),
        metrics=seen.metrics,
    )
    seen.nominated.changed = committer.changed
    seen.in_flight.lost = committer.restore
    snapshot, ledger, metrics = seen.snapshot, seen.ledger, seen.metrics

    def planner(search: Search[R, Q, A]) -> Planner[R, Q, A]:
        return Planner(
            requests,
            search,
            snapshot=snapshot,
            ledger=ledger,
            decisions=seen.decisions,
            metrics=metrics,
            behind=seen.watch.behind,
            observe=seen.observing.expect,
        )

    return DecisionParts(
        planner=planner(PodSearch(snapshot, ledger, metrics, seen.hold_back)),
        committer=committer,
        group_planner=planner(GroupSearch(snapshot, ledger, metrics)),
        repairing=RepairProposer(
            cluster_uid,
            marks=seen.marks,
            ledger=seen.ledger,
            bus=bus.repairs,
            metrics=seen.metrics,
            synced=lambda: not seen.unsynced(),
        ),
        quotas=quotas,
        control=control,
        recorder=Recorder(
            bus,
            seen.snapshot,
            seen.journal,
            seen.metrics,
            cluster_uid=cluster_uid,
            identity=context.identity,
            unsynced=seen.unsynced,
        ),
        queue_answers=QueueQueryHandler(context.identity, seen.snapshot, quotas),
        queue_warnings=QueueWarnings(seen.snapshot, seen.events),
    )


def _leading(context: PlannerContext, seen: ClusterState, deciding: DecisionParts) -> Parts:
    bus, watch, configuration = context.bus, seen.watch, seen.configuration

    def unfit() -> str:
        """Return why this planner cannot lead. A policy being applied is no reason: all apply it alike."""
        if not watch.synced or not seen.in_flight.synced:
            return seen.unsynced()
        return bus.disconnected() or configuration.unsynced()

    def checks() -> dict[str, str]:
        return {
            "nats": bus.healthy(),
            "snapshot": watch.unhealthy(),
            "configuration": configuration.unhealthy(),
            "synced": seen.unsynced(),
        }

    def impaired() -> str:
        """Return why a standby would lead better. Plans are not signed: without its key one still plans."""
        return watch.unhealthy() or bus.signatures.unpublished()

    lease = context.lease

    def annotations() -> dict[str, str]:
        state = _control_state(context, seen)
        return {} if state is None else {UNPLANNED_ANNOTATION: lease_note(state)}

    leadership = (
        Leadership(context.api, lease, context.identity, unfit, impaired, annotations=annotations)
        if lease
        else None
    )
    _watch_state(seen)
    return Parts(
        seen=seen,
        deciding=deciding,
        leadership=leadership,
        fence=PlannerFence(bus.epochs, leadership),
        status=PlannerStatus(
            context.identity,
            context.cluster_uid,
            context.mode,
            configuration=configuration,
            published=lambda: deciding.control.published,
            trouble=lambda: (
                bus.healthy()
                or seen.unsynced()
                or watch.unhealthy()
                or configuration.unhealthy()
                or bus.signatures.unpublished()
            ),
            signatures=bus.signatures.describe,
            loops=seen.observing.told_loops,
        ),
        checks=checks,
    )


def _control_state(context: PlannerContext, seen: ClusterState) -> ControlState | None:
    """Return what is to be in force; None while policy, queues or PriorityClasses are not known."""
    if not seen.watch.synced:
        return None
    tolerating = seen.snapshot.exemptions.tolerating_classes()
    return seen.configuration.control_state(context.mode, context.cluster_uid, tolerating)


def _watch_state(seen: ClusterState) -> None:
    snapshot = seen.snapshot
    seen.metrics.watch_state(
        age=seen.watch.age_seconds,
        revision=lambda: snapshot.revision,
        in_flight=lambda: len(seen.ledger),
        by_namespace=lambda: by_namespace(seen.ledger.held(datetime.now(UTC))),
        marks=lambda: len(seen.marks),
        comparing=lambda: len(seen.observing),
        loops=seen.observing.loops,
        paused=lambda: seen.ledger.pauses.paused(datetime.now(UTC)),
        left_out=lambda: snapshot.signatures.left_out,
        sizes={
            "nodes": lambda: snapshot.node_count,
            "pods": lambda: len(snapshot.pods),
            "priorityclasses": lambda: len(snapshot.priority_classes),
            "poddisruptionbudgets": lambda: len(snapshot.budgets),
            "namespaces": lambda: len(snapshot.namespaces),
        },
    )
