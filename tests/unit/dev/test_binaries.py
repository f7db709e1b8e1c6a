import re
from dataclasses import replace
from pathlib import Path

import pytest

from integration.clusters import KINDS
from makeway.dev.binaries import ALL, MAKEWAY_SCHEDULER, OF_TESTS, cache_key, needed
from makeway.dev.minors import MINORS, Minor
from makeway.dev.paths import CHECKOUT, CONTROL_PLANE_MODULE, PLUGIN_MODULE

pytestmark = pytest.mark.tools

UPSTREAM_MODULE = CHECKOUT / "tests" / "upstream"


def versions(module: Path, modfile: str = "") -> dict[str, str]:
    """Every required module and every replacement of a go.mod, by name."""
    text = (module / (modfile or "go.mod")).read_text()
    required = re.findall(r"^\s+(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE)
    single = re.findall(r"^require (\S+) (v\S+)", text, re.MULTILINE)
    replaced = re.findall(r"^\s+(\S+) => (\S+ v\S+)$", text, re.MULTILINE)
    return {**dict(required), **dict(single), **{f"replace {name}": to for name, to in replaced}}


@pytest.mark.parametrize("module", [CONTROL_PLANE_MODULE, UPSTREAM_MODULE])
def test_every_go_module_agrees_with_the_plugins_on_what_they_share(module: Path) -> None:
    # A difference compiles Kubernetes a second time.
    plugin, other = versions(PLUGIN_MODULE), versions(module)
    shared = plugin.keys() & other.keys()

    assert len(shared) > 100
    assert {name: (plugin[name], other[name]) for name in shared if plugin[name] != other[name]} == {}


@pytest.mark.parametrize("minor", MINORS, ids=lambda minor: minor.name)
def test_plugin_and_control_plane_of_a_minor_agree_on_what_they_share(minor: Minor) -> None:
    plugin, other = versions(PLUGIN_MODULE, minor.modfile), versions(CONTROL_PLANE_MODULE, minor.modfile)
    shared = plugin.keys() & other.keys()

    assert len(shared) > 100
    assert {name: (plugin[name], other[name]) for name in shared if plugin[name] != other[name]} == {}


@pytest.mark.parametrize("minor", MINORS, ids=lambda minor: minor.name)
def test_the_version_the_binaries_report_is_the_one_they_are_built_from(minor: Minor) -> None:
    assert versions(CONTROL_PLANE_MODULE, minor.modfile)["k8s.io/kubernetes"] == minor.version


def test_a_key_changes_with_flags_and_version() -> None:
    keys = {cache_key(binary) for binary in ALL}
    other_flags = replace(MAKEWAY_SCHEDULER, ldflags="")

    assert len(keys) == len(ALL)
    assert cache_key(other_flags) != cache_key(MAKEWAY_SCHEDULER)


def test_the_schedulers_key_follows_its_sources_but_not_their_tests(tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text(name)
    binary = replace(MAKEWAY_SCHEDULER, module=tmp_path, modfile="")
    before = cache_key(binary)

    (tmp_path / "main_test.go").write_text("a test")
    assert cache_key(binary) == before

    (tmp_path / "main.go").write_text("changed")
    assert cache_key(binary) != before


@pytest.mark.parametrize("name", KINDS)
def test_what_the_shared_control_planes_need_is_built_before_the_integration_tests(name: str) -> None:
    assert set(needed(KINDS[name].options())) <= set(OF_TESTS)
