"""Who leads others, and since when a pod has been seen not to fit."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.policy.facts import PodFacts
from makeway.planner.service.freshness import FirstFailures
from makeway.planner.snapshot.owner_index import OwnerIndex
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import NOW, make_pod


def of_application(uid: str, created: int, namespace: str = "default") -> PodRecord:
    facts = PodFacts(application="spark-1", created_micros=created)
    return make_pod(uid, namespace=namespace, facts=facts)


def test_a_pod_leads_for_as_long_as_one_names_it_as_owner() -> None:
    owners, driver = OwnerIndex(), make_pod("driver")
    workers = [make_pod(uid, facts=PodFacts(owners=("driver",))) for uid in ("w1", "w2")]
    for worker in workers:
        owners.add(worker)

    owners.discard(workers[0])
    assert owners.has_dependents(driver)
    owners.discard(workers[1])
    assert not owners.has_dependents(driver)


def test_the_oldest_pod_that_is_left_leads_its_application() -> None:
    owners, first, second = OwnerIndex(), of_application("b", 1), of_application("a", 2)
    owners.add(second)
    owners.add(first)

    assert [owners.has_dependents(pod) for pod in (first, second)] == [True, False]
    owners.discard(first)
    assert owners.has_dependents(second)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=40))
def test_the_originator_is_the_first_created_of_pods_there(steps: list[tuple[int, int, bool]]) -> None:
    owners = OwnerIndex()
    there: dict[str, PodRecord] = {}

    def first() -> str:
        return min(there, key=lambda uid: (there[uid].facts.created_micros, uid), default="")

    for number, created, leaves in steps:
        uid = f"uid-{number}"
        if leaves and uid in there:
            owners.discard(there.pop(uid))
        elif not leaves and uid not in there:
            there[uid] = of_application(uid, created)
            owners.add(there[uid])
        assert [uid for uid, pod in there.items() if owners.is_originator(pod)] == [first()][: len(there)]


def test_an_application_of_that_name_in_another_namespace_is_another() -> None:
    owners, here, there = OwnerIndex(), of_application("a", 1), of_application("b", 2, "other")
    owners.add(here)
    owners.add(there)

    assert owners.has_dependents(here)
    assert owners.has_dependents(there)


def test_the_earlier_of_the_condition_and_the_first_question_counts() -> None:
    seen = FirstFailures()

    assert seen.note("p", None, NOW) == NOW
    assert seen.note("p", NOW + timedelta(seconds=1), NOW + timedelta(seconds=5)) == NOW
    assert FirstFailures().note("p", NOW - timedelta(seconds=9), NOW) == NOW - timedelta(seconds=9)
