"""What a release is made of: archives, the chart, SPDX documents, krew's manifest, notes, the workflows."""

import fnmatch
import io
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from makeway.dev.errors import DevError
from makeway.dev.minors import DEFAULT, MINORS
from makeway.dev.paths import CHART, CHECKOUT
from makeway.dev.release import spdx
from makeway.dev.release.archives import Member, packed
from makeway.dev.release.chart import chart_archive
from makeway.dev.release.krew import manifest, plugin_archive
from makeway.dev.release.make import ARCHITECTURES, files, notes

EPOCH = 1_790_000_000
LOCK = tomllib.loads((CHECKOUT / "uv.lock").read_text())


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_an_archive_is_the_same_in_whatever_order_its_files_come() -> None:
    one = {"b": Member(b"2"), "a": Member(b"1", executable=True)}
    other = dict(reversed(one.items()))

    archive = packed(one, EPOCH)

    assert archive == packed(other, EPOCH)
    assert archive != packed(one, EPOCH + 1)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert [(file.name, file.mode, file.mtime, file.uid) for file in opened.getmembers()] == [
            ("a", 0o755, EPOCH, 0),
            ("b", 0o644, EPOCH, 0),
        ]


def test_the_chart_is_packed_without_its_tests_and_says_that_its_images_are_published() -> None:
    archive = chart_archive(CHART, EPOCH)

    packed_names = names(archive)
    assert {"makeway/Chart.yaml", "makeway/values.schema.json", "makeway/rbac/planner.yaml"} <= set(
        packed_names
    )
    assert not [name for name in packed_names if "/tests/" in name or name.endswith(".helmignore")]
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        file = opened.extractfile("makeway/Chart.yaml")
        assert file is not None
        chart = yaml.safe_load(file.read())
    assert chart["annotations"]["makeway.dev/published"] == "true"


def test_the_python_document_has_what_is_installed_and_nothing_of_development() -> None:
    packages = {one.name: one for one in spdx.of_lock(LOCK, "makeway", ("services",))}

    assert {"makeway", "numpy", "nats-py", "multidict"} <= packages.keys()
    assert not {"pytest", "mypy", "hypothesis", "scipy"} & packages.keys()
    assert "numpy" not in {one.name for one in spdx.of_lock(LOCK, "makeway")}
    assert len(packages["numpy"].sha256) == 64
    assert all(needed in packages for one in packages.values() for needed in one.needs)


def test_the_archive_of_krew_has_the_launcher_and_runs_on_the_standard_library(tmp_path: Path) -> None:
    wheel = tmp_path / "makeway-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"")
    place = tmp_path / "data" / "makeway" / "1.2.3" / "bin" / "kubectl-makeway"
    place.parent.mkdir(parents=True)
    place.write_text('#!/bin/sh\necho "called with $*"\n')
    place.chmod(0o755)
    archive = plugin_archive(wheel, "", b"", EPOCH)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(tmp_path / "plugin", filter="data")

    # -I: isolated, so that nothing of this environment's packages is found.
    run = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "plugin" / "kubectl-makeway", "why", "web-0"],
        env={"XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout == "called with why web-0\n"
    assert (tmp_path / "plugin" / "kubectl-makeway").stat().st_mode & 0o111


def test_the_notes_are_the_section_of_the_version() -> None:
    changelog = (
        "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- New (and good).\n\n## 0.1.0 (2026-11-23)\n\n- Old.\n"
    )

    assert notes(changelog, "0.2.0") == "- New (and good).\n"
    assert notes(changelog, "0.1.0") == "- Old.\n"
    with pytest.raises(DevError, match="make changelog"):
        notes(changelog, "0.3.0")


def workflow(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((CHECKOUT / ".github" / "workflows" / name).read_text())
    return document


def test_every_minor_is_run_and_the_default_is_run_whole() -> None:
    matrix = workflow("ci.yml")["jobs"]["minor"]["strategy"]["matrix"]["minor"]

    assert matrix == [one.name for one in MINORS]
    _, _, rest = (CHECKOUT / ".ci" / "run").read_text().partition(f"\n  {DEFAULT.name})\n")
    targets = re.findall(r"make (\S+)$", rest.partition(";;")[0], re.MULTILINE)
    assert targets == ["before-integration", "integration"]
    assert "\ntest: before-integration integration ##" in (CHECKOUT / "Makefile").read_text()


def test_what_the_workflows_use_is_pinned_by_commit_and_may_write_where_it_says_so_alone() -> None:
    for name in ("ci.yml", "release.yml"):
        found = workflow(name)
        used = [step["uses"] for job in found["jobs"].values() for step in job["steps"] if "uses" in step]
        assert used
        assert not [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one)]
        assert found["permissions"] == {"contents": "read"}
    assert "permissions" not in workflow("ci.yml")["jobs"]["minor"]


def test_a_tag_that_agrees_with_nothing_is_refused() -> None:
    run = subprocess.run(
        [CHECKOUT / ".ci" / "check-tag", "v99.0.0"], capture_output=True, text=True, check=False
    )

    assert run.returncode == 1
    for place in ("pyproject.toml", "Chart.yaml", "plugin/wire/version.go", "CHANGELOG.md"):
        assert f"error: {place}" in run.stderr or f"of charts/makeway/{place}" in run.stderr


def test_what_is_published_is_what_a_release_makes() -> None:
    script = (CHECKOUT / ".ci" / "publish").read_text()
    version = "1.2.3"
    named = {
        found.replace("$version", version).replace("-$minor", "-k*")
        for found in re.findall(r'\$directory"?/([^\s")]+)', script)
    } | {f"{name}" for name in ("artifacthub-repo.yml",) if name in script}
    patterns = {one for one in named if not one.startswith("images/") and one != "SHA256SUMS.sigstore.json"}

    made = files(version, MINORS, ARCHITECTURES)

    assert [one for one in sorted(patterns) if not fnmatch.filter(made, one)] == []
    assert [one for one in sorted(made) if not any(fnmatch.fnmatch(one, each) for each in patterns)] == []
    assert f"platforms=({' '.join(ARCHITECTURES)})" in script


def test_the_scheduler_is_a_file_for_linux_and_the_command_one_for_linux_and_darwin() -> None:
    made = files("1.2.3", MINORS, ARCHITECTURES)

    assert {one for one in made if one.startswith("makeway-scheduler-") and one.endswith(".tar.gz")} == {
        f"makeway-scheduler-1.2.3-k{minor.name}-linux-{architecture}.tar.gz"
        for minor in MINORS
        for architecture in ("amd64", "arm64")
    }
    (platform,) = yaml.safe_load(manifest("1.2.3", "kubectl-makeway-1.2.3.tar.gz", "f" * 64))["spec"][
        "platforms"
    ]
    (system,) = platform["selector"]["matchExpressions"]
    assert system["values"] == ["darwin", "linux"]
    assert "kubectl-makeway-1.2.3.tar.gz" in made
