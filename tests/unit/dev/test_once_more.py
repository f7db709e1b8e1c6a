"""What of failed tests is run once more, and when a run passes by that."""

import subprocess
import sys
from pathlib import Path

import pytest

import once_more

pytestmark = pytest.mark.tools


FLAKY = """
from pathlib import Path

def test_flaky(worker_id):
    print("on", worker_id)
    mark = Path(__file__).with_name("mark")
    known = mark.exists()
    mark.touch()
    assert known, "the mark was not there"
"""


def run(directory: Path, text: str) -> tuple[int, str]:
    """Run tests with this text by two processes as `make ONCE_MORE=1 integration` does."""
    (directory / "test_some.py").write_text("import pytest\n" + text)
    ran = subprocess.run(
        (sys.executable, once_more.__file__, ".", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"),
        cwd=directory,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


def test_a_test_that_passes_alone_is_flaky_and_the_run_passes_with_both_outputs(tmp_path: Path) -> None:
    code, said = run(tmp_path, FLAKY.replace("def ", '@pytest.mark.xdist_group("g")\ndef '))

    _, _, told = said.partition("==== FLAKY: test_some.py::test_flaky\n")
    assert code == 0
    assert (
        told.index("the mark was not there") < told.index("on gw") < told.index("==== what it said once more")
    )
    assert told.index("==== what it said once more") < told.index("on master")


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    code, said = run(tmp_path, FLAKY + "\ndef test_broken():\n    assert 'first' == 'second'\n")

    assert code == 1
    assert "==== BROKEN: test_some.py::test_broken" in said
    assert "==== FLAKY: test_some.py::test_flaky" in said


def test_more_failures_than_flakiness_explains_are_not_run_again(tmp_path: Path) -> None:
    several = "@pytest.mark.parametrize('n', range(6))\ndef test_flaky(n, "
    code, said = run(tmp_path, FLAKY.replace("def test_flaky(", several).replace('"mark"', "f'mark-{n}'"))

    assert code == 1
    assert "6 tests failed: more than 5 are not run once more" in said
    assert "FLAKY" not in said
