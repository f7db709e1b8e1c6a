"""`makeway dev`, as a person calls it."""

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.processes import processes_of
from integration.waiting import NotYet, until
from makeway.dev import named
from makeway.dev.options import KWOK, ClusterOptions
from makeway.dev.progress import SilentProgress

MAKEWAY = str(Path(sys.executable).parent / "makeway")
pytestmark = [pytest.mark.tools, pytest.mark.wide]

SMALL = ("--without=planner", "--without=evictor", "--without=scheduler", "--without=nats")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Named clusters of the test's own."""
    monkeypatch.setenv("MAKEWAY_STATE", str(tmp_path))
    yield tmp_path
    for name in named.names():
        named.down(name)


def dev(*arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([MAKEWAY, "dev", *arguments], capture_output=True, text=True, check=False)
    assert (result.returncode != 0) == fails, result.stdout + result.stderr
    return result


def test_a_cluster_stays_up_until_it_is_taken_down(state: Path) -> None:
    exports = dev("up", "--name=one", "--nodes=2", *SMALL).stdout
    assert dev("env", "--name=one").stdout == exports
    nodes = subprocess.run(
        ["sh", "-c", 'eval "$0"; kubectl get nodes -o name', exports],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(state)},
    )
    assert nodes.stdout.split() == ["node/node-1", "node/node-2"]
    status = dev("status").stdout
    assert "kube-apiserver" in status
    assert f"logs: {state}/one/logs" in status

    dev("down", "--name=one")

    assert processes_of(state / "one") == []
    assert not (state / "one").exists()
    assert "is not up" in dev("env", "--name=one", fails=True).stderr
    assert "no cluster is up" in dev("status", fails=True).stdout


async def test_a_cluster_on_a_lifeline_ends_with_its_holder(state: Path) -> None:
    lifeline = named.Lifeline()
    options = ClusterOptions(frozenset({KWOK}))
    await asyncio.to_thread(named.up, "one", options, progress=SilentProgress(), lifeline=lifeline)
    assert processes_of(state / "one") != []

    lifeline.close()

    async def ended() -> bool:
        if left := processes_of(state / "one"):
            raise NotYet(shlex.join(left))
        return True

    await until("the cluster has ended", ended, seconds=10)
