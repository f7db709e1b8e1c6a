import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from makeway.bus import ids
from makeway.bus.subjects import Subjects

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def test_ids_say_what_they_are_and_fit_into_a_subject() -> None:
    made = [ids.order_id(NOW), ids.decision_id(NOW), ids.request_id(NOW)]

    assert [value[:4] for value in made] == ["ord-", "dec-", "req-"]
    assert all(re.fullmatch(r"[a-z]{3}-[0-9a-hjkmnp-tv-z]{26}", value) for value in made)


def test_ids_sort_by_the_time_they_were_made() -> None:
    times = [NOW + timedelta(milliseconds=n) for n in (0, 1, 31, 32, 1000, 10**6, 10**10)]
    made = [ids.order_id(time) for time in times]

    assert sorted(made) == made


def test_the_beginning_of_an_id_says_when_it_was_made() -> None:
    made = ids.order_id(NOW)

    assert ids.moment_in(made) == ids.moment_in(made[:14]) == NOW
    assert ids.moment_in(made[:13]) is None
    assert ids.moment_in("ord-!!!!!!!!!!") is None


def test_ids_of_one_moment_differ() -> None:
    assert len({ids.order_id(NOW) for _ in range(1000)}) == 1000


def test_two_prefixes_share_no_name() -> None:
    one, two = vars(Subjects("makeway")), vars(Subjects("makeway.eu-1"))

    assert not set(one.values()) & set(two.values())
    assert two["orders_stream"] == "MAKEWAY_EU-1_ORDERS"


@pytest.mark.parametrize("prefix", ["", ".", "a.", ".a", "a..b", "a b", "a.*", ">", "a\r\n"])
def test_a_prefix_that_is_no_subject_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="subject prefix"):
        Subjects(prefix)


@pytest.mark.parametrize("uid", ["", "a.b", "*", "a\n", "a b"])
def test_an_id_that_is_no_token_makes_no_subject(uid: str) -> None:
    subjects = Subjects()

    of_groups = partial(subjects.orders_of, "group"), partial(subjects.decisions_of, "group")
    of_pods = partial(subjects.orders_of, "pod"), partial(subjects.decisions_of, "pod")
    for make in (*of_pods, *of_groups, subjects.outcome):
        with pytest.raises(ValueError, match="cannot be part of a subject"):
            make(uid)


def test_every_queue_has_one_subject_of_its_own_whatever_its_path_holds() -> None:
    subjects = Subjects()
    paths = ["root", "root.a", "root.a.b", "root.a*", "root.>", "root.a b", "root.é"]

    names = {subjects.orders_of("quota", path) for path in paths}

    assert len(names) == len(paths)
    assert all(name.startswith("makeway.v1.orders.quota.") and name.count(".") == 4 for name in names)
