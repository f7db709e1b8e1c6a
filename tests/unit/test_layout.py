"""The shape of the source tree that packaging and the layers depend on."""

from __future__ import annotations

import ast
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
    helped = re.findall(r"^([a-z-]+):.* #[#:] .+$", makefile, re.MULTILINE)

    assert sorted(targets) == sorted(helped)
    assert len(re.findall(r"^[a-z-]+:.* ## ", makefile, re.MULTILINE)) <= 25


def test_no_go_test_reads_a_file_outside_of_its_module() -> None:
    module = (
        ROOT / "plugin"
    )  # `go test` keeps a result until a file changes that was read below this directory
    up = [
        (path.relative_to(module), climb)
        for path in module.rglob("*_test.go")
        for climb in re.findall(r'"((?:\.\./)+)', path.read_text())
    ]

    assert (module / "testdata/rules").samefile(ROOT / "bus/testdata/rules")
    assert up
    assert [str(path) for path, climb in up if climb.count("/") >= len(path.parts)] == []


def test_the_plugin_says_the_version_of_the_distribution() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = re.search(r'^const Version = "(.*)"$', (ROOT / "plugin/wire/version.go").read_text(), re.MULTILINE)

    assert said is not None
    assert said[1] == wanted


def test_nothing_that_is_called_pure_remembers_what_it_was_called_with() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = (one["source_modules"] for one in contract if one["name"].startswith("Decisions are pure"))
    modules = [
        ROOT.glob(f"*/src/{name.replace('.', '/')}{end}") for name in pure for end in (".py", "/**/*.py")
    ]

    texts = {path: path.read_text() for found in modules for path in found}

    assert len(texts) > 80
    assert [
        path for path, text in texts.items() if re.search(r"\b(lru_cache|functools\.cache)\b", text)
    ] == []
    assert [
        path for path, text in texts.items() if re.search(r"^_?[a-z]\w*.* = \{\}$", text, re.MULTILINE)
    ] == []


def test_no_import_is_for_types_alone() -> None:
    sources = [path for path in ROOT.glob("*/src/**/*.py") if "dev/src" not in str(path)]

    assert [path for path in sources if "TYPE_CHECKING" in path.read_text()] == []


def test_what_only_development_needs_is_not_in_the_wheel() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = {ROOT / package for package in config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    modules = [path for package in shipped for path in package.rglob("*.py")]

    assert ROOT / "dev" / "src" / "makeway" not in shipped
    assert [path.name for path in modules if path.stem in ("samples", "contract_reference")] == []
    assert not [path for path in modules if re.search(r"SIGKILL|SIGSTOP", path.read_text())]


def test_no_public_class_has_the_name_of_another() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    places: dict[str, list[str]] = {}
    for path in (module for package in packages["packages"] for module in (ROOT / package).rglob("*.py")):
        for found in ast.parse(path.read_text()).body:
            if isinstance(found, ast.ClassDef) and not found.name.startswith("_"):
                places.setdefault(found.name, []).append(str(path.relative_to(ROOT)))

    assert len(places) > 400
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_file_of_the_product_has_more_than_450_lines_and_no_class_more_than_300() -> None:
    python = {path: path.read_text() for path in ROOT.glob("*/src/**/*.py")}
    go = {
        path: path.read_text()
        for path in ROOT.glob("plugin/**/*.go")
        if not path.name.endswith(("_test.go", "_gen.go"))
    }

    assert len(python) > 300
    assert len(go) > 50
    assert [str(path) for path, text in (python | go).items() if text.count("\n") > 450] == []
    assert [
        f"{path}: {one.name}"
        for path, text in python.items()
        for one in ast.walk(ast.parse(text))
        if isinstance(one, ast.ClassDef) and (one.end_lineno or 0) - one.lineno + 1 > 300
    ] == []
