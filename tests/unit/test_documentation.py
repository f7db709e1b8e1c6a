"""The documentation holds together: every link within the repository leads somewhere."""

import re
from pathlib import Path

import pytest

from makeway.dev.paths import CHECKOUT, PLUGIN_MODULE

PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "SECURITY.md",
    *sorted((CHECKOUT / "docs").rglob("*.md")),
    CHECKOUT / "charts/makeway/README.md",
]


CASE = re.compile(r"\b(?:DP|PT|RN|QP|T|G|Q|A)-\d{1,2}b?\b")
CASE_IN_A_NAME = re.compile(r"\bdef test_(dp|pt|rn|qp|t|g|q|a)_(\d{1,2}b?)_")
FUNCTION = r"^ *(?:async )?(?:def|func(?: \([^)]*\))?) {}\("
# A path in backquotes; other projects' paths begin with other folders.
OWN_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|go|md|ya?ml|toml|json|sh|svg))`")
RECORDS = [page for page in (CHECKOUT / "docs/decisions").glob("*.md") if page.name != "README.md"]
PARTS = ("bus", "core", "runtime", "planner", "evictor", "cli", "dev", "plugin", "tests")
ROOTS = (*PARTS, "charts", "docs", "images", "changelog.d")
REFERENCE = CHECKOUT / "docs/reference"


def named(page: Path) -> str:
    """Name a page in a test's id."""
    return str(page.relative_to(CHECKOUT))


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    text = re.sub(r"\]\([^)]*\)", "]", page.read_text())
    if page.name == "comparison.md":
        pytest.skip("names the documents of other projects")
    named = {path for path in OWN_FILE.findall(text) if path.split("/")[0] in ROOTS}

    def there(path: str) -> bool:
        # Pages leave src/makeway/core out of core/src/makeway/core/k8s/objects.py.
        part, _, rest = path.partition("/")
        return any((CHECKOUT / whole).exists() for whole in (path, f"{part}/src/makeway/{part}/{rest}"))

    assert sorted(path for path in named if not there(path)) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_page_installs_from_the_package_index_what_is_not_there_yet(page: Path) -> None:
    """Until the first release the name is free: who registers it would run code on readers' machines."""
    assert re.findall(r"(?:pip|pipx|uv tool) install [^`\n]*\bmakeway\b(?!/)", page.read_text()) == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [CHECKOUT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
        waiting += [page.parent / link for link in links if "://" not in link]

    listed = set((CHECKOUT / "docs").glob("*.md")) | set((CHECKOUT / "docs/policies").glob("*.md"))
    assert {str(page) for page in listed} <= {str(page) for page in reached}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent not in (RECORDS[0].parent, REFERENCE)], ids=named
)
def test_the_metrics_and_commands_that_a_page_names_are_in_the_reference(page: Path) -> None:
    metrics = set(re.findall(r"^\| (makeway_\w+) \|", (REFERENCE / "metrics.md").read_text(), re.MULTILINE))
    commands = set(re.findall(r"^## makeway (\w+)", (REFERENCE / "commands.md").read_text(), re.MULTILINE))
    text = page.read_text()

    asked = {
        re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bmakeway_\w+[a-z]\b(?!_)", text)
    }
    run = set(re.findall(r"`makeway ([a-z]+)[ `]", text))
    assert (asked - metrics, run - commands) == (set(), set())


@pytest.mark.parametrize(
    "page", sorted((CHECKOUT / "docs/runbooks").glob("Makeway*.md")), ids=lambda page: page.stem
)
def test_a_runbook_says_what_an_alert_costs_where_to_look_and_what_to_do(page: Path) -> None:
    _, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)

    answers = {heading: text.strip() for heading, _, text in (one.partition("\n") for one in sections)}
    assert [*answers] == ["What it costs", "Where to look", "What to do"]
    assert all(answers.values())


def test_every_conformance_case_that_is_cited_is_listed() -> None:
    listed = set(re.findall(r"^\| (\S+) \|", (CHECKOUT / "docs/conformance.md").read_text(), re.MULTILINE))
    unknown, bare = {}, []
    for file in [*PAGES, *(f for part in PARTS for f in (CHECKOUT / part).rglob("*.*"))]:
        if file.suffix not in (".py", ".go", ".md") or file == Path(__file__):
            continue
        text = file.read_text()
        named = {f"{kind.upper()}-{number}" for kind, number in CASE_IN_A_NAME.findall(text)}
        cited = set(CASE.findall(text))
        if found := (cited | named) - listed:
            unknown[file.name] = sorted(found)
        if cited and "conformance.md" not in text and file.name != "conformance.md":
            bare.append(file.name)

    assert unknown == {}
    assert bare == []


def test_every_decision_record_is_in_the_index_once() -> None:
    index = (CHECKOUT / "docs/decisions/README.md").read_text()
    listed = re.findall(r"\]\(([^)]+)\)", index)

    assert sorted(listed) == sorted(page.name for page in RECORDS)


@pytest.mark.parametrize("page", RECORDS, ids=lambda page: page.stem)
def test_a_decision_record_has_its_context_decision_price_and_what_was_refused(page: Path) -> None:
    title, context, *_ = page.read_text().split("\n\n")

    assert title.startswith("# ")
    assert context[0].isalnum()
    assert {"decision", "price", "refused"} <= anchors(page)


def test_the_functions_that_the_architecture_names_are_in_the_files_that_it_links_to() -> None:
    page = CHECKOUT / "docs/architecture.md"
    links = re.findall(r"\[`(\w+)`\]\((\.\./[^)]+\.(?:py|go))\)", page.read_text())
    missing = [
        (name, path)
        for name, path in links
        if not re.search(FUNCTION.format(name), (page.parent / path).read_text(), re.MULTILINE)
    ]

    assert missing == []
    decided = page.read_text().partition("## Where it is decided")[2].partition("\n## ")[0]
    for what in ("exempt", "order stored", "delete sent"):
        assert f"**{what}**" in decided


def test_the_functions_that_the_architecture_walks_through_are_counted() -> None:
    text = (CHECKOUT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| \[`(\w+)`\]\(([^)]+)\) \|", text, re.MULTILINE)

    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    files = {path for _, _, path in rows}
    assert f"These {len(rows)} functions in {len(files)} files" in text
    assert len(rows) <= 25
    assert len(files) <= 16
    returns = [name for _, name, _ in rows].index("nominate") + 1
    cycle = [path for _, _, path in rows[:returns] if path.startswith("../plugin/")]
    words = {10: "ten", 5: "five"}
    assert f"{words[len(cycle)]} functions in {words[len(set(cycle))]} files of the plugin" in text


@pytest.mark.parametrize(
    ("readme", "benchmarks"),
    [
        ("37.3 ms (111) | 4.4 ms (32.3)", "| 37.3, 4.35 (0.11) |"),
        ("37.3 ms (111) | 4.4 ms (32.3)", "| 111, 32.3 (0.29) |"),
        ("| 17 ms |", "the first plan of a class 17 ms at 5,000 nodes"),
        ("| 25, 28, 25 ms |", "at 20 orders a second p50 25, 28 and 25 ms"),
        ("| 79/s | 82/s |", "| 79.3, 82.1 (1.03) |"),
    ],
)
def test_the_numbers_in_the_readme_are_those_of_the_benchmarks(readme: str, benchmarks: str) -> None:
    measured = " ".join((CHECKOUT / "docs/benchmarks.md").read_text().split())

    assert readme in (CHECKOUT / "README.md").read_text()
    assert benchmarks in measured


def test_the_page_of_versions_names_each_kubernetes_that_the_scheduler_is_built_from() -> None:
    modules = "".join(path.read_text() for path in PLUGIN_MODULE.glob("go*.mod"))
    built = set(re.findall(r"k8s\.io/kubernetes v(1\.\d+)(\.\d+)", modules))

    table = re.findall(
        r"^\| ([\d.]+) \| `makeway-scheduler:[\d.]+-k([\d.]+)` \| ([\d.]+) \|",
        (CHECKOUT / "docs/versions.md").read_text(),
        re.MULTILINE,
    )

    assert set(table) == {(minor, minor, minor + patch) for minor, patch in built}


def test_the_glossary_has_at_most_sixty_terms() -> None:
    terms, _, _ = (CHECKOUT / "docs/glossary.md").read_text().partition("\n## Names that stay")

    assert len(re.findall(r"^\| (?!Term \|)\w", terms, re.MULTILINE)) <= 60
