"""What the control plane is made of: every binary, where it is built from, its key in the cache.

Pure but for reading the sources it hashes. The flags are the same for every binary of Kubernetes, so that the
Go build cache is shared between `dev/controlplane` and `plugin`: others compile Kubernetes a second time.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from makeway.dev.minors import Minor, chosen
from makeway.dev.options import KWOK as KWOK_COMPONENT
from makeway.dev.options import NATS, SCHEDULER, SHADOW, ClusterOptions
from makeway.dev.paths import (
    CHART_TOOLS_MODULE,
    CONTROL_PLANE_MODULE,
    PLUGIN_MODULE,
    PROMETHEUS_MODULE,
)

KUBERNETES = chosen()
"""The minor version of this process; another one is another environment."""

KUBERNETES_VERSION = KUBERNETES.version

GO_ENVIRONMENT = {
    "GOWORK": "off",
    "CGO_ENABLED": "0",
    "GOFLAGS": "-buildvcs=false -trimpath -gcflags=all=-dwarf=false",
}
"""Set for every build; see the module's text for why it must not vary."""

_STRIP = "-s -w"
_VERSION = "k8s.io/component-base/version"


def _ldflags(version: str) -> str:
    """A self-built Kubernetes binary says v0.0.0-master unless the linker is told better."""
    major, minor, _ = version.removeprefix("v").split(".")
    return (
        f"{_STRIP} -X {_VERSION}.gitVersion={version} -X {_VERSION}.gitMajor={major} "
        f"-X {_VERSION}.gitMinor={minor}"
    )


@dataclass(frozen=True)
class Binary:
    """One program and how it is built."""

    name: str
    """Its file name."""
    package: str
    """The Go package that is built, without a version."""
    usual_seconds: int
    """How long a cold build takes on two cores: the forecast where this machine has timed none."""
    ldflags: str = _STRIP
    module: Path | None = None
    """Directory of the go.mod that fixes its dependencies; None: it is installed by its own version."""
    version: str = ""
    """The version installed where there is no module directory."""
    hash_sources: bool = False
    """Whether the module's own Go files are part of the key."""
    tags: str = ""
    """Go build tags, separated by commas."""
    modfile: str = ""
    """The module's go.mod under another name."""
    architecture: str = ""
    """GOARCH, for Linux; empty for the machine's own."""


def _kubernetes(name: str, usual_seconds: int) -> Binary:
    """A program of Kubernetes itself."""
    return Binary(
        name,
        f"k8s.io/kubernetes/cmd/{name}",
        usual_seconds,
        _ldflags(KUBERNETES_VERSION),
        CONTROL_PLANE_MODULE,
        modfile=KUBERNETES.modfile,
    )


ETCD = Binary(
    "etcd", "go.etcd.io/etcd/server/v3", 10, module=CONTROL_PLANE_MODULE, modfile=KUBERNETES.modfile
)
KUBE_APISERVER = _kubernetes("kube-apiserver", 95)
KUBE_CONTROLLER_MANAGER = _kubernetes("kube-controller-manager", 60)
KUBECTL = _kubernetes("kubectl", 25)


def scheduler_of(minor: Minor, architecture: str = "") -> Binary:
    """Return makeway-scheduler as kube-scheduler of a minor. `architecture`: GOARCH; empty: the machine's."""
    return Binary(
        "makeway-scheduler",
        "./cmd/makeway-scheduler",
        230,
        _ldflags(minor.version),
        PLUGIN_MODULE,
        hash_sources=True,
        tags=minor.tag,
        modfile=minor.modfile,
        architecture=architecture,
    )


MAKEWAY_SCHEDULER = scheduler_of(KUBERNETES)
MAKEWAY_SCHEDULER_WITH_FAILPOINTS = replace(
    MAKEWAY_SCHEDULER, tags=",".join(filter(None, (KUBERNETES.tag, "failpoints"))), usual_seconds=30
)
"""For tests of crashes; only the plugin and main are compiled anew for the tag."""
MAKEWAY_SCHEDULER_WITH_TEST_PLUGINS = replace(
    MAKEWAY_SCHEDULER_WITH_FAILPOINTS, package="./internal/testscheduler"
)
"""For tests beside plugins of third parties; it has failpoints too."""
KUBE_SCHEDULER = _kubernetes("kube-scheduler", 240)
"""For clusters without the plugin."""
NATS_SERVER = Binary("nats-server", "github.com/nats-io/nats-server/v2", 25, version="v2.15.2")
KWOK = Binary("kwok", "sigs.k8s.io/kwok/cmd/kwok", 90, version="v0.8.0")

TOXIPROXY = Binary("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", 15, version="v2.5.0")
"""For tests that cut the lines between processes."""

ALL = (MAKEWAY_SCHEDULER, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBECTL, ETCD, NATS_SERVER, KWOK)
"""In the order they are built: the scheduler first, since it compiles much of what the others share."""

OF_TESTS = (
    *ALL,
    KUBE_SCHEDULER,
    MAKEWAY_SCHEDULER_WITH_FAILPOINTS,
    MAKEWAY_SCHEDULER_WITH_TEST_PLUGINS,
    TOXIPROXY,
)
"""What the control planes of the integration tests are made of."""

HELM = Binary("helm", "helm.sh/helm/v3/cmd/helm", 60, module=CHART_TOOLS_MODULE)
HELM_UNITTEST = Binary(
    "helm-unittest", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest", 60, module=CHART_TOOLS_MODULE
)
KUBECONFORM = Binary(
    "kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", 10, module=CHART_TOOLS_MODULE
)
# Without the discovery of every cloud there is: it is most of what would have to be compiled.
PROMTOOL = Binary(
    "promtool",
    "github.com/prometheus/prometheus/cmd/promtool",
    90,
    module=PROMETHEUS_MODULE,
    tags="remove_all_sd",
)
PROMETHEUS = replace(
    PROMTOOL, name="prometheus", package="github.com/prometheus/prometheus/cmd/prometheus", usual_seconds=60
)

CHART_TOOLS = (HELM_UNITTEST, HELM, KUBECONFORM, PROMTOOL)
"""What `make chart` runs; no cluster needs them."""

_ONLY_WITH = {MAKEWAY_SCHEDULER: SCHEDULER, NATS_SERVER: NATS, KWOK: KWOK_COMPONENT}
"""Binaries that only clusters with a certain component need."""


def needed(options: ClusterOptions) -> tuple[Binary, ...]:
    """Name the binaries of a cluster with these options, in the order they are built.

    Without the plugin, and without further plugins, the scheduler is kube-scheduler; a shadow is
    makeway-scheduler in any case.
    """
    left_out = {KWOK, KUBECTL} if options.small else set()
    left_out |= set() if options.controllers else {KUBE_CONTROLLER_MANAGER}
    there = {None, *options.components}
    usual = (one for one in ALL if _ONLY_WITH.get(one) in there and one not in left_out)
    scheduler = MAKEWAY_SCHEDULER_WITH_FAILPOINTS if options.failpoints else MAKEWAY_SCHEDULER
    shadows: tuple[Binary, ...] = ()
    if options.test_plugins:
        scheduler = MAKEWAY_SCHEDULER_WITH_TEST_PLUGINS
    elif not options.plugin:
        scheduler, shadows = KUBE_SCHEDULER, (scheduler,)
    extra = (*((TOXIPROXY,) if options.partitions else ()), *(shadows if SHADOW in there else ()))
    return (*(scheduler if one == MAKEWAY_SCHEDULER else one for one in usual), *extra)


def cache_key(binary: Binary) -> str:
    """Tell two builds apart: package, version, flags, go.mod, go.sum and, where asked, the module's Go files.

    The Go release is left out, so that a machine with a filled cache needs no Go at all.
    """
    digest = hashlib.sha256()
    more = tuple(part for part in (binary.tags, binary.architecture) if part)
    for part in (binary.package, binary.version, binary.ldflags, *more, *sorted(GO_ENVIRONMENT.items())):
        digest.update(repr(part).encode())
    if binary.module is not None:
        modfile = binary.module / (binary.modfile or "go.mod")
        for path in (modfile, modfile.with_suffix(".sum"), *_sources(binary)):
            digest.update(path.relative_to(binary.module).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _sources(binary: Binary) -> Iterable[Path]:
    """Every file of the module that can change the binary, in a fixed order."""
    if binary.module is None or not binary.hash_sources:
        return ()
    return sorted(path for path in binary.module.rglob("*.go") if not path.name.endswith("_test.go"))
