"""What is remembered of pods between their plans: whose turn it is, and what costs pods for nothing."""

from datetime import UTC, datetime, timedelta

from makeway.nominator.attempts import MOST_TURNS, Attempts, AttemptsByPod
from makeway.nominator.pending import PendingPod

NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def waiting(uid: str, *, priority: int = 0, age: float = 0, namespace: str = "default") -> PendingPod:
    return PendingPod(
        uid=uid,
        namespace=namespace,
        name=uid,
        priority=priority,
        class_name="urgent",
        policy="Never",
        nominated="",
        unfit_since=NOW,
        created=NOW - seconds(age),
        group="",
        leaving=False,
    )


def turns(remembered: AttemptsByPod, *pods: PendingPod, now: datetime = NOW) -> list[str]:
    return [pod.uid for pod, _ in remembered.in_turn(pods, now, lambda pod: pod.created or NOW)]


def test_the_more_important_go_first_and_among_equals_the_older() -> None:
    remembered = AttemptsByPod()

    order = turns(remembered, waiting("b"), waiting("old", age=9), waiting("a"), waiting("top", priority=1))

    assert order == ["top", "old", "a", "b"]


def test_pods_that_are_refused_again_and_again_keep_no_equal_from_its_turn() -> None:
    remembered = AttemptsByPod()
    flood = [waiting(f"flood-{number}", age=3600) for number in range(50)]
    for pod in flood:
        remembered.of(pod, NOW).pause(NOW)  # due again in one second
    later = NOW + seconds(5)
    newcomer = waiting("newcomer")

    order = turns(remembered, *flood, newcomer, now=later)

    assert order[0] == "newcomer"


def test_of_many_thousands_of_pods_each_waits_after_its_turn() -> None:
    remembered = AttemptsByPod()
    flood = [waiting(f"flood-{number}") for number in range(10_001)]
    for pod in flood:
        remembered.of(pod, NOW).pause(NOW)

    assert turns(remembered, *flood, waiting("other")) == ["other"]


def test_among_equals_each_namespace_has_its_turn_before_one_has_its_second() -> None:
    remembered = AttemptsByPod()
    flood = [waiting(f"flood-{number}", age=60 - number) for number in range(50)]
    others = [waiting("other", namespace="shop"), waiting("low", priority=-1, namespace="shop")]

    order = turns(remembered, *flood, *others)

    assert order[:3] == ["flood-0", "other", "flood-1"]
    assert order[-1] == "low"


def test_a_round_has_no_more_turns_of_one_namespace_than_it_has_time_for() -> None:
    flood = [waiting(f"flood-{number:04}") for number in range(3 * MOST_TURNS)]

    order = turns(AttemptsByPod(), *flood, waiting("low", priority=-1))

    assert order == [*(pod.uid for pod in flood[:MOST_TURNS]), "low"]


def test_a_less_important_pod_that_has_waited_longest_for_its_turn_is_planned_for_first() -> None:
    remembered = AttemptsByPod()
    flood, low = [waiting(f"flood-{number}", priority=1) for number in range(50)], waiting("low")
    turns(remembered, *flood, low)
    for pod in flood:
        remembered.of(pod, NOW).pause(NOW + seconds(50))

    assert turns(remembered, *flood, low, now=NOW + seconds(60))[0] == "flood-0"
    assert turns(remembered, *flood, low, now=NOW + seconds(61))[:2] == ["low", "flood-0"]


def test_a_nominator_that_begins_to_lead_takes_no_old_pod_for_one_that_has_waited_for_its_turn() -> None:
    remembered = AttemptsByPod()

    assert turns(remembered, waiting("old", age=3600), waiting("top", priority=1)) == ["top", "old"]


def test_a_pod_whose_pause_is_not_over_has_no_turn() -> None:
    remembered = AttemptsByPod()
    remembered.of(waiting("a"), NOW).pause(NOW)

    assert turns(remembered, waiting("a"), waiting("b")) == ["b"]


def test_a_change_of_the_policy_puts_no_pod_before_those_that_had_no_turn_yet() -> None:
    remembered = AttemptsByPod()
    later = NOW + seconds(5)
    turns(remembered, waiting("a"), waiting("b"))
    remembered.of(waiting("a"), NOW).pause(NOW)

    remembered.retry(later)

    assert turns(remembered, waiting("a"), waiting("b"), now=later) == ["b", "a"]


def test_a_change_of_the_policy_lets_all_try_again() -> None:
    remembered = AttemptsByPod()
    refused = remembered.of(waiting("refused"), NOW)
    refused.pause(NOW)

    remembered.retry(NOW)

    assert (refused.next_at, refused.failures) == (NOW, 0)


def test_what_is_remembered_ends_with_the_pod() -> None:
    remembered = AttemptsByPod()
    turns(remembered, waiting("a"))
    known = remembered.of(waiting("a"), NOW + seconds(3))
    remembered.keep({"b"})

    assert known.first_seen == NOW
    assert "a" not in remembered


def test_pauses_double_up_to_a_minute() -> None:
    attempts, waits = Attempts(NOW, NOW), []
    for _ in range(9):
        attempts.pause(NOW)
        waits.append((attempts.next_at - NOW).total_seconds())

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_what_has_nothing_to_do_with_a_pod_makes_its_own_pauses_hardly_longer() -> None:
    attempts = Attempts(NOW, NOW)
    for _ in range(100):
        attempts.pause(NOW, longest=seconds(5))
    attempts.pause(NOW)

    assert attempts.next_at == NOW + seconds(8)


def test_a_time_that_changes_the_answer_ends_a_pause() -> None:
    attempts = Attempts(NOW, NOW, failures=6)
    attempts.pause(NOW)
    attempts.again_at(NOW + seconds(3))

    assert attempts.next_at == NOW + seconds(3)
