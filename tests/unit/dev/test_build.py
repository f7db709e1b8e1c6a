import sys
from pathlib import Path

import pytest

from makeway.dev.binaries import ETCD, GO_ENVIRONMENT, MAKEWAY_SCHEDULER, Binary
from makeway.dev.build import check_go, ensure
from makeway.dev.errors import DevError
from makeway.dev.progress import SilentProgress

pytestmark = pytest.mark.tools

TOOL = Binary("tool", "example.com/tool", 1, version="v1")
FLAGS = GO_ENVIRONMENT["GOFLAGS"]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of Go; it counts its installs in the file `runs` beside it."""
    directory = tmp_path / "go"
    directory.mkdir()
    program = directory / "go"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, sys, time\n"
        "if sys.argv[1] == 'env':\n"
        "    print(os.environ.get('FAKE_GOVERSION', 'go1.99.0'))\n"
        "    sys.exit()\n"
        "if os.environ.get('FAKE_FAILS'):\n"
        "    print('x.go:1: undefined: y')\n"
        "    sys.exit(1)\n"
        "with open(pathlib.Path(__file__).with_name('runs'), 'a') as runs:\n"
        "    print(' '.join(sys.argv[1:]), os.environ['GOFLAGS'], os.environ['GOWORK'], file=runs)\n"
        "time.sleep(0.2)\n"
        "target = os.environ.get('GOBIN') or sys.argv[sys.argv.index('-o') + 1]\n"
        "for name in ('tool', 'makeway-scheduler', 'server'):\n"
        "    pathlib.Path(target, name).write_text(f'built {name}')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("MAKEWAY_CACHE", str(tmp_path / "cache"))
    return directory


def test_a_binary_is_built_once_with_the_flags_all_builds_share(go: Path) -> None:
    first = ensure([TOOL], SilentProgress())
    second = ensure([TOOL], SilentProgress())

    assert first == second
    assert first["tool"].read_text() == "built tool"
    assert (go / "runs").read_text().splitlines() == [
        f"install -ldflags=example.com/tool=-s -w example.com/tool@v1 {FLAGS} off"
    ]


def test_programs_of_two_modules_are_built_by_one_command(go: Path) -> None:
    built = ensure([MAKEWAY_SCHEDULER, TOOL, ETCD], SilentProgress())

    assert {name: path.read_text() for name, path in built.items()} == {
        "makeway-scheduler": "built makeway-scheduler",
        "tool": "built tool",
        "etcd": "built server",
    }
    together, alone = sorted((go / "runs").read_text().splitlines())
    assert together.endswith(
        f"./cmd/makeway-scheduler go.etcd.io/etcd/server/v3 {FLAGS} {together.split()[-1]}"
    )
    assert together.endswith("/go.work")
    assert alone.startswith("install ")


def test_a_failed_build_says_what_the_compiler_said_and_leaves_nothing(
    go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")

    with pytest.raises(DevError, match="undefined: y"):
        ensure([TOOL], SilentProgress())

    assert [path.name for path in (tmp_path / "cache" / "bin").iterdir()] == [".tool.lock"]


def test_a_missing_go_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DevError, match=r"no `go` is on PATH.*go\.dev/dl"):
        check_go()
