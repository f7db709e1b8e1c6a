"""Queues as `makeway queues` prints them."""

from datetime import UTC, datetime, timedelta

from makeway.bus.decisions import Obstacle
from makeway.bus.messages import API_VERSION
from makeway.bus.queue_report import QueueReport, QueueState, QuotaEnd, QuotaProcess, QuotaTimer, QuotaWaiting
from makeway.cli.policy.queues_text import COLUMNS, lines, rows, summary
from makeway.cli.tables import table

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GIBI = 2**30
QUOTA = [column.title for column in COLUMNS].index("QUOTA")


def state(path: str, **changes: object) -> QueueState:
    fields: dict[str, object] = {
        "leaf": True,
        "pods": 3,
        "usage": {"cpu": 3500, "memory": 4 * GIBI, "pods": 3},
        "max": {"cpu": 4000},
    }
    return QueueState(path=path, **fields | changes)  # type: ignore[arg-type]


def report(*queues: QueueState, **changes: object) -> QueueReport:
    fields: dict[str, object] = {"revision": "sha256:1", "quota_preemption": True}
    return QueueReport(api_version=API_VERSION, planner="p", at=NOW, queues=queues, **fields | changes)  # type: ignore[arg-type]


def test_the_tree_is_indented_and_shows_use_beside_the_maximum() -> None:
    shown = list(rows(report(state("root", max={}), state("root.a", guaranteed={"cpu": 1000}))))

    assert shown == [
        ("root", "3", "cpu 3500m, memory 4Gi", "", "", "", "all"),
        ("  a", "3", "cpu 3500m / 4, memory 4Gi", "cpu 1", "", "", "all"),
    ]


def test_the_tree_says_what_becomes_of_a_lowered_quota() -> None:
    timer = QuotaTimer(since=NOW, fires_at=NOW + timedelta(seconds=90))
    process = QuotaProcess(since=NOW, order_id="ord-1", victims=4)
    end = QuotaEnd(result="bestEffort", at=NOW, message="m")
    queues = (state("root.a", timer=timer), state("root.b", process=process), state("root.c", last=end))

    assert [row[QUOTA] for row in rows(report(*queues))] == [
        "enforced in 90 s",
        "enforcing, 4 leaving",
        "partly enforced",
    ]


def test_a_quota_that_was_once_not_needed_is_told_of_in_the_past() -> None:
    last = QuotaEnd(result="notNeeded", at=NOW, message="m")
    queue = state("root.a", usage={"cpu": 5000}, last=last)

    assert [row[QUOTA] for row in rows(report(queue))] == ["was not above its max"]


def test_all_of_one_queue_names_what_blocked_its_quota() -> None:
    end = QuotaEnd(
        result="unsuccessful",
        at=NOW,
        message="root.a uses too much",
        blocked=(Obstacle(reason="queue-guaranteed", message="2 pods kept by the guarantee of root"),),
    )
    shown = "\n".join(lines(state("root.a", delay_seconds=60, miss_percent=10, last=end), NOW))

    assert "Max:         cpu 4" in shown
    assert "Namespaces:  all" in shown
    assert "Delay:       60 s after max was lowered; at most 10 % may be left over" in shown
    assert "Last quota:  not enforced 2026-03-01T12:00:00Z, 0 evicted" in shown
    assert "Blocked by:  queue-guaranteed: 2 pods kept by the guarantee of root" in shown


def test_only_where_queues_take_back_their_guarantee_is_it_said() -> None:
    back = state("root.a", guaranteed={"cpu": 1000}, reclaims_in="root")

    for queue, words in ((back, 1), (state("root.a", guaranteed={"cpu": 1000}), 0)):
        shown = "\n".join(lines(queue, NOW))
        head, *_ = table(COLUMNS, rows(report(queue)))
        assert head.count("RECLAIMS IN") == words
        assert shown.count("Reclaims:    up to its guarantee, from queues in root") == words


def test_what_the_table_cannot_show_is_said_below_it() -> None:
    assert summary(report()) == ""
    assert "off" in summary(report(quota_preemption=False))
    assert "2 pods are unplaced" in summary(report(misplaced=2))


def test_a_process_that_waits_says_for_what_and_until_when() -> None:
    waiting = QuotaWaiting(
        reason="victims-share", message="80 of 100", since=NOW, until=NOW + timedelta(seconds=90)
    )
    queue = state("root.a", process=QuotaProcess(since=NOW, evicted=80, waiting=waiting))

    (row,) = rows(QueueReport(api_version="v1", planner="p", at=NOW, queues=(queue,)))
    text = "\n".join(lines(queue, NOW))

    assert "waits (victims-share), tries again in 90 s" in row
    assert "Waits:       victims-share, since" in text
    assert "             80 of 100" in text
