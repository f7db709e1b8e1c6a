"""Where things lie: the source checkout, the cache of binaries, the directories of named clusters."""

import os
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[4]
"""The root of the source checkout this package is imported from."""

CONTROL_PLANE_MODULE = CHECKOUT / "dev" / "controlplane"
"""The Go module whose `tool` lines name etcd and the Kubernetes binaries."""

PLUGIN_MODULE = CHECKOUT / "plugin"
"""The Go module of makeway-scheduler."""

CHART_TOOLS_MODULE = CHECKOUT / "dev" / "charttools"
"""The Go module whose `tool` lines name helm and what judges the chart it renders."""

PROMETHEUS_MODULE = CHECKOUT / "dev" / "prometheus"
"""The Go module whose `tool` lines name Prometheus and promtool."""

CHART = CHECKOUT / "charts" / "makeway"
"""The Helm chart."""

RBAC_MANIFESTS = CHART / "rbac"
"""Service accounts and roles of planner, evictor and scheduler."""

ADMISSION_MANIFESTS = CHART / "admission"
"""Admission policies that bound what evictor and scheduler do to pods."""


def cache_directory() -> Path:
    """Where built binaries are kept: `$MAKEWAY_CACHE`, else `~/.cache/makeway`."""
    return Path(os.environ.get("MAKEWAY_CACHE") or Path.home() / ".cache" / "makeway")


def state_directory() -> Path:
    """Where named clusters live: `$MAKEWAY_STATE`, else `~/.local/state/makeway/clusters`."""
    return Path(os.environ.get("MAKEWAY_STATE") or Path.home() / ".local" / "state" / "makeway" / "clusters")


def port_directory() -> Path:
    """Where the locks on ports lie: one place for the machine and user, whatever the cache and state are."""
    return Path(tempfile.gettempdir()) / f"makeway-ports-{os.getuid()}"
