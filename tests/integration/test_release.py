"""A release as a user gets it: the wheel by pip, the chart by helm, then the ten-minute page's commands."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml

from integration.builders import make_node, make_pod
from integration.charting import NAMESPACE, Release
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.installing import Installed
from integration.priority_classes import opted_in
from integration.space import Space
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.dev.binaries import HELM
from makeway.dev.build import ensure
from makeway.dev.options import KWOK, NATS, SCHEDULER, ClusterOptions
from makeway.dev.progress import ConsoleProgress
from makeway.dev.release import make as making

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Shell:
    """What a user types after `pip install makeway`, logged in to NATS as the chart's viewer."""

    def __init__(self, makeway: Path, cluster: RunningCluster, release: Release) -> None:
        self._makeway = makeway
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "COLUMNS": "80",
            "KUBECONFIG": str(cluster.info.kubeconfig),
            "MAKEWAY_NAMESPACE": NAMESPACE,
            **release.nats_environment("viewer"),
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._makeway, *arguments, env=self._environment, stdout=-1, stderr=-2
        )

    async def run(self, *arguments: str) -> str:
        """Return what a command prints; it has to end well."""
        process = await self.start(*arguments)
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, said
        return said


async def _run(*command: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-2)
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    return said


def _uv() -> str:
    found = shutil.which("uv") or str(Path(sys.prefix).parent / ".tools" / "bin" / "uv")
    assert Path(found).exists(), "uv is not installed; make setup installs it"
    return found


def _installed(root: Path, wheel: str) -> Path:
    """Install a wheel into an environment of its own; return its command."""
    venv.create(root, with_pip=True)
    pip = [str(root / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", wheel]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root / "bin" / "makeway"


@dataclass(frozen=True)
class Handed:
    """What a user has of a release: the packaged chart, and the command as `pip install` makes it.

    `of_image`: the command with what the image has besides.
    """

    chart: Path
    of_user: Path
    of_image: Path


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Handed:
    """Make the files of a release, but for the schedulers, and install its wheel."""
    directory = tmp_path_factory.mktemp("release")
    files = directory / "files"
    making.make(making.Release(files, _uv(), (), ()), ConsoleProgress())
    (wheel,), (chart,) = files.glob("*.whl"), files.glob("makeway-chart-*.tgz")
    return Handed(
        chart,
        _installed(directory / "user", str(wheel)),
        _installed(directory / "image", f"{wheel}[services,ui]"),
    )


@pytest_asyncio.fixture
async def cluster(private_cluster: PrivateCluster) -> AsyncIterator[RunningCluster]:
    """Give a control plane with a kube-scheduler that knows nothing of makeway."""
    yield await private_cluster(ClusterOptions(components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False))


async def helm_install(cluster: RunningCluster, chart: Path, *settings: str) -> list[dict[str, object]]:
    """Install a packaged chart by helm, and return what it made.

    Its roles take the place of those of the same names that the control plane came with. Its workloads are
    deleted again: no kubelet here could run them.
    """
    helm = ensure([HELM], ConsoleProgress())[HELM.name]
    to = (f"--namespace={NAMESPACE}", f"--kubeconfig={cluster.info.kubeconfig}")
    await _run(
        helm,
        "install",
        "makeway",
        chart,
        "--create-namespace",
        "--take-ownership",
        *to,
        *(f"--set={s}" for s in settings),
    )
    made = await _run(helm, "get", "manifest", "makeway", *to)
    await cluster.kubectl("delete", "deployments,statefulsets,jobs", "--all", "-n", NAMESPACE)
    return [document for document in yaml.safe_load_all(made) if document]


async def test_a_release_leads_from_pip_and_helm_to_why_the_page_and_off(
    handed: Handed, cluster: RunningCluster, tmp_path: Path
) -> None:
    manifests = await helm_install(cluster, handed.chart, "bridge=external")
    release = Release(cluster, manifests, tmp_path / "processes", handed.of_image)
    installed = Installed(cluster, release)
    shell = Shell(handed.of_user, cluster, release)
    try:
        await cluster.kubectl("apply", "-f", "-", stdin=json.dumps(opted_in("express")))
        installed.streams, installed.nats = release.start_streams(), release.start_nats()
        await installed.start_services(nominators=True)
        async with installed.space() as space:
            await space.add_nodes(make_node("n1").cpu(1))
            await space.run(make_pod("low").priority("low").cpu(1))

            assert "mode observe" in await shell.run("check", "--wait")
            await shell.run("mode", "enforce", "--yes")
            await space.create(make_pod("high").spec(priorityClassName="express").cpu(1))
            await space.until_bound("high")
            assert f"{space.namespace}/high" in await told(shell, space, "low")
            await page(Shell(handed.of_image, cluster, release))

            await shell.run("mode", "off")
            assert "off" in await shell.run("mode")
    finally:
        release.stop()


async def told(shell: Shell, space: Space, pod: str) -> str:
    """Return what `why` says of a pod, once it says something."""

    async def ask() -> str:
        process = await shell.start("why", f"{space.namespace}/{pod}")
        said = (await process.communicate())[0].decode()
        if process.returncode != 0:
            raise NotYet(said)
        return said

    return await until(f"why tells of {pod}", ask)


async def page(shell: Shell) -> None:
    """Check that `makeway ui` serves its page at the address that it prints."""
    process = await shell.start("ui")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENT_SECONDS):
            said = ""
            while not (address := re.search(r"http://\S+", said)):
                line = await process.stdout.readline()
                assert line, said
                said += line.decode()
        # It answers with a cookie, which a jar refuses for addresses by default.
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session, session.get(address[0]) as got:
            assert got.status == 200
            assert "<title>" in await got.text()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
