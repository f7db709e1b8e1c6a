"""The command's shell, run as a person runs it."""

import gc
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from forked_command import ENVIRONMENT, run_forked
from makeway.cli import examples
from makeway.cli.examples import EXAMPLES
from makeway.cli.main import SUB_COMMANDS, load, main


def makeway(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", "from makeway.cli.main import main; main()", *arguments)


def installed(executable: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(str(Path(sys.executable).parent / executable), *arguments)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_help_lists_every_sub_command() -> None:
    result = makeway("--help")

    assert result.returncode == 0
    assert all(name in result.stdout for name in SUB_COMMANDS)


def test_the_help_lists_what_users_call_before_services() -> None:
    users, services = makeway("--help").stdout.split("─ Services ")

    assert "│ why " in users
    assert "│ options " in users
    assert "│ evictor " in services


def test_options_that_reach_nats_and_kubernetes_are_in_the_help_of_services_and_of_options_alone() -> None:
    shown = {name: makeway(name, "--help").stdout for name in ("why", "evictor", "options")}

    assert "--nats-url" not in shown["why"]
    assert "makeway options" in shown["why"]
    assert "--nats-url" in shown["evictor"]
    assert makeway("options").stdout == shown["options"]
    assert all(option in shown["options"] for option in ("--nats-url", "--kubeconfig", "--makeway-namespace"))


def loaded(program: str) -> set[str]:
    """Run a program; return the top-level packages beyond the standard library that it loaded."""
    shown = "\nprint(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)\n"
    run = subprocess.run(
        [sys.executable, "-c", "import sys\n" + program + shown], capture_output=True, text=True, check=True
    )
    return set(run.stdout.splitlines()[-1].split()) - {"__main__"}


def test_the_help_loads_these_packages_alone() -> None:
    program = (
        "sys.argv = ['makeway', '--help']\n"
        "from makeway.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
    )

    # typer, and what rich lays a help text out with.
    printing = {"annotated_doc", "attr", "markdown_it", "mdurl", "pygments", "rich", "shellingham", "typer"}
    assert loaded(program) <= {"makeway"} | printing


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("makeway.cli.policy.command", {"aiohttp", "nats", "numpy"}),
        ("makeway.cli.streams", {"numpy"}),
        ("makeway.cli.services.evictor", {"numpy", "opentelemetry"}),
        ("makeway.cli.services.planner", {"opentelemetry"}),
        ("makeway.cli.why.command", {"numpy"}),
        ("makeway.cli.check.command", {"numpy"}),
        ("makeway.cli.history.command", {"numpy"}),
    ],
)
def test_a_command_loads_what_it_needs_alone(module: str, heavy: set[str]) -> None:
    assert loaded(f"import {module}") & heavy == set()


def without(missing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where a package is not installed."""
    program = f"import sys\nsys.modules[{missing!r}] = None\nfrom makeway.cli.main import main\nmain()"
    return run(sys.executable, "-c", program, *arguments)


@pytest.mark.parametrize("name", ["simulate", "replay", "planner"])
def test_what_plans_says_which_extra_it_needs(name: str) -> None:
    result = without("numpy", name, "--help")

    assert result.returncode == 1
    assert result.stderr == (
        f"makeway: makeway {name} needs numpy, which is not installed: "
        "pip install '.[services]' in a checkout\n"
    )


def test_traces_without_their_extra_are_an_error_at_the_start() -> None:
    result = without("opentelemetry", "evictor", "--otlp-endpoint=http://127.0.0.1:4318")

    assert result.returncode == 1
    assert result.stderr == (
        "makeway: --otlp-endpoint needs opentelemetry, which is not installed: "
        "pip install '.[tracing]' in a checkout\n"
    )


def test_traces_to_no_url_are_an_error_at_the_start() -> None:
    result = makeway("evictor", "--otlp-endpoint=collector:4317")

    assert result.returncode == 1
    assert result.stderr == (
        "makeway: --otlp-endpoint collector:4317: not a URL such as http://collector:4318\n"
    )


def test_a_module_that_no_extra_brings_is_not_explained_away() -> None:
    result = without("msgspec", "why", "--help")

    assert "Traceback" in result.stderr
    assert "pip install" not in result.stderr


def test_what_needs_the_source_is_not_shown_where_it_is_not() -> None:
    shown = without("makeway.dev", "--help").stdout
    called = without("makeway.dev", "demo")

    assert "simulate" in shown
    assert "demo" not in shown
    assert called.returncode == 1
    assert called.stderr.startswith("makeway: makeway demo needs a checkout of the source")


def test_the_version_is_the_distributions() -> None:
    assert makeway("--version").stdout == f"makeway {version('makeway')}\n"


@pytest.mark.parametrize("name", sorted(SUB_COMMANDS))
async def test_every_sub_command_explains_itself_under_its_own_name(name: str) -> None:
    code, out, err = await run_forked([name, "--help"], ENVIRONMENT)

    assert code == 0, err
    assert f"makeway {name} " in out


def leaves() -> list[tuple[str, Any]]:
    """Every command that is no group, by its path."""
    found: list[tuple[str, Any]] = []
    for name in SUB_COMMANDS:
        command = load(name)
        inner = getattr(command, "commands", None)
        found += [(f"{name} {each}", one) for each, one in inner.items()] if inner else [(name, command)]
    return found


def helps() -> Iterator[tuple[str, Any]]:
    """Every command and sub-command that has a help text, by its name."""
    for name in SUB_COMMANDS:
        command = load(name)
        for path, inner in ((name, command), *getattr(command, "commands", {}).items()):
            if inner.help:
                yield path, inner


@pytest.mark.parametrize(("name", "command"), leaves(), ids=lambda value: getattr(value, "name", value))
def test_help_begins_with_examples_that_are_understood(name: str, command: Any) -> None:
    texts = [arguments for arguments, _ in EXAMPLES[name]]

    for text in texts:
        words = shlex.split(text.removeprefix('eval "$(makeway ').removesuffix(')"'))
        path = name.split()
        assert words[: len(path)] == path
        command.make_context(name, words[len(path) :])


def test_every_example_is_of_a_command() -> None:
    assert set(EXAMPLES) == {name for name, _ in leaves()}


def test_examples_bear_the_name_that_was_called() -> None:
    help_text = installed("kubectl-makeway", "why", "--help").stdout

    assert help_text.splitlines()[1] == "  kubectl makeway why web-0 -n shop"
    assert makeway("keys", "new", "--help").stdout.splitlines()[1] == "  makeway keys new"


def test_completion_is_installed_by_the_command_alone() -> None:
    """That of a group would be for a program whose name has a blank in it."""
    named = {name for name, command in helps() for one in command.params if "completion" in one.name}

    assert named == set()


def test_examples_fit_80_columns() -> None:
    shown = [line for name in EXAMPLES for line in examples.lines(name, "kubectl makeway")]

    assert [line for line in shown if len(line) > 80] == []


def test_the_help_of_simulate_is_whole() -> None:
    assert "… │" not in makeway("simulate", "--help").stdout


def test_kubectls_options_may_stand_before_the_command() -> None:
    result = makeway("-n", "shop", "why", "web-0", "--nats-url", "nats://127.0.0.1:9")

    assert (result.returncode, result.stderr.split(":")[0]) == (3, "makeway")


@pytest.mark.parametrize(("name", "command"), helps(), ids=lambda value: getattr(value, "name", value))
def test_a_help_text_leaves_the_breaking_of_lines_to_the_terminal(name: str, command: Any) -> None:
    assert not [part for part in command.help.split("\n\n") if "\n" in part], name


def test_a_wrong_sub_command_is_wrong_usage_and_the_right_one_is_suggested() -> None:
    result = makeway("plannr")

    assert result.returncode == 2
    assert "Did you mean 'planner'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_service_out_of_reach_is_one_line_on_stderr_and_a_failure() -> None:
    # Port 9 is the discard service's; nobody runs it.
    result = makeway("history", "--nats-url", "nats://127.0.0.1:9")

    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("makeway: cannot connect to NATS at 127.0.0.1:9")
    assert len(result.stderr.splitlines()) == 1


def test_called_by_kubectl_it_is_kubectl_makeway() -> None:
    assert "Usage: kubectl makeway [OPTIONS]" in installed("kubectl-makeway", "--help").stdout
    for name, argument in (("breaker", "reset"), ("mode", "off|observe|enforce|inherit"), ("queues", "PATH")):
        assert f"[OPTIONS] [{argument}]" in installed("kubectl-makeway", name, "--help").stdout
    assert "Usage: kubectl makeway queues" in installed("kubectl-makeway", "queues", "--help").stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["que"], "queues"),
        (["policy", "li"], "lint"),
        (["queues", "-o", ""], "yaml"),
        (["queues", "--makeway-n"], "--makeway-namespace"),
    ],
)
def test_kubectl_is_told_what_could_stand_next(words: list[str], offered: str) -> None:
    lines = installed("kubectl_complete-makeway", *words).stdout.splitlines()

    assert offered in [line.partition("\t")[0] for line in lines]
    assert lines[-1] == ":4"


def test_kubectl_is_told_of_an_option_on_one_line() -> None:
    *offers, end = installed("kubectl_complete-makeway", "history", "--").stdout.splitlines()

    assert (end, [one for one in offers if not one.startswith("--")]) == (":4", [])


def test_a_start_collects_no_garbage_among_the_modules_that_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    seen: list[int] = []
    monkeypatch.setattr("makeway.cli.main.app", lambda **_: seen.append(gc.get_threshold()[0]))
    try:
        main()
    finally:
        gc.set_threshold(*before)

    assert seen[0] >= 100_000
