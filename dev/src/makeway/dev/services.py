"""Planner, evictor and the streams' keeper as a cluster runs them: the `makeway` command installed here."""

import sys
from pathlib import Path

from makeway.bus.streams.configs import stream_configs
from makeway.bus.subjects import Subjects
from makeway.dev import scheduler, signing_keys
from makeway.dev.options import EVICTOR, NATS, NOMINATOR, PLANNER, SCHEDULER, SHADOW, STREAMS
from makeway.dev.probes import has_streams, http_ok
from makeway.dev.processes import Program
from makeway.dev.site import Site

_MAKEWAY = Path(sys.executable).parent / "makeway"
TEST_FENCE = "tests"
"""The counter that fences orders which tests and benchmarks write."""

_PYTHON_SECONDS = 60.0
"""How long a service may take to be ready: on an overloaded machine imports alone take 20 s."""

_WITH_FAILPOINTS = (sys.executable, "-m", "makeway.dev.failpoints")


def planner(site: Site) -> Program:
    """`makeway planner`."""
    return _service(site, PLANNER, site.options.planner_arguments, PLANNER, site.ports[PLANNER])


def evictor(site: Site) -> Program:
    """`makeway evictor`."""
    return _service(site, EVICTOR, _evictor_arguments(site), EVICTOR, site.ports[EVICTOR])


def nominator(site: Site) -> Program:
    """`makeway nominator`."""
    return _service(site, NOMINATOR, _nominator_arguments(site), NOMINATOR, site.ports[NOMINATOR])


def streams(site: Site) -> Program:
    """`makeway streams --keep`, ready when all streams are there, which the scheduler's plugin follows."""
    count = len(stream_configs(Subjects(site.options.subject_prefix))) + 1  # and the epochs' bucket
    return Program(
        name=STREAMS,
        argv=(
            str(_MAKEWAY),
            STREAMS,
            "--keep",
            *_nats(site, STREAMS),
            f"--stream-replicas={site.options.nats_servers}",
            f"--subject-prefix={site.options.subject_prefix}",
            f"--consumers={site.options.consumers}",
        ),
        ready=has_streams(f"http://127.0.0.1:{site.ports[f'{NATS}-monitor']}", count),
        ready_seconds=_PYTHON_SECONDS,
        restart=True,
        environment={"PYTHONUNBUFFERED": "1"},
    )


def replica(site: Site, service: str, name: str, port: int) -> Program:
    """Another planner, evictor or scheduler beside the first, under a name and on a port of its own."""
    if service == SCHEDULER:
        return scheduler.program(site, name, port)
    extra = {
        PLANNER: site.options.planner_arguments,
        EVICTOR: _evictor_arguments(site),
        NOMINATOR: _nominator_arguments(site),
    }
    return _service(site, service, extra[service], name, port)


def _evictor_arguments(site: Site) -> tuple[str, ...]:
    """Return the fences of scheduler, planner with and without a Lease, and tests; then the options."""
    return (
        f"--scheduler-fence=lease/{scheduler.LEASE_NAMESPACE}/{scheduler.LEASE_NAME}",
        f"--scheduler-fence=kv/{TEST_FENCE}",
        *(f"--scheduler-fence=kv/{profile}" for profile in site.options.profiles),
        "--planner-fence=lease/makeway-system/makeway-planner",
        "--planner-fence=kv/makeway-planner",
        *site.options.evictor_arguments,
    )


def _nominator_arguments(site: Site) -> tuple[str, ...]:
    return ("--verify=shadow",) if SHADOW in site.options.components else ()


def _nats(site: Site, process: str) -> tuple[str, ...]:
    identity = site.nats_identity_of(process)
    return (f"--nats-url={site.nats_urls_of(process)}", *(identity.options() if identity else ()))


def _signatures(site: Site, service: str) -> tuple[str, ...]:
    if site.options.signatures == "off":
        return ()
    verify = f"--signatures={site.options.signatures}"
    if service not in signing_keys.KINDS:
        return (verify,)
    return (verify, f"--signing-keys={signing_keys.directory(site.directory, service)}")


def _service(site: Site, service: str, extra: tuple[str, ...], name: str, port: int) -> Program:
    """A service of this project; started again when it ends, as a kubelet would."""
    address = f"127.0.0.1:{port}"
    return Program(
        name=name,
        argv=(
            *(_WITH_FAILPOINTS if site.options.failpoints else (str(_MAKEWAY),)),
            service,
            *_nats(site, name),
            f"--subject-prefix={site.options.subject_prefix}",
            f"--kubeconfig={site.kubeconfig(name if site.lines else service)}",
            f"--listen={address}",
            "--log-format=json",
            *_signatures(site, service),
            *extra,
        ),
        ready=http_ok(f"http://{address}/readyz"),
        ready_seconds=_PYTHON_SECONDS,
        restart=True,
        environment={"PYTHONUNBUFFERED": "1", **site.failpoint_environment},
    )
