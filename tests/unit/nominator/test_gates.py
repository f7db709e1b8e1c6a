"""Since when a pod has not fitted, where scheduling gates held it before."""

from datetime import timedelta

from builders_bus import NOW
from makeway.nominator.pending import PendingPods
from unit.nominator.test_decide import a_pod, view


def test_time_in_which_a_pod_was_gated_is_none_in_which_it_did_not_fit() -> None:
    now = NOW
    pods = PendingPods(lambda: now)
    gated, fits_not = a_pod(), a_pod()
    gated["status"]["conditions"][0]["reason"] = "SchedulingGated"
    failed = a_pod()
    failed["status"]["conditions"][0]["reason"] = "SchedulerError"

    pods.put(view(gated))
    now += timedelta(minutes=10)
    pods.put(view(fits_not))
    released = now
    for later in (failed, fits_not):
        now += timedelta(minutes=1)
        pods.put(view(later))

    assert pods.by_uid["p-uid"].unfit_since == released


def test_a_pod_that_was_not_gated_has_not_fitted_since_its_condition_says_so() -> None:
    pods = PendingPods(lambda: NOW + timedelta(minutes=1))
    untried = a_pod()
    untried["status"]["conditions"] = []

    pods.put(view(untried))
    pods.put(view(a_pod()))

    assert pods.by_uid["p-uid"].unfit_since == NOW - timedelta(minutes=1)
