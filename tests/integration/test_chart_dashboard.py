"""The dashboard's queries on a real Prometheus that asks the chart's components."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
import yaml

from integration.builders import make_node
from integration.charting import NAMESPACE
from integration.installing import Installed, ours, until_ended
from integration.waiting import until
from makeway.dev.binaries import PROMETHEUS
from makeway.dev.build import ensure
from makeway.dev.paths import CHART
from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.progress import ConsoleProgress

SELDOM = {
    "Refusals by reason",
    "Plan requests that were not answered",
    "Requests to the API server that failed",
    "Rollbacks and repairs",
    "Put aside",
    "Queue gate",
    "Lowered quotas",
    "Memory",
}
"""Panels that are empty while nothing of their kind has happened; Memory asks for names of pods."""


@pytest.mark.slow
async def test_every_query_of_the_dashboard_answers_on_a_real_prometheus(
    installed: Installed, tmp_path: Path
) -> None:
    await installed.start_services()
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(ours("low", "low", 1))
        url = await asyncio.to_thread(_start_prometheus, installed, tmp_path)
        (pod,) = await space.create(ours("high", "high", 1))
        await until_ended(bus, pod.metadata.uid)
        await space.until_bound("high", seconds=30)

        async def scraped() -> bool:
            targets = await _query(url, "count_over_time(up[30s]) >= 3")
            return len(targets) == len(installed.planners) + len(installed.evictors) + 1

        await until("every component was scraped three times", scraped, seconds=30)
        dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
        answers = {
            panel["title"]: [await _query(url, target["expr"]) for target in panel["targets"]]
            for panel in dashboard["panels"]
            if panel["type"] != "row"
        }

    assert {title for title, found in answers.items() if not any(found)} <= SELDOM


async def _query(url: str, expression: str) -> list[object]:
    """What Prometheus answers, with Grafana's variables put in."""
    query = expression.replace("$namespace", NAMESPACE).replace("$__rate_interval", "30s")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/v1/query", params={"query": query}) as answer,
    ):
        found = await answer.json()
    assert found["status"] == "success", (query, found)
    result: list[object] = found["data"]["result"]
    return result


def _start_prometheus(installed: Installed, directory: Path) -> str:
    """Run Prometheus, which asks every component every second; gives its URL."""
    port = installed.release.port()
    token = directory / "token"
    token.write_text(installed.reader_token())
    services = [*installed.planners, *installed.evictors]
    labels = {"namespace": NAMESPACE}
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "services",
                "static_configs": [
                    {"targets": [url.removeprefix("http://")], "labels": {**labels, "pod": one.program.name}}
                    for one, url in services
                ],
            },
            {
                "job_name": "scheduler",
                "scheme": "https",
                "tls_config": {"insecure_skip_verify": True},
                "authorization": {"credentials_file": str(token)},
                "static_configs": [
                    {
                        "targets": [installed.scheduler_url.removeprefix("https://")],
                        "labels": {**labels, "pod": "makeway-scheduler"},
                    }
                ],
            },
        ],
    }
    file = directory / "prometheus.yaml"
    file.write_text(yaml.safe_dump(configuration))
    executable = ensure([PROMETHEUS], ConsoleProgress())[PROMETHEUS.name]
    url = f"http://127.0.0.1:{port}"
    installed.release.start(
        Program(
            name="prometheus",
            argv=(
                str(executable),
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ),
            ready=http_ok(f"{url}/-/ready"),
        )
    )
    return url
