"""A control plane owned by this process: started in order, controlled part by part, ended for certain."""

import atexit
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from makeway.dev import (
    access,
    binaries,
    control_plane,
    fault_proxy,
    kubelets,
    kwok,
    nats,
    partitions,
    scheduler,
    services,
)
from makeway.dev.api import AdminApi
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.info import ClusterInfo
from makeway.dev.nats_identities import NatsIdentity
from makeway.dev.options import EVICTOR, KWOK, NATS, NOMINATOR, PLANNER, SCHEDULER, SHADOW, ClusterOptions
from makeway.dev.ports import Ports
from makeway.dev.process_set import ProcessSet
from makeway.dev.processes import Process, Program
from makeway.dev.progress import Progress, SilentProgress
from makeway.dev.site import Site, prepare


class DevCluster:
    """One control plane in a directory of its own, in which no other has been.

    Every method blocks; `start` for some ten seconds, and minutes where binaries must be built; the others
    for as long as the process takes to end or to be ready. They may be called from any thread, one at a
    time.

        with Cluster(directory).start() as cluster:
            cluster.kubectl("get", "nodes")
            cluster.kill("planner")
    """

    def __init__(
        self,
        directory: Path,
        options: ClusterOptions | None = None,
        *,
        name: str = "",
        progress: Progress | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.options = options or ClusterOptions()
        self.name = name or directory.name
        self._progress = progress or SilentProgress()
        self._ports = Ports()
        self._processes: ProcessSet | None = None
        self._site: Site | None = None
        self._info: ClusterInfo | None = None
        self._api: AdminApi | None = None

    def start(self) -> "DevCluster":
        """Build what is missing, start everything and wait until all is ready.

        Raises:
            DevError: a build failed, or a component ended or did not become ready. Nothing is left running.
        """
        built = ensure(binaries.needed(self.options), self._progress)
        atexit.register(self.stop)
        try:
            self._start(built)
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, built: Mapping[str, Path]) -> None:
        site = self._site = prepare(self.directory, self.options, built, self._ports)
        api = self._api = AdminApi(site.server, site.authority, site.admin)
        self._processes = ProcessSet(site.directory)
        self._info = _info(self.name, site)
        wanted = self.options.components

        bus = nats.programs(site) if NATS in wanted else []
        if bus and wanted & {PLANNER, EVICTOR}:
            bus.append(services.streams(site))
        # Side by side: the API server asks etcd again until that answers.
        what = "etcd, kube-apiserver and nats-server" if bus else "etcd and kube-apiserver"
        self._run(what, control_plane.etcd(site), control_plane.kube_apiserver(site, api), *bus)
        early = [control_plane.kube_controller_manager(site)] if self.options.controllers else []
        if KWOK in wanted:
            early.append(kubelets.program(site) if self.options.small else kwok.program(site))
        coming = [self._processes.start(program) for program in early]
        with self._progress.step("applying service accounts and roles"):
            access.grant(site, api)
            access.announce(site, api)
            access.restrain(site, api)
        if self.options.admission_policies:
            with self._progress.step("applying admission policies"):
                access.bound(site, api)
        if self.options.faulty:
            self._run("fault proxy", fault_proxy.program(site))
        if self.options.partitions:
            self._run("toxiproxy", partitions.program(site))
        programs = {
            PLANNER: services.planner,
            EVICTOR: services.evictor,
            NOMINATOR: services.nominator,
            SHADOW: scheduler.shadow,
            SCHEDULER: scheduler.program,
        }
        chosen = [program(site) for name, program in programs.items() if name in wanted]
        names = ", ".join(program.name for program in (*early, *chosen))
        self._run(names, *chosen, coming=coming)
        self._info.write()

    def stop(self) -> None:
        """End every process, the last started first. Does nothing the second time."""
        atexit.unregister(self.stop)
        if self._processes is not None:
            self._processes.stop()
            self._processes = None
        self._ports.release()

    def __enter__(self) -> "DevCluster":
        """Hold the cluster, which must have been started."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    @property
    def info(self) -> ClusterInfo:
        """Addresses and paths.

        Raises:
            DevError: the cluster was not started.
        """
        if self._info is None:
            raise DevError(f"cluster {self.name} was not started")
        return self._info

    @property
    def api(self) -> AdminApi:
        """The administrator's synchronous client.

        Raises:
            DevError: the cluster was not started.
        """
        if self._api is None:
            raise DevError(f"cluster {self.name} was not started")
        return self._api

    def process(self, component: str) -> Process:
        """Return a component's process, to stop, kill, pause, resume or start it, or to read its log.

        Its ports and files stay the same. `component`: one of `options.COMPONENTS`, or etcd, kube-apiserver,
        kube-controller-manager.

        Raises:
            DevError: the cluster does not run, or runs without it.
        """
        if self._processes is None:
            raise DevError(f"cluster {self.name} does not run")
        try:
            return self._processes[component]
        except KeyError:
            running = ", ".join(process.program.name for process in self._processes)
            raise DevError(f"cluster {self.name} runs no {component}; it runs {running}") from None

    def start_replica(self, service: str) -> Process:
        """Start another planner, evictor or scheduler beside those that run, and wait until it is ready.

        Its name, for `process`, is `planner-2`, `planner-3`, ...

        Raises:
            DevError: the cluster does not run, or the replica did not become ready.
        """
        if self._processes is None or self._site is None:
            raise DevError(f"cluster {self.name} does not run")
        taken = {process.program.name for process in self._processes}
        name = next(name for number in itertools.count(2) if (name := f"{service}-{number}") not in taken)
        program = services.replica(self._site, service, name, self._ports.take())
        process = self._processes.start(program)
        process.wait_ready()
        return process

    def nats_identity(self, login: str) -> NatsIdentity | None:
        """By what NATS knows a login, in a cluster that has `known_nats_clients`."""
        return self._site.nats_identity_of(login) if self._site else None

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator and give its output.

        Raises:
            DevError: it failed; the text has what it said.
        """
        return self.info.kubectl(*arguments, stdin=stdin)

    def _run(self, what: str, *programs: Program, coming: Sequence[Process] = ()) -> None:
        """Start some programs together and wait until each is ready, and those that are coming up already."""
        if self._processes is None:
            raise DevError(f"cluster {self.name} does not run")
        with self._progress.step(f"starting {what}"):
            for process in (*coming, *[self._processes.start(program) for program in programs]):
                process.wait_ready()


def _info(name: str, site: Site) -> ClusterInfo:
    def url(component: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{site.ports[component]}"

    return ClusterInfo(
        name=name,
        directory=site.directory,
        server=site.server,
        kubeconfig=site.kubeconfig("admin"),
        kubeconfigs={account: site.kubeconfig(account) for account in access.ACCOUNTS},
        nats_url=site.nats_url,
        nats_monitor_url=url("nats-monitor"),
        planner_url=url("planner"),
        evictor_url=url("evictor"),
        fault_proxy_url=url("fault-proxy"),
        toxiproxy_url=url("toxiproxy") if site.options.partitions else "",
        scheduler_url=url("scheduler", "https"),
        audit_log=site.audit_log,
        logs=site.directory / "logs",
        binaries=site.directory / "bin",
        owner=os.getpid(),
    )
