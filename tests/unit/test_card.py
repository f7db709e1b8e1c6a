"""What makeway is made of, and stays made of: five packages, the top of the tree, and what it promises."""

import ast
import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "nats-py": "nats",
    "msgspec": "msgspec",
    "kubernetes-asyncio": "kubernetes_asyncio",
    "tenacity": "tenacity",
    "prometheus-client": "prometheus_client",
}
"""By which name each is imported."""

PRODUCT = ("bus", "core", "runtime", "planner", "evictor", "nominator", "cli", "ui")

TOP = ("pyproject.toml", "plugin", "bus", "evictor", "charts", "tests", "README.md")

SHOWN_BY = {
    "the sidecar form": (
        "tests/integration/test_chart_sidecar.py::test_a_pod_of_scheduler_planner_and_nats_preempts",
        "tests/integration/test_chart_sidecar.py::test_a_static_pod_beside_kube_scheduler_preempts",
    ),
    "consumers besides the evictor": (
        "tests/contract/test_documented_consumers.py::"
        "test_a_consumer_of_ten_lines_with_the_viewers_login_tells_how_an_order_ended",
    ),
    "metrics of success": (
        "tests/integration/test_evictor_api.py::test_the_process_is_ready_and_its_metrics_tell_of_the_orders",
        "tests/integration/test_chart_dashboard.py::"
        "test_every_panel_has_data_where_the_scheduler_in_kube_system_has_the_plugin",
    ),
}
"""What shows each promise."""

OFFLINE = (("--help",), ("why", "--help"), ("evictor", "--help"), ("policy", "lint", "{policy}"))


@cache
def product() -> dict[Path, ast.Module]:
    """Return the product's modules."""
    paths = [path for part in PRODUCT for path in (ROOT / part / "src").rglob("*.py")]
    return {path: ast.parse(path.read_text()) for path in paths}


def imported() -> set[str]:
    """Return the top-level names that product code imports."""
    nodes = [node for tree in product().values() for node in ast.walk(tree)]
    modules = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_of_the_five_packages_is_a_dependency_that_product_code_imports(package: str) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert [one for one in wanted if one.partition("[")[0].rstrip("~=>.0123456789") == package]
    assert PACKAGES[package] in imported()


@pytest.mark.parametrize("name", TOP)
def test_the_top_of_the_tree_is_there(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize(("promise", "tests"), SHOWN_BY.items(), ids=SHOWN_BY)
def test_each_promise_is_shown_by_tests_that_exist(promise: str, tests: tuple[str, ...]) -> None:
    for file, name in (test.split("::") for test in tests):
        tree = ast.parse((ROOT / file).read_text())
        assert name in {getattr(node, "name", "") for node in ast.walk(tree)}, promise


def test_every_write_to_the_api_server_is_a_call_of_a_typed_api() -> None:
    """`request` of the connection is for reads; bodies go by `call`."""
    found = [
        str(path.relative_to(ROOT))
        for path, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "request"
        and ast.unparse(node.func).endswith("api.request")
        and {"body", "content_type"} & {one.arg for one in node.keywords}
    ]

    assert not found


def loaded(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Run the command in a process; what it printed, and the top-level packages that it has loaded."""
    code = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from makeway.cli.main import main\n"
        "sys.argv[0] = 'makeway'\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )
    return done.stdout, {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize("arguments", OFFLINE, ids=" ".join)
def test_what_asks_no_api_server_does_not_load_the_client(arguments: tuple[str, ...], tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("mode: observe\n")

    printed, packages = loaded(*(one.format(policy=policy) for one in arguments))

    assert printed
    assert "makeway" in packages
    assert "kubernetes_asyncio" not in packages


def test_completing_a_command_does_not_load_the_client() -> None:
    words = {"_MAKEWAY_COMPLETE": "complete_bash", "COMP_WORDS": "makeway mo", "COMP_CWORD": "1"}

    printed, packages = loaded(**words)

    assert "mode" in printed
    assert "kubernetes_asyncio" not in packages
