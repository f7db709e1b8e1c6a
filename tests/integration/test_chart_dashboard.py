"""The dashboard's queries on a real Prometheus that asks the chart's components, in each form of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from integration.builders import make_node, make_pod
from integration.charting import NAMESPACE, Release, render
from integration.conftest import Install
from integration.installing import Installed, ours, until_ended
from integration.priority_classes import opted_in
from integration.waiting import until, until_seen
from makeway.dev.binaries import PROMETHEUS
from makeway.dev.build import ensure
from makeway.dev.paths import CHART
from makeway.dev.probes import http_ok
from makeway.dev.processes import Process, Program
from makeway.dev.progress import ConsoleProgress

KUBE_SYSTEM = "kube-system"
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

OF_GROUPS = {"PodGroupPostFilter by result", "Plans for groups by result", "Time of a plan for a group"}
"""Empty where no pod group needs room."""

OF_THE_PLUGIN = {
    "PostFilter by result",
    "Time of PostFilter",
    "Pods that wait for room in their queue",
    "Time of PodGroupPostFilter",
    "Breakers round the planner",
}
OF_THE_NOMINATOR = {
    "Pods of opted-in classes",
    "Plans for the nominator, by result",
    "Orders of the nominator, by result",
    "From unschedulable to bound",
    "Nominations lost and taken back",
    "Leading nominators",
}
OF_COMPARISONS = {
    "Comparisons by result",
    "Victims of compared preemptions",
    "Budgets and groups broken in compared preemptions",
}
OF_EVICTORS = {
    "Evictors",
    "Failed orders, 1 h",
    "Orders ended, by result",
    "Victims",
    "From an order to its last delete",
}
OF_REQUESTS = {"Plans by result", "Time of a plan"}
"""No component asks for plans where planner and NATS are alone; comparisons plan without a request."""


@pytest.mark.slow
async def test_every_panel_has_data_where_the_scheduler_in_kube_system_has_the_plugin(
    installed: Installed, tmp_path: Path
) -> None:
    await installed.start_services()
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(ours("low", "low", 1))
        url = await prometheus_for(
            installed.release, [*installed.planners, *installed.evictors], tmp_path, scheduler=installed
        )
        (pod,) = await space.create(ours("high", "high", 1))
        await until_ended(bus, pod.metadata.uid)
        await space.until_bound("high")

        empty = await empty_panels(url, len(installed.planners) + len(installed.evictors) + 1)

    assert empty <= SELDOM | OF_GROUPS | OF_THE_NOMINATOR | OF_COMPARISONS


@pytest.mark.slow
async def test_every_panel_has_data_beside_an_untouched_scheduler(install: Install, tmp_path: Path) -> None:
    manifests = render("bridge=external", "policy.document.mode=enforce")
    installed = install([*manifests, opted_in("opted-in")])
    await installed.come_up(scheduler=False)
    await installed.start_services(nominators=True)
    services = [*installed.planners, *installed.evictors, *installed.nominators]
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(make_pod("low").priority("low").cpu(1))
        url = await prometheus_for(installed.release, services, tmp_path)
        (pod,) = await space.create(make_pod("high").spec(priorityClassName="opted-in").cpu(1))
        await until_ended(bus, pod.metadata.uid)
        await space.until_bound("high")

        empty = await empty_panels(url, len(services))

    assert empty <= SELDOM | OF_GROUPS | OF_THE_PLUGIN | OF_COMPARISONS


@pytest.mark.slow
async def test_every_panel_has_data_where_others_are_compared(install: Install, tmp_path: Path) -> None:
    installed = install(render())
    await installed.come_up(scheduler=False)
    installed.planners = [installed.release.start_service("planner") for _ in range(2)]
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(make_pod("low").priority("low").cpu(1))
        url = await prometheus_for(installed.release, installed.planners, tmp_path)
        (pod,) = await space.create(make_pod("high").priority("high").cpu(1))
        await space.until_bound("high")
        await until("it is compared", lambda: bus.comparisons(pod.metadata.uid))

        empty = await empty_panels(url, len(installed.planners))

    assert empty <= SELDOM | OF_GROUPS | OF_THE_PLUGIN | OF_THE_NOMINATOR | OF_EVICTORS | OF_REQUESTS


async def empty_panels(url: str, targets: int) -> set[str]:
    """Wait until every target was scraped a few times; then the titles of panels without any data."""

    await until_seen(
        "every component was scraped three times",
        lambda: query(url, "count_over_time(up[30s]) >= 3"),
        lambda seen: len(seen) == targets,
    )
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    found = {
        panel["title"]: [await query(url, target["expr"]) for target in panel["targets"]] for panel in panels
    }
    return {title for title, answers in found.items() if not any(answers)}


async def query(url: str, expression: str) -> list[object]:
    """What Prometheus answers, with Grafana's variables put in."""
    variables = {"$namespace": NAMESPACE, "$scheduler_namespace": ".*", "$__rate_interval": "30s"}
    for name, value in variables.items():
        expression = expression.replace(name, value)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/v1/query", params={"query": expression}) as answer,
    ):
        found = await answer.json()
    assert found["status"] == "success", (expression, found)
    result: list[object] = found["data"]["result"]
    return result


async def prometheus_for(
    release: Release,
    services: list[tuple[Process, str]],
    directory: Path,
    *,
    scheduler: Installed | None = None,
) -> str:
    """Run Prometheus, which asks all every second, the scheduler as one of kube-system; gives its URL."""
    jobs = [
        {
            "job_name": "services",
            "static_configs": [
                {
                    "targets": [url.removeprefix("http://")],
                    "labels": {"namespace": NAMESPACE, "pod": one.program.name},
                }
                for one, url in services
            ],
        }
    ]
    if scheduler is not None:
        token = directory / "token"
        token.write_text(scheduler.reader_token())
        jobs.append(scheduler_job(scheduler.scheduler_url, token))
    intervals = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    file = directory / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"global": intervals, "scrape_configs": jobs}))
    executable = await asyncio.to_thread(lambda: ensure([PROMETHEUS], ConsoleProgress())[PROMETHEUS.name])
    address = f"127.0.0.1:{release.port()}"
    argv = (
        str(executable),
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    )
    ready = http_ok(f"http://{address}/-/ready")
    await asyncio.to_thread(release.start, Program(name="prometheus", argv=argv, ready=ready))
    return f"http://{address}"


def scheduler_job(url: str, token: Path) -> dict[str, Any]:
    labels = {"namespace": KUBE_SYSTEM, "pod": "kube-scheduler"}
    return {
        "job_name": "scheduler",
        "scheme": "https",
        "tls_config": {"insecure_skip_verify": True},
        "authorization": {"credentials_file": str(token)},
        "static_configs": [{"targets": [url.removeprefix("https://")], "labels": labels}],
    }
