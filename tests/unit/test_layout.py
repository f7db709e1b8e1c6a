"""The shape of the source tree that packaging and the layers depend on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_makeway_is_a_namespace_package_everywhere() -> None:
    assert sorted(ROOT.glob("*/src/makeway/__init__.py")) == []


def test_every_source_root_is_known_to_the_build_to_mypy_and_to_ruff() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    roots = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/src"))

    assert sorted(config["tool"]["hatch"]["build"]["dev-mode-dirs"]) == roots
    assert sorted(set(config["tool"]["mypy"]["files"]) - {"tests", "dev/reference.py"}) == roots
    assert sorted(set(config["tool"]["ruff"]["src"]) - {"tests"}) == roots


def test_every_package_is_marked_as_typed() -> None:
    packages = [path.parent for path in ROOT.glob("*/src/makeway/*/__init__.py")]

    assert packages
    assert [p for p in packages if not (p / "py.typed").exists()] == []


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE)
    helped = re.findall(r"^([a-z-]+):.*## .+$", makefile, re.MULTILINE)

    assert sorted(targets) == sorted(helped)


def test_the_plugin_says_the_version_of_the_distribution() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = re.search(r'^const Version = "(.*)"$', (ROOT / "plugin/wire/version.go").read_text(), re.MULTILINE)

    assert said is not None
    assert said[1] == wanted
