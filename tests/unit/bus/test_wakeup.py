"""When a follower looks into its stream again."""

from makeway.bus.nats.wakeup import LISTENING_SECONDS, POLL_SECONDS, Owed


def test_where_nothing_passes_it_looks_at_its_pace() -> None:
    owed = Owed()
    owed.found(3)

    assert [owed.pause() for _ in range(3)] == [POLL_SECONDS] * 3


def test_what_has_passed_and_is_not_stored_yet_is_looked_for_soon_and_then_at_its_pace() -> None:
    owed = Owed()
    owed.passed()

    pauses = [owed.pause() for _ in range(6)]

    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, POLL_SECONDS]


def test_what_was_found_is_looked_for_no_more() -> None:
    owed = Owed()
    owed.passed()
    owed.passed()

    owed.found(1)
    assert owed.pause() < POLL_SECONDS
    owed.found(1)
    assert owed.pause() == POLL_SECONDS


def test_one_that_hears_what_passes_looks_seldom_where_nothing_does() -> None:
    owed = Owed()
    assert owed.pause(LISTENING_SECONDS) == LISTENING_SECONDS

    owed.passed()
    assert owed.pause(LISTENING_SECONDS) < POLL_SECONDS
