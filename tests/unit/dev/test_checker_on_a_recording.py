"""The checker on the recording of a real run: clean as it is, and every seeded violation is found in it.

The recording is one of a campaign's, cut down to what the checker reads. Another is made by
`python -m campaign.run --minutes 2 --nodes 4 --record tests/unit/dev/recording.json.gz`.
"""

from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from campaign.recording import Kept, load
from makeway.dev.checker.check import check
from makeway.dev.checker.findings import Invariant
from unit.dev.falsifying import MUTATIONS, Mutation, Sample

pytestmark = pytest.mark.tools

RECORDING = Path(__file__).parent / "recording.json.gz"


@cache
def recorded() -> Kept:
    return load(RECORDING)


def test_the_recording_is_of_a_real_run_and_clean() -> None:
    kept = recorded()

    assert len(kept.history.streams.orders) >= 20
    assert str(check(kept.history, kept.now)) == "nothing found"


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_violation_seeded_into_the_recording_is_found(mutation: Mutation) -> None:
    kept = recorded()
    falsified = mutation.falsify(Sample(kept.history, kept.now))

    found = {violation.rule.value for violation in check(falsified, kept.now).violations}

    assert mutation.rule in found


def test_a_lease_that_the_log_has_no_renewal_of_yet_is_waited_for() -> None:
    kept = recorded()
    sample = Sample(kept.history, kept.now)
    falsified = MUTATIONS["the fence of another Lease"].falsify(sample)

    found = check(falsified, sample.event.at + timedelta(seconds=5))

    rule = Invariant.FENCE_NOT_HELD
    assert rule not in {violation.rule for violation in found.violations}
    assert rule in {pending.rule for pending in found.pending}
