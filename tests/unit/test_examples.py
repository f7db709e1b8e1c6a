"""The manifests of examples/policies: one for each policy's page, with what the page shows."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from makeway.cli.check.priority_classes import judge
from makeway.cli.main import app
from makeway.core.k8s.objects import PriorityClass
from makeway.dev.paths import CHECKOUT

EXAMPLES = sorted((CHECKOUT / "examples" / "policies").glob("*.yaml"))
PAGES = CHECKOUT / "docs" / "policies"
WITHOUT = {"differences": "compares others", "queue-gate": "has the manifest of queues"}


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def test_every_page_of_a_policy_has_its_manifest() -> None:
    assert {path.stem for path in EXAMPLES} == {page.stem for page in PAGES.glob("*.md")} - WITHOUT.keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_leads_to_the_manifest_and_shows_a_part_of_it(path: Path) -> None:
    page = (PAGES / f"{path.stem}.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    objects = [one for text in blocks for one in yaml.safe_load_all(text)]
    shown = [one for one in objects if isinstance(one, dict) and "kind" in one]

    assert f"examples/policies/{path.name})" in page
    for one in shown:
        (whole,) = [other for other in documents(path) if key(other) == key(one)]
        assert {**whole, **one} == whole


def key(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_makeway_reads_of_it_is_accepted_without_a_warning(path: Path) -> None:
    found = documents(path)
    if any(one["kind"] == "ConfigMap" for one in found):
        done = CliRunner().invoke(app, ["policy", "lint", str(path)])
        assert (done.exit_code, "warning" in done.output) == (0, False), done.output
    classes = [one for one in found if one["kind"] == "PriorityClass"]
    assert judge(msgspec.convert(classes, list[PriorityClass]), nominator=False).state == "ok"
