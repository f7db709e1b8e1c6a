"""`makeway check`: whether everything is as it must be, with a remedy for what is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final

import typer
from rich.text import Text

from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.cli.check import clocks as check_clocks
from makeway.cli.check.clocks import Reading
from makeway.cli.check.cluster import not_stored, server_version
from makeway.cli.check.minors import judge_api_server
from makeway.cli.check.place import CheckedBus, CheckedCluster
from makeway.cli.check.presence import not_installed
from makeway.cli.check.result import CheckReport, CheckResult, grouped, lines, report_of, verdict
from makeway.cli.check.rights import replaces_the_scheduler
from makeway.cli.check.table import LOOKS, NATS_LOOKS
from makeway.cli.connect.form import Form, installed_form
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import NEGATIVE, UNREACHABLE
from makeway.cli.output import OutputOption, Printer
from makeway.cli.shared_options import seconds_given
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

app = typer.Typer(add_completion=False)

_AGAIN_SECONDS: Final = 2.0
_ADMINISTRATOR: Final = "ask an administrator, who may read that ConfigMap"


@app.command()
@connected
async def check(
    installation: Installation,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Check again until nothing is wrong, such as after an upgrade.")
    ] = False,
    timeout: Annotated[  # noqa: ASYNC109 - an option of the command line
        str,
        typer.Option("--timeout", metavar="DURATION", help="With --wait: for how long, such as 90s or 5m."),
    ] = "2m",
    output: OutputOption = "text",
) -> int:
    """Check an installation: rights, versions, NATS, streams, scheduler profile, planner, clocks.

    The first line says whether all is well. Below it, for each part, a tick for what is in order; else what
    is wrong and what to do. Changes nothing. Exit code 1 where something is wrong, 3 where the API server
    cannot be reached, or the user may not see how the parts do.
    """
    seconds = seconds_given(timeout) if wait else 0.0
    printer = Printer(output)
    with printer.progress("checking"):
        report = await _settled(installation, seconds)
    if printer.data:
        printer.document(report)
    else:
        for line in screen(report):
            printer.line(line)
    if not report.healthy:
        return NEGATIVE
    return UNREACHABLE if report.blind else 0


def screen(report: CheckReport) -> Iterator[Text]:
    """Return the answer for a person: the verdict, then each part. Pure."""
    yield verdict(report)
    for group, results in grouped(report.results):
        yield Text(group, style="bold")
        for result in results:
            yield from lines(result)


async def _settled(installation: Installation, seconds: float) -> CheckReport:
    """Check until nothing is wrong or the time is over; at least once. Raises as the last time it did."""
    until = time.monotonic() + seconds
    while True:
        over = time.monotonic() + _AGAIN_SECONDS > until
        try:
            report = report_of([result async for result in _results(installation)])
        except ApiUnavailable:
            if over:
                raise
        else:
            if report.healthy or over:
                return report
        await asyncio.sleep(_AGAIN_SECONDS)


async def _results(installation: Installation) -> AsyncIterator[CheckResult]:
    readings: list[Reading] = []
    namespace = installation.makeway_namespace
    async with installation.api() as api:
        before = datetime.now(UTC)
        at = await api.server_time()
        version_text, minor = await server_version(api)
        form = await installed_form(api, namespace)
        yield judge_api_server(version_text, minor, plugin=form.plugin)
        if installation.nats_url is None and (missing := await not_installed(api, namespace)) is not None:
            yield missing
            return
        yield form_result(form)
        cluster_uid = await _cluster_uid(api)
        replaced = form.plugin and await replaces_the_scheduler(api, namespace, form.accounts)
        found: list[CheckResult] = []
        for look in LOOKS:
            for result in await look.results(CheckedCluster(api, namespace, form, replaced)):
                found.append(result)
                yield result
    looking = partial(
        CheckedBus,
        namespace=namespace,
        form=form,
        cluster_uid=cluster_uid,
        minor=minor,
        readings=readings,
        not_stored=not_stored(found),
    )
    async for result in _bus_results(installation, looking):
        yield result
    readings.append(Reading("API server", at, before, datetime.now(UTC), resolution_seconds=1.0))
    for result in check_clocks.judge(readings):
        yield result


def form_result(form: Form) -> CheckResult:
    """Return who brings plans to the cluster, where that could be read. Pure."""
    if form.denied:
        return CheckResult("bridge", "unknown", form.denied, _ADMINISTRATOR)
    return CheckResult("bridge", "ok", form.describe())


async def _bus_results(
    installation: Installation, looking: Callable[[Bus], CheckedBus]
) -> AsyncIterator[CheckResult]:
    """Look at all that is reached by NATS; where it cannot be, that is a result: the rest still counts."""
    try:
        async with installation.bus() as bus:
            for look in NATS_LOOKS:
                for result in await look.results(looking(bus)):
                    yield result
    except ApiError as error:
        yield CheckResult("NATS", "unknown", error.message, f"give --nats-url, or {_ADMINISTRATOR}")
    except (BusError, ApiUnavailable) as error:
        remedy = "see that NATS runs; from outside the cluster give --nats-url, and --nats-creds if it asks"
        yield CheckResult("NATS", "wrong", str(error), remedy)


async def _cluster_uid(api: Api) -> str:
    """The cluster's identity; empty where we may not read it."""
    try:
        return await api.cluster_uid()
    except ApiError:
        return ""
