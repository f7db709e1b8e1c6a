"""What is made of the outcomes of kube-scheduler's own integration tests."""

import pytest

from makeway.dev.paths import CHECKOUT
from upstream_suites.cases import Case, Outcome, cases
from upstream_suites.differences import Difference, Differences, judge, read, table
from upstream_suites.suites import SHORT, SUITES, WAITING, with_patience

OUTPUT = """\
=== RUN   TestA
=== RUN   TestA/fits
    a_test.go:1: Pod "low" was expected
--- PASS: TestA (3.00s)
    --- PASS: TestA/fits (1.50s)
=== RUN   TestB
=== RUN   TestB/first
=== RUN   TestB/second
--- FAIL: TestB (3.00s)
    --- FAIL: TestB/first (1.00s)
    --- PASS: TestB/second (1.00s)
=== RUN   TestC
--- FAIL: TestC (0.50s)
"""


def test_cases_are_told_without_the_tests_that_they_are_part_of() -> None:
    found = cases(OUTPUT.splitlines())

    assert found == [
        Case("TestA/fits", Outcome.PASS, 1.5),
        Case("TestB/first", Outcome.FAIL, 1.0),
        Case("TestB/second", Outcome.PASS, 1.0),
        Case("TestC", Outcome.FAIL, 0.5),
    ]


LISTED = Differences(differences=(Difference("podgroup", "TestA/other*", "takes another node"),))


def test_a_listed_case_that_passes_is_wrong_and_so_is_another_that_fails() -> None:
    found = [
        Case("TestA/other_(false)", Outcome.PASS),
        Case("TestA/same", Outcome.FAIL),
        Case("TestA/ended", Outcome.UNFINISHED),
        Case("TestA/skipped", Outcome.SKIP),
    ]

    assert judge("podgroup", found, LISTED, whole=True).wrong == (
        "TestA/other_(false) passes, and is listed as a difference",
        "TestA/same: FAIL",
        "TestA/ended: UNFINISHED",
        "TestA/skipped: SKIP",
    )


def test_cycles_of_the_suites_wait_for_a_plan_for_a_second_at_least() -> None:
    source = WAITING.read_text()

    patient = with_patience(source)

    changed = [line for line in patient.splitlines() if line not in source.splitlines()]
    assert changed == ["\tLeastWait = time.Second"]
    with pytest.raises(ValueError, match="does not say 'LeastWait"):
        with_patience(patient)


def test_the_page_shows_the_lists_as_they_are() -> None:
    listed = read()
    names = {one.suite for one in listed.differences} | {one.suite for one in listed.left_out}
    names |= {one.suite for one in listed.separate}

    assert table(listed) in (CHECKOUT / "docs/upstream-suites.md").read_text()
    assert names | {SHORT[0]} <= {one.name for one in SUITES}
