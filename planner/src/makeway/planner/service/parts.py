"""The parts of a planner, made in two steps: what it sees, and what it decides from that.

Nothing is read, asked or written here; `makeway.planner.service.process` runs the parts.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from makeway.bus.client import Bus
from makeway.bus.component_status import ComponentStatus
from makeway.bus.control import ControlState
from makeway.bus.orders import OrderWriter
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.planner.commit.committer import Committer
from makeway.planner.commit.nominated import NominatedPods, PodVersions
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe.loop import ObserveLoop
from makeway.planner.observe.past import ShortPast
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.limits import by_namespace
from makeway.planner.plan.promised import ComingNodes, wait_for_promise
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.quota.decide import mode_of
from makeway.planner.quota.gates import QueueGates
from makeway.planner.quota.loop import QuotaLoop
from makeway.planner.recording.decisions import Decisions
from makeway.planner.recording.journal import Journal
from makeway.planner.recording.recorder import Recorder
from makeway.planner.service.configuration.control import UNPLANNED_ANNOTATION, Control, lease_note
from makeway.planner.service.configuration.reader import Configuration
from makeway.planner.service.configuration.warnings import Warnings
from makeway.planner.service.freshness import RequestAges
from makeway.planner.service.handler import Planner
from makeway.planner.service.orders.commit_judge import CommitJudge
from makeway.planner.service.orders.follower import OrderFollower
from makeway.planner.service.orders.marks import Marks, RepairProposer
from makeway.planner.service.orders.quota_fence import PlannerFence
from makeway.planner.service.pending_updates import apply_forever
from makeway.planner.service.queue_query import answer_queue_query, follow_queues
from makeway.planner.service.searches import A, group_search, pod_search
from makeway.planner.service.tolerations import TolerationKeeper
from makeway.planner.service.watch import Watch
from makeway.planner.snapshot.changes import Change, Enforce
from makeway.planner.snapshot.pending_updates import CHUNK
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.config_kinds import POLICY
from makeway.runtime.events import EventRecorder
from makeway.runtime.kube import Api
from makeway.runtime.lease import Leadership, LeaseSettings
from makeway.runtime.process import component_status
from makeway.runtime.server_clock import HeldClock
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


class ClusterState:
    """The snapshot, and everything that follows the cluster, the orders and the configuration for it."""

    def __init__(self, context: PlannerContext) -> None:
        api, bus = context.api, context.bus
        self.metrics = metrics = PlannerMetrics(context.registry)
        self.snapshot = snapshot = Snapshot(chunk=CHUNK, applied=self._applied)
        self.clock = HeldClock(api, "planner", metrics.clock_ahead)
        self.journal = Journal(lambda: snapshot.undecided)
        self._past = ShortPast()
        self.decisions = Decisions(bus, metrics, journal=self.journal)
        self.ledger = ledger = Ledger(self._is_staying)
        self.marks = Marks()
        self.nominated, self.versions = NominatedPods(), PodVersions()
        self.coming = ComingNodes()
        self.events = EventRecorder(api, "makeway.dev/planner", context.identity)
        namespace = context.config.namespace
        self.tolerations = TolerationKeeper(api, snapshot, self.events, metrics, namespace=namespace)
        self.observing = ObserveLoop(
            context.identity,
            snapshot=snapshot,
            bus=bus,
            metrics=metrics,
            ledger=ledger,
            past=self._past,
            cluster_uid=context.cluster_uid,
            unsynced=self.unsynced,
        )
        self.in_flight = OrderFollower(
            bus,
            ledger,
            metrics,
            datetime.now(UTC),
            orders_read=self.observing.orders_read,
            ended=self.observing.ended,
        )
        self.watch = Watch(
            api,
            snapshot,
            metrics,
            context.cluster_uid,
            pods=(self.marks, self.observing, self.nominated, self.versions),
            classes=(self.tolerations,),
            coming=self.coming,
        )
        self.configuration = Configuration(
            api, context.config, context.registry, self.events, context.remembered
        )
        enforce = partial(self._enforce, context.config)
        self.configuration.policy.subscribe(enforce)
        self.configuration.brake.subscribe(enforce)
        follow_queues(self.configuration.queues, snapshot)

    def unsynced(self) -> str:
        """Return what is missing before there is anything to plan on; empty where nothing is."""
        if not self.watch.synced:
            return f"the snapshot is not complete: {self.watch.unhealthy()}"
        self.snapshot.updates.serving = True
        if not self.in_flight.synced:
            return "orders and outcomes have not been read yet"
        return self.configuration.unsynced() or self.snapshot.pending_updates.pending

    def hold_back(self, asked: Sequence[Question], plan: A, now: datetime) -> A | PlanRefusal:
        """Leave out of a plan what would continue a preemption loop; refuse one that waits for nodes."""
        classes = self.snapshot.priority_classes
        waiting = wait_for_promise(self.coming, classes, asked, plan, now)
        if isinstance(waiting, PlanRefusal):
            return waiting
        return self.observing.hold_back([one.preemptor for one in asked], waiting, now)

    def control_state(self, context: PlannerContext) -> ControlState | None:
        """Return what is to be in force; None while policy, queues or PriorityClasses are not known."""
        if not self.watch.synced:
            return None
        tolerating = self.snapshot.exemptions.tolerating_classes()
        revision = self.tolerations.revision
        return self.configuration.control_state(context.mode, context.cluster_uid, tolerating, revision)

    def runs(self) -> list[Coroutine[Any, Any, Any]]:
        """Return the coroutines that keep it up to date; each runs for ever."""
        return [
            *self.watch.runs(),
            *self.configuration.runs(),
            self.clock.read_forever(),
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

    def watch_state(self) -> None:
        """Add the metrics that are read from it when they are asked for."""
        snapshot, ledger = self.snapshot, self.ledger
        self.metrics.watch_state(
            {
                "snapshot_age_seconds": self.watch.age_seconds,
                "orders_in_flight": lambda: len(ledger),
                "marked_pods": lambda: len(self.marks),
                "comparisons_waiting": lambda: len(self.observing),
                "preemption_loops": self.observing.loops,
                "preemptors_paused": lambda: ledger.pauses.paused(datetime.now(UTC)),
                "pods_left_out": lambda: snapshot.signatures.left_out,
            },
            by_namespace=lambda: by_namespace(ledger.held(datetime.now(UTC))),
            sizes={
                "nodes": lambda: snapshot.node_count,
                "pods": lambda: len(snapshot.pods),
                "priorityclasses": lambda: len(snapshot.priority_classes),
                "poddisruptionbudgets": lambda: len(snapshot.budgets),
                "namespaces": lambda: len(snapshot.namespaces),
            },
        )

    def _applied(self, change: Change) -> None:
        self.journal.note(change)
        self._past.note(change, self.snapshot.revision)

    def _is_staying(self, uid: str) -> bool:
        pod = self.snapshot.pods.get(uid)
        return pod is not None and bool(pod.node) and not pod.terminating

    def _enforce(self, config: ConfigSettings) -> None:
        configuration = self.configuration
        change = Enforce(
            configuration.in_force,
            configuration.policy.revision,
            ("ConfigMap", config.namespace, POLICY.configmap),
        )
        self.snapshot.apply(change)


class Parts:
    """A planner: what answers, orders and tells, from what is seen.

    `leadership`: None where every planner answers; `leading`: it answers now.
    """

    def __init__(self, context: PlannerContext) -> None:
        bus, cluster_uid, identity = context.bus, context.cluster_uid, context.identity
        self._context = context
        self.leading = False
        self.seen = seen = ClusterState(context)
        snapshot, ledger, metrics = seen.snapshot, seen.ledger, seen.metrics
        configuration = seen.configuration
        self.quotas = QuotaLoop(
            cluster_uid=cluster_uid,
            identity=identity,
            mode=lambda: mode_of(configuration.in_force, context.mode),
            ready=lambda: not seen.unsynced(),
            gates=QueueGates(bus.components, cluster_uid).names,
            brake=lambda: configuration.brake.current,
            snapshot=snapshot,
            ledger=ledger,
            orders=bus,
            writer=OrderWriter(bus),
            decisions=seen.decisions,
            metrics=metrics,
            tell=configuration.tell_of_queues,
        )
        self.control = Control(
            bus,
            cluster_uid,
            partial(seen.control_state, context),
            metrics,
            self.quotas.memory,
            pods=lambda: snapshot.bound_pods,
        )
        self.quotas.remember = self.control.changed
        configuration.subscribe(self.control.changed)
        configuration.subscribe(self.quotas.changed)
        ages = RequestAges()
        self.planner = Planner(
            cluster_uid,
            identity,
            snapshot=snapshot,
            ledger=ledger,
            decisions=seen.decisions,
            metrics=metrics,
            unsynced=seen.unsynced,
            behind=seen.watch.behind,
            brake=lambda: configuration.brake.current,
            seal=lambda offer: bus.signatures.wrap(offer, bus.source, bus.subjects.commit).decode(),
            observe=seen.observing.expect,
            ages=ages,
        )
        self.pods = pod_search(snapshot, ledger, metrics, seen.hold_back)
        self.groups = group_search(snapshot, metrics, seen.hold_back)
        self.committer = Committer(
            cluster_uid=cluster_uid,
            identity=identity,
            subjects=bus.subjects,
            signatures=bus.signatures,
            unsynced=seen.unsynced,
            pod=snapshot.pods.get,
            judge=CommitJudge(
                snapshot,
                ledger,
                seen.nominated.by_uid,
                context.mode,
                policy=lambda: configuration.in_force,
                brake=lambda: configuration.brake.current,
                versions=seen.versions.by_uid,
            ).judge,
            ledger=ledger,
            writer=OrderWriter(bus),
            metrics=metrics,
            waited=lambda sender, order_id: ages.waited_seconds(sender, order_id, time.perf_counter()),
        )
        seen.nominated.tell = self.committer.changed
        seen.in_flight.lost = self.committer.restore
        self.repairing = RepairProposer(
            cluster_uid,
            marks=seen.marks,
            ledger=ledger,
            bus=bus.repairs,
            synced=lambda: not seen.unsynced(),
        )
        self.recorder = Recorder(
            bus,
            snapshot,
            seen.journal,
            metrics,
            cluster_uid=cluster_uid,
            identity=identity,
            unsynced=seen.unsynced,
        )
        self.answer_queues = partial(answer_queue_query, identity, snapshot, self.quotas)
        self.warnings = Warnings(snapshot, seen.events)
        self.leadership = (
            Leadership(
                context.api,
                context.lease,
                identity,
                self._unfit,
                self._impaired,
                annotations=self._annotations,
            )
            if context.lease
            else None
        )
        self.fence = PlannerFence(bus.epochs, self.leadership)
        seen.watch_state()

    def checks(self) -> dict[str, str]:
        """Return why it is not ready, by what is checked; empty where it is."""
        return {
            "nats": self._context.bus.healthy() or self.seen.in_flight.unhealthy(),
            "snapshot": self.seen.watch.unhealthy(),
            "configuration": self.seen.configuration.unhealthy(),
            "synced": self.seen.unsynced(),
            "clock": self.seen.clock.impaired(),
        }

    def status(self) -> ComponentStatus:
        """Return what it answers when it is asked how it is."""
        context, seen, configuration = self._context, self.seen, self.seen.configuration
        in_force, signatures = configuration.in_force, context.bus.signatures
        found = self.checks()
        return component_status(
            "planner",
            context.identity,
            context.cluster_uid,
            mode=more_restrictive(context.mode, in_force.mode),
            own_mode=context.mode,
            namespace_modes={
                namespace: more_restrictive(context.mode, mode)
                for namespace, mode in sorted(in_force.modes().items())
            },
            revision=self.control.published if self.leading else 0,
            policy_revision=configuration.policy.revision,
            queues_revision=configuration.queues.revision,
            leading=self.leading,
            trouble=found["nats"]
            or found["synced"]
            or found["snapshot"]
            or found["configuration"]
            or found["clock"]
            or (signatures.trouble if signatures.unpublished() else ""),
            brake=configuration.brake.current.scope(),
            signatures=signatures.describe(),
            loops=seen.observing.told_loops() if self.leading else "",
        )

    def _unfit(self) -> str:
        """Return why this planner cannot lead. A policy being applied is no reason: all apply it alike."""
        if not self.seen.watch.synced or not self.seen.in_flight.synced:
            return self.seen.unsynced()
        return (
            self._context.bus.disconnected() or self.seen.configuration.unsynced() or self.seen.clock.unfit()
        )

    def _impaired(self) -> str:
        """Return why a standby would lead better. Plans are not signed: without its key one still plans."""
        return (
            self.seen.watch.unhealthy()
            or self.seen.clock.impaired()
            or self._context.bus.signatures.unpublished()
        )

    def _annotations(self) -> dict[str, str]:
        state = self.seen.control_state(self._context)
        return {} if state is None else {UNPLANNED_ANNOTATION: lease_note(state)}
