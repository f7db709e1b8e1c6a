"""Which of the tests that docs/conformance.md names run in both forms; docs/external.md lists the others."""

import ast
import re
from collections.abc import Iterator

from makeway.dev.paths import CHECKOUT

INTEGRATION = CHECKOUT / "tests" / "integration"
MARK = "both_forms"
LINK = re.compile(r"\[(`?)([^\]`]+)`?\]\(\.\./tests/integration/(test_\w+\.py)\)")


def named(page: str, section: str = "") -> list[tuple[str, str, str]]:
    """The integration tests that a page links to: a backquote or nothing, the link's text, the module."""
    text = (CHECKOUT / "docs" / page).read_text()
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    # A link's text may be wrapped.
    return LINK.findall(re.sub(r"\s+", " ", text))


def functions_of(module: str) -> Iterator[tuple[str, bool]]:
    """Each test of a module, and whether it runs in both forms."""
    tree = ast.parse((INTEGRATION / module).read_text())
    whole = any(
        isinstance(one, ast.Assign) and "pytestmark" in ast.unparse(one) and MARK in ast.unparse(one)
        for one in tree.body
    )
    for one in tree.body:
        if isinstance(one, ast.AsyncFunctionDef | ast.FunctionDef) and one.name.startswith("test_"):
            yield one.name, whole or any(MARK in ast.unparse(mark) for mark in one.decorator_list)


def test_what_conformance_names_runs_in_both_forms_or_is_listed_with_a_reason() -> None:
    in_one = {
        (module, name)
        for module in {module for _, _, module in named("conformance.md")}
        for name, both in functions_of(module)
        if not both
    }

    rows = [
        link for link in named("external.md", "Which tests run in both forms") if link[2] in _conformance()
    ]
    functions = {(module, text) for quoted, text, module in rows if quoted}
    modules = {module for quoted, _, module in rows if not quoted}
    listed = functions | {(module, name) for module in modules for name, _ in functions_of(module)}

    assert in_one - listed == set(), "runs in one form, and docs/external.md does not say why"
    assert listed - in_one == set(), "docs/external.md lists it, and it runs in both forms or is not there"


def _conformance() -> set[str]:
    return {module for _, _, module in named("conformance.md")}


def test_a_marked_test_is_on_a_cluster_that_there_is_in_both_forms() -> None:
    # `race_form` is behind the race cluster, `form` behind all others.
    behind = {
        "cluster",
        "space",
        "form",
        "classes",
        "crash_cluster",
        "crash_space",
        "race_cluster",
        "secured_cluster",
        "traced_cluster",
        "race_space",
    }
    for path in sorted(INTEGRATION.glob("test_*.py")):
        tree = ast.parse(path.read_text())
        functions = {one.name: one for one in tree.body if isinstance(one, ast.AsyncFunctionDef)}
        for name, both in functions_of(path.name):
            if both:
                arguments = {one.arg for one in functions[name].args.args}
                assert arguments & (behind | {"space_without_evictor"}), f"{path.name}: {name}"


def test_what_runs_in_the_external_form_by_a_target_is_left_out_of_make_test_alone() -> None:
    makefile = (CHECKOUT / "Makefile").read_text()
    recipe = makefile.split("\nintegration-forms:")[1].split("\n\n")[0]
    integration = makefile.split("\nintegration:")[1].split("\n\n")[0]

    assert '-m "form and not slow"' in recipe
    assert '-m "not slow and not form$(if $(WIDE),, and not wide)"' in integration
    assert " integration-forms " in makefile.split("\ntest-all: check")[1].split("\n")[0]


def test_what_is_wide_runs_before_a_change_reaches_main_and_in_test_all() -> None:
    makefile = (CHECKOUT / "Makefile").read_text()
    assert "\ntest-all: WIDE := 1\n" in makefile
    assert " binaries $(if $(WIDE),upstream-short) protocol-test " in makefile
    assert "\nexport ONCE_MORE=1 WIDE=1\n" in (CHECKOUT / ".ci" / "run").read_text()
