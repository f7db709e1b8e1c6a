"""Which integration tests one process runs as a whole, in which order, and how long control planes run."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from integration.clusters import KINDS
from integration.lifetimes import SHARED, Lifetimes, group, needed, order

pytestmark = pytest.mark.tools


def an_item(name: str, *fixtures: str) -> pytest.Item:
    made = SimpleNamespace(nodeid=name, path=Path(f"test_{name}.py"), fixturenames=fixtures)
    return cast("pytest.Item", made)


def test_one_process_runs_all_tests_of_a_control_plane_that_is_started_once() -> None:
    items = [an_item("a", "tls_cluster"), an_item("b", "tls_cluster"), an_item("c", "shared_cluster")]

    assert [group(item) for item in items] == ["tls_cluster", "tls_cluster", "test_c..shared_cluster"]


def test_tests_of_one_function_on_two_control_planes_are_two_groups() -> None:
    here, there = an_item("a", "shared_cluster"), an_item("a", "external_cluster")

    assert group(here) != group(there)


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


def test_a_test_needs_what_its_own_module_has_in_place_of_the_shared_cluster() -> None:
    replaced = SimpleNamespace(
        nodeid="test_a.py::a",
        path=Path("test_a.py"),
        fixturenames=("cluster", "evictor_cluster"),
        _fixtureinfo=SimpleNamespace(
            name2fixturedefs={"cluster": (SimpleNamespace(baseid=""), SimpleNamespace(baseid="test_a.py"))}
        ),
    )

    assert needed(cast("pytest.Item", replaced)) == {"evictor_cluster"}
    assert needed(an_item("b", "cluster")) == {"shared_cluster"}


def test_a_control_plane_is_stopped_before_the_first_test_after_its_last() -> None:
    items = [an_item("a", "tls_cluster"), an_item("b", "tls_cluster"), an_item("c", "shared_cluster")]
    stopped: list[str] = []
    lifetimes = Lifetimes(items)
    lifetimes.add("tls_cluster", lambda: stopped.append("tls_cluster"))

    lifetimes.before(items[1])
    assert stopped == []
    lifetimes.before(items[2])
    assert stopped == ["tls_cluster"]


def test_every_kind_of_control_plane_has_its_place_in_the_order() -> None:
    assert set(KINDS) < set(SHARED)
    assert len(set(SHARED)) == len(SHARED)


def test_one_of_two_processes_runs_a_group(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("""
import pytest
from integration.lifetimes import name_groups

@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    yield
    name_groups(items)
""")
    (tmp_path / "test_groups.py").write_text("""
import time
import subprocess
import sys
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("of", [pytest.param(one, marks=pytest.mark.xdist_group(one)) for one in ("a", "b")])
def test_it(of, number, worker_id):
    (Path(__file__).parent / f"{of}.{number}.ran").write_text(worker_id)
    time.sleep(0.05)
""")
    command = ("-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", ".")
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    subprocess.run((sys.executable, *command), cwd=tmp_path, env=environment, check=True)

    by_group = {of: {file.read_text() for file in tmp_path.glob(f"{of}.*.ran")} for of in ("a", "b")}

    assert len(list(tmp_path.glob("*.ran"))) == 12
    assert [len(workers) for workers in by_group.values()] == [1, 1]
