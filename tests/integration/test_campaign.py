"""The campaign itself runs and ends clean; long runs are `make campaign`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("nats_servers", [1, 3])
def test_a_short_campaign_ends_clean(tmp_path: Path, nats_servers: int) -> None:
    summary = tmp_path / "summary.json"
    arguments = ["--minutes", "3", "--nodes", "8", "--rate", "0.4", "--nats-servers", str(nats_servers)]

    subprocess.run(
        [sys.executable, "-m", "campaign.run", *arguments, "--json", str(summary)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        check=True,
    )

    seen = json.loads(summary.read_text())
    assert seen["seen"]["orders"] > 0
    assert sum(seen["injected"].values()) > 0
