"""Which integration tests one process runs as a whole, in which order, and how long control planes run."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from integration.clusters import KINDS
from integration.lifetimes import Lifetimes, group, order

pytestmark = pytest.mark.tools


def an_item(name: str, *fixtures: str) -> pytest.Item:
    made = SimpleNamespace(nodeid=name, path=Path(f"test_{name}.py"), fixturenames=fixtures)
    return cast("pytest.Item", made)


def test_one_process_runs_all_tests_of_a_control_plane_that_is_started_once() -> None:
    items = [an_item("a", "tls_cluster"), an_item("b", "tls_cluster"), an_item("c", "shared_cluster")]

    assert [group(item) for item in items] == ["tls_cluster", "tls_cluster", "test_c..shared_cluster"]


def test_tests_run_by_their_control_planes_those_of_whole_ones_first() -> None:
    items = [
        an_item("a", "shared_cluster"),
        an_item("b", "chart_control_plane"),
        an_item("c", "installed", "chart_control_plane"),
        an_item("d"),
    ]

    order(items)

    assert [item.nodeid for item in items] == ["d", "c", "b", "a"]
    whole = [kind.whole for kind in KINDS.values()]
    assert whole == sorted(whole, reverse=True)


def test_a_control_plane_is_stopped_before_the_first_test_after_its_last() -> None:
    items = [an_item("a", "tls_cluster"), an_item("b", "tls_cluster"), an_item("c", "shared_cluster")]
    stopped: list[str] = []
    lifetimes = Lifetimes(items)
    lifetimes.add("tls_cluster", lambda: stopped.append("tls_cluster"))

    lifetimes.before(items[1])
    assert stopped == []
    lifetimes.before(items[2])
    assert stopped == ["tls_cluster"]
