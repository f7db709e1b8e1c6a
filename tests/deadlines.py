"""Deadlines that makeway promises, asserted on machines that may stand still for seconds.

A virtual machine's host can stop it for longer than a deadline. So a test of one is run again, with new
fixtures, where it failed for the deadline alone; what is too slow by itself is so each time.
"""

import pytest

again_if_late = pytest.mark.flaky(reruns=2, only_rerun=["DeadlineMissed"])
"""Marks a test that calls `assert_in_time`."""


class DeadlineMissed(AssertionError):  # noqa: N818 - read in a test's report
    """Something took longer than is promised."""


def assert_in_time(seconds: float, promised: float, what: str) -> None:
    """Assert that what took `seconds` took less than `promised`.

    Raises:
        DeadlineMissed: it did not; the text has `what`.
    """
    if seconds >= promised:
        raise DeadlineMissed(f"{what} took {seconds:.2f} s, promised are {promised:g} s")
