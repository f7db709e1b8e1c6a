"""Plans in tests, on snapshots that remember what was planned before, as the planner's does."""

from datetime import datetime
from weakref import WeakKeyDictionary

from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import plan as plan_once
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.state import Snapshot

_caches: WeakKeyDictionary[Snapshot, PlanCache] = WeakKeyDictionary()


def cache_of(snapshot: Snapshot) -> PlanCache:
    """Return the one cache of a snapshot."""
    return _caches.setdefault(snapshot, PlanCache())


def plan(snapshot: Snapshot, question: Question, now: datetime) -> Plan | PlanRefusal:
    """Plan as a planner does that has planned on the snapshot before."""
    return plan_once(snapshot, question, now, cache_of(snapshot))
