"""Features of the policy two by two, in drawn clusters: no part may answer otherwise than documented.

`make pairs` draws many more. A case that disagrees is written to build/pairs, and `make pairs N=1 FIRST=seed`
draws it again.
"""

from typing import Any

import numpy as np
import pytest

from makeway.core.policy.exemption import NOT_EXEMPT
from makeway.core.policy.rules import Verdict
from makeway.core.policy.toleration_record import NO_RECORD, TolerationRecord
from pairs.checking import disagreements
from pairs.drawing import PAIRS, draw
from pairs.run import kept, together
from unit.evictor.fakes import FakeCluster

CASES = 300
PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_planner_evictor_and_simulate_keep_to_the_documents_where_features_meet(part: int) -> None:
    wrong = {}
    for seed in range(part * CASES // PARTS, (part + 1) * CASES // PARTS):
        case = draw(seed)
        if found := disagreements(case):
            wrong[str(kept(case, found))] = found

    assert wrong == {}


def test_every_pair_of_features_is_drawn() -> None:
    counts = together([draw(seed) for seed in range(CASES)])

    assert [pair for pair in PAIRS if counts[pair] < 2] == []


async def _no_record(cluster: FakeCluster) -> TolerationRecord:
    return NO_RECORD


DEFECTS: dict[str, tuple[str, Any]] = {
    "the evictor reads no record of tolerations": (
        "unit.evictor.fakes.FakeCluster.read_tolerations",
        _no_record,
    ),
    "the planner keeps no guarantee": (
        "makeway.planner.plan.constraints.queues.QueueConstraints.kept",
        lambda self, batch, removable: np.zeros_like(removable),
    ),
    "the policy protects no pod": (
        "makeway.core.policy.protection.exemption_of",
        lambda victim, protection: NOT_EXEMPT,
    ),
    "the evictor asks no rule of who may preempt whom": (
        "makeway.core.policy.rules.in_table",
        lambda table: lambda pair: Verdict(True, "none", "none"),
    ),
    "plans ask no rule of who may preempt whom": (
        "makeway.planner.plan.who_preempts.WhoPreempts.exempt",
        lambda self, columns: None,
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, instead = DEFECTS[defect]
    monkeypatch.setattr(where, instead)

    assert any(disagreements(draw(seed)) for seed in range(2 * CASES))
