"""The files of a release, one after the other, into a directory that holds nothing else."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from makeway.dev.binaries import GO_ENVIRONMENT, HELM, scheduler_of
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.image_context import fill
from makeway.dev.minors import DEFAULT, Minor
from makeway.dev.paths import CHART, CHECKOUT, PLUGIN_MODULE
from makeway.dev.progress import Progress
from makeway.dev.release import spdx
from makeway.dev.release.archives import Member, packed
from makeway.dev.release.chart import chart_archive
from makeway.dev.release.krew import manifest, plugin_archive

ARCHITECTURES: Final = ("amd64", "arm64")
SUMS: Final = "SHA256SUMS"
_NAMESPACE: Final = "makeway-system"
_EXTRAS: Final = ("services", "tracing", "ui")


@dataclass(frozen=True)
class Release:
    """What is made. `directory`: emptied before. `uv`: the program. `architectures`: of the schedulers."""

    directory: Path
    uv: str
    minors: tuple[Minor, ...]
    architectures: tuple[str, ...]


def make(release: Release, progress: Progress) -> str:
    """Make every file, and return their checksums as `sha256sum` writes them.

    Raises:
        DevError: something could not be built, or came out another one the second time.
    """
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    version, epoch = str(project["project"]["version"]), commit_epoch()
    out = release.directory
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    wheel = _distributions(release, project, epoch, progress)
    chart = out / f"makeway-chart-{version}.tgz"
    chart.write_bytes(chart_archive(CHART, epoch))
    (out / "install.yaml").write_text(_rendered(chart, progress))
    _sboms(release, version, epoch)
    archive = f"kubectl-makeway-{version}.tar.gz"
    licence = (CHECKOUT / "LICENSE").read_bytes()
    (out / archive).write_bytes(plugin_archive(wheel, _requirements(release.uv), licence, epoch))
    (out / "makeway.krew.yaml").write_text(manifest(version, archive, digest_of(out / archive)))
    (out / "artifacthub-repo.yml").write_bytes((CHART.parent / "artifacthub-repo.yml").read_bytes())
    (out / "notes.md").write_text(notes((CHECKOUT / "CHANGELOG.md").read_text(), version))
    for minor, architecture in product(release.minors, release.architectures):
        context = out / "images" / "makeway-scheduler" / f"k{minor.name}" / architecture
        fill(context, progress, scheduler_of(minor, architecture))
        binary = Member((context / "makeway-scheduler").read_bytes(), executable=True)
        members = {"makeway-scheduler": binary, "LICENSE": Member(licence)}
        (out / scheduler_archive(version, minor, architecture)).write_bytes(packed(members, epoch))
    made = {path.relative_to(out).parts[0] for path in out.rglob("*") if path.is_file()}
    if made - {"images"} != (wanted := files(version, release.minors, release.architectures)) - {SUMS}:
        raise DevError(f"made {sorted(made)}, and a release has {sorted(wanted)}")
    sums = checksums(out)
    (out / SUMS).write_text(sums)
    return sums


def files(version: str, minors: Collection[Minor], architectures: Collection[str]) -> set[str]:
    """Return the names of a release's files, but for what images are built from. Pure."""
    return {
        f"makeway-{version}-py3-none-any.whl",
        f"makeway-{version}.tar.gz",
        f"makeway-chart-{version}.tgz",
        f"makeway-{version}.spdx.json",
        *(f"makeway-scheduler-{version}-k{minor.name}.spdx.json" for minor in minors),
        *(scheduler_archive(version, *one) for one in product(minors, architectures)),
        f"kubectl-makeway-{version}.tar.gz",
        "makeway.krew.yaml",
        "artifacthub-repo.yml",
        "install.yaml",
        "notes.md",
        SUMS,
    }


def scheduler_archive(version: str, minor: Minor, architecture: str) -> str:
    """Return the name of the archive of makeway-scheduler, for Linux."""
    return f"makeway-scheduler-{version}-k{minor.name}-linux-{architecture}.tar.gz"


def _rendered(chart: Path, progress: Progress) -> str:
    """Return the chart with no value set, for `kubectl apply`: it makes its Secrets in the cluster."""
    helm = ensure([HELM], progress)[HELM.name]
    asked = ["--namespace", _NAMESPACE, "--kube-version", DEFAULT.version, "--no-hooks"]
    text = _output([str(helm), "template", "makeway", str(chart), *asked], CHECKOUT)
    return f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {_NAMESPACE}\n{text}"


def commit_epoch() -> int:
    """Return when the commit was made, seconds since 1970; or $SOURCE_DATE_EPOCH. Raises DevError."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    return int(_output(["git", "log", "-1", "--format=%ct"], CHECKOUT))


def checksums(directory: Path) -> str:
    """Return a line for each file below the directory, by path."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return "".join(f"{digest_of(path)}  {path.relative_to(directory).as_posix()}\n" for path in files)


def digest_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def notes(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, without its heading. Raises DevError where it has none."""
    section = rf"^## {re.escape(version)} \([^\n]*\)\n+(.*?)(?=^## |\Z)"
    found = re.search(section, changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise DevError(f"CHANGELOG.md has no section {version}; write it from the fragments: make changelog")
    return found[1].strip() + "\n"


def _distributions(release: Release, project: dict[str, Any], epoch: int, progress: Progress) -> Path:
    """Build wheel and sdist twice, keep one of each where they are equal, and return the wheel."""
    with tempfile.TemporaryDirectory() as temporary, progress.step("building wheel and sdist, twice", 20):
        root = Path(temporary)
        constraints = root / "constraints.txt"
        constraints.write_text("\n".join(project["tool"]["uv"]["build-constraint-dependencies"]) + "\n")
        for name in ("first", "second"):
            _output(
                [
                    *(release.uv, "build", "--quiet", "--wheel", "--sdist", "--no-create-gitignore"),
                    *("--build-constraints", str(constraints), "--out-dir", str(root / name)),
                ],
                CHECKOUT,
                SOURCE_DATE_EPOCH=str(epoch),
            )
        first, second = checksums(root / "first"), checksums(root / "second")
        if first != second:
            raise DevError(f"wheel or sdist came out another one the second time:\n{first}and\n{second}")
        for path in sorted((root / "first").iterdir()):
            shutil.copyfile(path, release.directory / path.name)
    (wheel,) = release.directory.glob("*.whl")
    return wheel


def _requirements(uv: str) -> str:
    """Return what every command needs, with the hashes of uv.lock."""
    options = ["--frozen", "--all-extras", "--no-dev", "--no-emit-project", "--no-header", "--no-annotate"]
    return _output([uv, "export", "--format", "requirements.txt", "--quiet", *options], CHECKOUT)


def _sboms(release: Release, version: str, epoch: int) -> None:
    lock = tomllib.loads((CHECKOUT / "uv.lock").read_text())
    packages = spdx.of_lock(lock, "makeway", _EXTRAS)
    name = f"makeway-{version}"
    (release.directory / f"{name}.spdx.json").write_text(spdx.document(name, packages, epoch))
    for minor in release.minors:
        name = f"makeway-scheduler-{version}-k{minor.name}"
        sums = (PLUGIN_MODULE / (minor.modfile or "go.mod")).with_suffix(".sum").read_text()
        root = spdx.Package(
            "makeway-scheduler",
            version,
            f"pkg:github/makeway/makeway@v{version}#plugin",
            note=f"kube-scheduler {minor.version}",
        )
        described = spdx.of_modules(root, _linked(minor), sums)
        (release.directory / f"{name}.spdx.json").write_text(spdx.document(name, described, epoch))


def _linked(minor: Minor) -> list[tuple[str, str]]:
    """Return path and version of every module of which a package is linked into the scheduler."""
    flags = [f"-tags={minor.tag}"] if minor.tag else []
    flags += [f"-modfile={minor.modfile}"] if minor.modfile else []
    form = "{{with .Module}}{{with or .Replace .}}{{.Path}} {{.Version}}{{end}}{{end}}"
    listed = _output(
        ["go", "list", "-deps", *flags, "-f", form, "./cmd/makeway-scheduler"],
        PLUGIN_MODULE,
        **GO_ENVIRONMENT,
        GOOS="linux",
        GOARCH=ARCHITECTURES[0],
    )
    pairs = {tuple(line.split()) for line in listed.splitlines()}
    return sorted((pair[0], pair[1]) for pair in pairs if len(pair) == 2)


def _output(command: list[str], directory: Path, **environment: str) -> str:
    """Run a program and return what it prints. Raises DevError with its errors where it fails."""
    try:
        done = subprocess.run(
            command, cwd=directory, env=os.environ | environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise DevError(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        raise DevError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout
