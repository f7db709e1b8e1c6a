"""The demo's rows are in the order of causes, however busy the machine is."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from integration.conftest import PrivateCluster
from makeway.dev.demo import main_job, manifests
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.runner import staged
from makeway.dev.demo.scenarios import MAIN, SCENARIOS
from makeway.dev.demo.stage import Stage
from makeway.dev.options import LIFTED_RATES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

MANY = int(os.environ.get("MAKEWAY_PREEMPTIONS", "20"))
_KINDS = {
    "created": " created: ",
    "planned": "planner: ",
    "nominated": "nominated to ",
    "ordered": " committed: ",
    "leaves": " leaves",
    "rolled back": "rolled back",
    "failed": "outcome failed",
    "succeeded": "outcome succeeded",
    "bound": " bound to ",
}


@pytest.fixture
def load() -> Iterator[None]:
    """Keep every core busy, twice."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    yield
    for one in busy:
        one.kill()
        one.wait()


def rows(output: io.StringIO) -> list[tuple[float, str]]:
    """Return milliseconds and kind of every row of the last timetable, and forget what was printed."""
    found = re.findall(r"^ *(\d+) ms  (.*)$", output.getvalue(), re.MULTILINE)
    output.seek(0)
    output.truncate()
    return [(float(at), next(one for one, text in _KINDS.items() if text in row)) for at, row in found]


def in_sequence(kinds: list[str], *chain: str) -> bool:
    """Report whether the kinds of a chain that are there come in its order; of several the first."""
    places = [kinds.index(one) for one in chain if one in kinds]
    return places == sorted(places)


async def replace_pod(stage: Stage, gone: str, fresh: list[manifests.Manifest]) -> None:
    path = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/{gone}"
    await stage.api.request("DELETE", path, body=b'{"gracePeriodSeconds": 0}')
    await stage.create(fresh)


@pytest.mark.usefixtures("load")
async def test_so_many_demo_timetables_follow_causes_under_load(private_cluster: PrivateCluster) -> None:
    cluster = await private_cluster(replace(SCENARIOS[MAIN].options, limits=LIFTED_RATES))
    output = io.StringIO()
    narrator = Narrator(Console(file=output, width=200, color_system=None))
    wrong: list[list[tuple[float, str]]] = []

    def look(*chains: tuple[str, ...]) -> None:
        told = rows(output)
        kinds, times = [kind for _, kind in told], [at for at, _ in told]
        assert {"created", "ordered", "succeeded", "bound"} <= set(kinds), told
        whole = kinds[0] == "created" and kinds[-1] == "bound" and times == sorted(times)
        if not (whole and all(in_sequence(kinds, *chain) for chain in chains)):
            wrong.append(told)

    async with staged(cluster.info, narrator) as stage:
        await main_job.prepare(stage)
        await main_job.fill(stage)
        for number in range(MANY):
            await main_job.make_room(stage, name := f"payment-{number}")
            look(("created", "planned", "nominated", "ordered", "leaves", "succeeded", "bound"))
            await replace_pod(stage, name, manifests.pods("crunch", [100 + number], "batch"))
            await stage.running({"web": 3, "crunch": 3})
        await stage.create([manifests.node("node-d"), *manifests.pods("crunch", [99], "batch")])
        await stage.create([*manifests.pods("ledger", [0], "scavenger"), *manifests.never_delete("ledger")])
        await stage.running({"web": 3, "crunch": 4, "ledger": 1})
        await stage.until_undeletable("ledger")
        refused = 0
        for number in range(MANY):
            await main_job.refuse(stage, name := f"fraud-check-{number}")
            refused += "outcome failed" in output.getvalue()
            look(("created", "nominated", "ordered", "rolled back", "failed", "succeeded", "bound"))
            (ledger,) = manifests.pods("ledger", [number], "scavenger")
            await stage.patch(ledger, {"metadata": {"labels": {"app": "closed"}}})
            await replace_pod(stage, f"ledger-{number}", [])
            await replace_pod(stage, name, manifests.pods("crunch", [1000 + number], "batch"))
            await stage.create(manifests.pods("ledger", [number + 1], "scavenger"))
            await stage.running({"web": 3, "crunch": 4, "ledger": 1})
    assert refused > MANY // 2
    assert wrong == []
