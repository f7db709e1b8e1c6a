"""Fixtures of the tests on a real control plane.

* `cluster`: one for the whole run, with everything in it; in tests marked `both_forms` first with the plugin,
  then with the nominator beside kube-scheduler. A test that stops a part of it starts it again.
* `race_cluster`: one whose parts can be held up; in tests marked `both_forms` also the nominator's.
* `space`: a namespace and nodes of the test's own in that cluster, removed afterwards.
* `plain_cluster`, `plain_space`: the same with kube-scheduler alone.
* `install`: installs the chart on a control plane that its tests share, and removes it after the test.
* `private_cluster`: makes further clusters, with other options, for one test.
* `bus`: writes orders, signed as those of `cluster`'s scheduler.

Binaries are built before the first test, so that no test's time-out covers it. A cluster's directory, with
logs and audit log, is kept where a test failed, and its path is shown."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from integration.arming import Failpoints
from integration.builders import make_node
from integration.charting import NAMESPACE, Manifest, Release, render
from integration.cluster import RunningCluster
from integration.clusters import KINDS, Kind
from integration.collecting import Collector, collecting
from integration.configuring import NO_LIMITS, put_queues
from integration.faults import Faults, faults_of
from integration.installing import READER, Installed
from integration.invariants import assert_invariants
from integration.lifetimes import BY_FORM, EXTERNAL_FORM, Lifetimes, group, name_groups, order
from integration.priority_classes import Classes
from integration.signing import signatures_of
from integration.space import Space, open_space
from makeway.bus.client import Bus
from makeway.dev import binaries
from makeway.dev.binaries import KUBERNETES
from makeway.dev.build import ensure
from makeway.dev.cluster import DevCluster
from makeway.dev.options import EVICTOR, LIFTED_RATES, SCHEDULER, ClusterOptions
from makeway.dev.progress import ConsoleProgress
from referee.streams import keep

PLUGIN_FORM = "plugin"
SYNC_FORM = "sync-api-calls"
ASYNC_FORM = "async-api-calls"

_HERE = Path(__file__).parent
_FAILED = pytest.StashKey[bool]()
_DIRECTORIES = pytest.StashKey[list[Path]]()
_LIFETIMES = pytest.StashKey[Lifetimes]()

PrivateCluster = Callable[[ClusterOptions], Awaitable[RunningCluster]]
Install = Callable[[list[Manifest]], Installed]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark every test here, so that `-m 'not integration'` leaves it out; sort them by cluster."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.xdist_group(group(item)))
    yield
    order(items)
    if getattr(config.option, "loadgroup", False):
        name_groups(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the binaries where a test here will run."""
    session.config.stash[_DIRECTORIES] = []
    session.config.stash[_LIFETIMES] = Lifetimes(session.items)
    if session.config.option.collectonly or not any(
        item.path.is_relative_to(_HERE) for item in session.items
    ):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ensure(binaries.ALL, ConsoleProgress())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop the clusters that are not needed any more. Not in the teardown before: a test may be run again."""
    item.config.stash[_LIFETIMES].before(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Say where the logs are when a test fails."""
    report: Any = yield
    directories = item.config.stash.get(_DIRECTORIES, [])
    if report.failed and item.path.is_relative_to(_HERE) and directories:
        item.config.stash[_FAILED] = True
        report.sections.append(("control planes", "\n".join(f"logs: {path}/logs" for path in directories)))
    return report


def _start(directory: Path, options: ClusterOptions, config: pytest.Config) -> RunningCluster:
    """Start a cluster. Its evictor's rates are lifted: tests that share it evict many pods."""
    if EVICTOR in options.components and not options.limits:
        options = replace(options, limits=LIFTED_RATES)
    config.stash[_DIRECTORIES].append(directory)
    return RunningCluster(DevCluster(directory, options).start())


def _stop(cluster: RunningCluster, config: pytest.Config) -> None:
    keep(cluster)
    cluster.owned.stop()
    directory = cluster.owned.directory
    for data in ("etcd", "nats"):
        shutil.rmtree(directory / data, ignore_errors=True)
    if not config.stash.get(_FAILED, False):
        shutil.rmtree(directory)
        config.stash[_DIRECTORIES].remove(directory)


def _share(
    request: pytest.FixtureRequest, options: ClusterOptions, *, replicas: Sequence[str] = ()
) -> RunningCluster:
    """Start the cluster of a fixture in `SHARED`; it is stopped after the last test that needs it."""
    name, config = request.fixturename, request.config
    assert name is not None
    directories: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    running = _start(directories.mktemp(name.removesuffix("_cluster")) / "cluster", options, config)
    lifetimes = config.stash[_LIFETIMES]
    lifetimes.add(name, lambda: _stop(running, config))
    request.addfinalizer(lambda: lifetimes.stop(name))
    for service in replicas:
        running.start_replica(service)
    return running


def _shared(name: str, kind: Kind) -> Any:
    """Return the fixture of a kind of cluster."""

    @pytest.fixture(scope="session", name=name)
    def running(request: pytest.FixtureRequest) -> RunningCluster:
        minor, why = kind.only
        if minor not in ("", KUBERNETES.name):
            pytest.skip(why)
        if not kind.traced:
            return _share(request, kind.options(), replicas=kind.replicas)
        collector: Collector = request.getfixturevalue("collector")
        sent = (f"--otlp-endpoint={collector.endpoint}",)
        options = replace(kind.options(), planner_arguments=sent, evictor_arguments=sent)
        if options.plugin:
            options = replace(options, plugin_arguments=(("tracing", {"endpoint": collector.endpoint}),))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAKEWAY_OTLP_ENDPOINT", collector.endpoint)
            patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
            return _share(request, options, replicas=kind.replicas)

    return running


globals().update({name: _shared(name, kind) for name, kind in KINDS.items()})


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Give the collector of the traces of `traced_cluster`."""
    with collecting() as running:
        yield running


@pytest.fixture
def form() -> str:
    """Say which form of makeway a test runs on; tests marked `both_forms` run on each."""
    return PLUGIN_FORM


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that are marked so with the plugin, and with the nominator beside kube-scheduler.

    The external form of those that go over all parts is `wide`; of what planner and evictor do in each form
    alike it runs by `make integration-forms`.
    """
    mark = metafunc.definition.get_closest_marker("both_forms")
    late = pytest.mark.form if mark and mark.kwargs.get("by_target") else pytest.mark.wide
    external = [pytest.param(EXTERNAL_FORM, marks=late)] if mark else []
    if "race_form" in metafunc.fixturenames:
        forms = [SYNC_FORM, pytest.param(ASYNC_FORM, marks=pytest.mark.slow), *external]
        metafunc.parametrize("race_form", forms, scope="session")
    elif mark and "form" in metafunc.fixturenames:
        metafunc.parametrize("form", [PLUGIN_FORM, *external])


def _by_form(name: str) -> Any:
    """Return the fixture of a control plane that has the plugin, or the nominator in the external form."""

    @pytest.fixture(name=name)
    def of_form(request: pytest.FixtureRequest, form: str) -> Any:
        return request.getfixturevalue(BY_FORM[name][form == EXTERNAL_FORM])

    return of_form


globals().update({name: _by_form(name) for name in BY_FORM.keys() - {"race_cluster"}})


@pytest_asyncio.fixture
async def space(cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of the shared cluster to one test; what makeway did in it is judged at the end."""
    async with open_space(cluster) as opened:
        yield opened
        if opened.judged:
            await assert_invariants(opened, wait=False)


@pytest_asyncio.fixture
async def bus(cluster: RunningCluster) -> AsyncIterator[Bus]:
    """Give a connection that orders are written through, signed as the scheduler's."""
    connected = await Bus.connect(
        cluster.info.nats_url, name="scheduler/test", signatures=signatures_of(cluster)
    )
    yield connected
    await connected.close()


@pytest.fixture
def failpoints(space: Space) -> Iterator[Failpoints]:
    """Give the failpoints of the space's cluster; none of them is armed before and after the test."""
    points = Failpoints(space.cluster)
    yield points
    points.disarm()


@pytest_asyncio.fixture
async def classes(space: Space) -> AsyncIterator[Classes]:
    """Give the means to make PriorityClasses, and remove them after the test."""
    made = Classes(space)
    yield made
    await made.remove()


@pytest_asyncio.fixture
async def space_without_evictor(cluster: RunningCluster, space: Space) -> AsyncIterator[Space]:
    """A space with node n1 of 500m, and no evictor until the test starts one."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    async with cluster.without("evictor"):
        yield space


@pytest_asyncio.fixture
async def plain_space(plain_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of the plain cluster to one test."""
    async with open_space(plain_cluster) as opened:
        yield opened


@pytest_asyncio.fixture
async def private_cluster(tmp_path: Path, pytestconfig: pytest.Config) -> AsyncIterator[PrivateCluster]:
    """Give a function that starts a cluster of the test's own; it is stopped with the test."""
    started: list[RunningCluster] = []
    numbers = itertools.count(1)

    async def start(options: ClusterOptions) -> RunningCluster:
        directory = tmp_path / f"cluster-{next(numbers)}"
        started.append(await asyncio.to_thread(_start, directory, options, pytestconfig))
        return started[-1]

    yield start
    for running in reversed(started):
        await asyncio.to_thread(_stop, running, pytestconfig)


@pytest_asyncio.fixture
async def crash_space(crash_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of `crash_cluster` to one test."""
    async with open_space(crash_cluster) as opened:
        yield opened


@pytest_asyncio.fixture
async def limited_space(crash_space: Space) -> AsyncIterator[Space]:
    """Give a corner of `crash_cluster` to a test that limits queues; no limits are left behind."""
    yield crash_space
    await put_queues(crash_space.cluster, NO_LIMITS)
    if crash_space.judged:
        await assert_invariants(crash_space, wait=False)


@pytest.fixture(scope="session")
def race_form() -> str:
    """Say on which control plane a race is run; `pytest_generate_tests` names them."""
    return SYNC_FORM


@pytest.fixture(scope="session")
def race_cluster(request: pytest.FixtureRequest, race_form: str) -> RunningCluster:
    """Give a control plane whose scheduler has test plugins and failpoints, and no preemption but makeway's.

    Once with the scheduler's API calls in its cycles, as kube-scheduler 1.36 does by default, and once with
    SchedulerAsyncAPICalls, where a nomination may reach the API at any later time. In the external form it is
    the one that those tests share.
    """
    if race_form == EXTERNAL_FORM:
        external: RunningCluster = request.getfixturevalue("external_cluster")
        return external
    options = ClusterOptions(
        fallback=False,
        failpoints=True,
        test_plugins=True,
        scheduler_feature_gates=(("SchedulerAsyncAPICalls", race_form == ASYNC_FORM),),
    )
    return _share(request, options)


@pytest_asyncio.fixture
async def race_space(race_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of that cluster to one test."""
    async with open_space(race_cluster) as opened:
        yield opened
        await assert_invariants(opened, wait=False)


@pytest_asyncio.fixture
async def queue_space(queue_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of that cluster to one test."""
    async with open_space(queue_cluster) as opened:
        yield opened


@pytest_asyncio.fixture
async def fault_space(fault_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of that cluster to one test."""
    async with open_space(fault_cluster) as opened:
        yield opened


@pytest_asyncio.fixture
async def faults(fault_cluster: RunningCluster) -> AsyncIterator[Faults]:
    """Give that cluster's proxy, without rules."""
    async with faults_of(fault_cluster) as connected:
        yield connected


@pytest.fixture(scope="session")
def installed(
    chart_control_plane: RunningCluster, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Installed]:
    """Install the chart with the plugin in mode enforce, and one who may read the scheduler's metrics."""
    manifests = render(
        "bridge=plugin",
        "policy.document.mode=enforce",
        f"metrics.readers[0].namespace={NAMESPACE}",
        f"metrics.readers[0].name={READER}",
    )
    release = Release(chart_control_plane, manifests, tmp_path_factory.mktemp("release"))
    lifetimes = pytestconfig.stash[_LIFETIMES]
    lifetimes.add("installed", release.remove)
    try:
        new = Installed(chart_control_plane, release)
        asyncio.run(new.come_up())
        yield new
    finally:
        lifetimes.stop("installed")


@pytest_asyncio.fixture
async def without_scheduler(chart_control_plane: RunningCluster) -> AsyncIterator[None]:
    """Leave the place of the cluster's own scheduler to a chart that is installed in the test."""
    async with chart_control_plane.without(SCHEDULER):
        yield


@pytest_asyncio.fixture
async def install(chart_control_plane: RunningCluster, tmp_path: Path) -> AsyncIterator[Install]:
    """Give a function that makes the test's own installation of what the chart renders; nothing runs yet."""
    releases: list[Release] = []

    def begin(manifests: list[Manifest]) -> Installed:
        releases.append(Release(chart_control_plane, manifests, tmp_path / "release"))
        return Installed(chart_control_plane, releases[-1])

    yield begin
    for release in releases:
        await asyncio.to_thread(release.remove)
