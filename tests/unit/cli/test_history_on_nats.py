"""`makeway history` on a real NATS: rows, sums and nothing."""

import json

import pytest
from msgspec.structs import replace

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.dev.samples import MESSAGES
from unit.cli.test_connect import makeway

pytestmark = pytest.mark.nats


async def test_decisions_are_rows_and_comparisons_are_summed(bus: Bus, nats_server: NatsServer) -> None:
    await bus.ensure_streams()
    decision, comparison = MESSAGES["decision.full"], MESSAGES["comparison.full"]
    assert isinstance(decision, DecisionRecord)
    assert isinstance(comparison, Comparison)
    await bus.publish_decision(replace(decision, diagnosis=None, status="candidates", mode="observe"))
    await bus.publish_comparison(comparison)
    at = f"--nats-url={nats_server.url}"

    code, out, err = await makeway("history", at)
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split()[:3] == ["AGE", "FOR", "NODE"]
    assert "shop/urgent" in row
    assert "1: batch/batch-b  preempted  default-scheduler" in row, "not what was planned"

    code, out, err = await makeway("history", at, "--compare", "-o", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["summary"]["results"] == {"better": 1}
    assert found["summary"]["savedPdbViolations"] == 1
    assert found["comparisons"][0]["decidedBy"] == "fewest-pdb-violations"

    code, out, err = await makeway("history", at, "--namespace=absent")
    assert (code, out) == (0, "")
    assert err.startswith("nothing was decided in namespace absent since ")


async def test_called_wrongly_it_says_so() -> None:
    code, out, err = await makeway("history", "--since=5x")
    assert (code, out) == (2, "")
    assert "--since" in err
    assert "'5x'" in err

    for options, said in (
        (("--compare", "--follow"), "give one of them"),
        (("--unreadable", "--compare"), "give one of them"),
        (("--unreadable", "-n", "shop"), "names no namespace"),
    ):
        _, _, err = await makeway("history", *options, exits=2)
        assert said in " ".join(err.replace("│", "").split())
