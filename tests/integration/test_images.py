"""The images: the Python one's own commands in a clean directory, the scheduler's by buildah from nothing.

Base images cannot be pulled everywhere, so the Python image's build is played without one: each instruction
of its first stage, in order, with /src and /opt moved below a directory that holds nothing else.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from makeway.dev.binaries import KUBERNETES_VERSION
from makeway.dev.image_context import fill
from makeway.dev.paths import CHECKOUT
from makeway.dev.progress import SilentProgress

IMAGES = CHECKOUT / "images"


class Stage:
    """Plays a Containerfile's stage. Only what ours use is known: ENV, WORKDIR, COPY and RUN."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # How this machine reaches the package registry is no part of the image.
        ours = {
            name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")
        }
        self.environment = {**ours, "HOME": str(root)}
        self.directory = root

    def play(self, containerfile: Path, stage: str) -> None:
        for instruction, rest in instructions(containerfile, stage):
            match instruction:
                case "ENV":
                    self.environment |= dict(self.moved(one).split("=", 1) for one in rest.split())
                case "WORKDIR":
                    self.directory = Path(self.moved(rest))
                    self.directory.mkdir(parents=True)
                case "COPY":
                    *sources, target = rest.split()
                    for source in sources:
                        self.copy(CHECKOUT / source, self.directory / target)
                case "RUN":
                    # For the python3 of the base image, the one that runs the tests.
                    command = self.moved(rest).replace("python3 -m", f"{sys.executable} -m")
                    subprocess.run(
                        ["sh", "-ec", command], cwd=self.directory, env=self.environment, check=True
                    )
                case _:
                    raise AssertionError(f"{instruction} is not played here")

    def moved(self, text: str) -> str:
        return text.replace("/opt/", f"{self.root}/opt/").replace("/src", f"{self.root}/src", 1)

    def copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / source.name if target.is_dir() else target)


def instructions(containerfile: Path, stage: str) -> list[tuple[str, str]]:
    text = containerfile.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    start = next(
        n for n, line in enumerate(lines) if line.startswith("FROM") and line.endswith(f" AS {stage}")
    )
    end = next((n for n in range(start + 1, len(lines)) if lines[n].startswith("FROM")), len(lines))
    return [(words[0], words[2]) for words in (line.partition(" ") for line in lines[start + 1 : end])]


def digest_of(directory: Path) -> str:
    """Of every file's path, mode and bytes."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else ""
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        total.update(f"{path.relative_to(directory)} {path.lstat().st_mode} {content}".encode() + data)
    return total.hexdigest()


def uncompiled(environment: Path, *packages: str) -> list[Path]:
    """Give the modules of these packages that each start would have to compile."""
    (site,) = environment.glob("lib/python3.*/site-packages")
    modules = [module for package in packages for module in (site / package).rglob("*.py")]
    assert modules
    return [one for one in modules if not list(one.parent.glob(f"__pycache__/{one.stem}.*.pyc"))]


@pytest.mark.slow
def test_the_python_image_holds_what_is_locked_and_comes_out_the_same_twice(tmp_path: Path) -> None:
    root = tmp_path / "root"
    digests = set()
    for _ in range(2):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        Stage(root).play(IMAGES / "makeway" / "Containerfile", "build")
        digests.add(digest_of(root / "opt" / "makeway"))

    prefix = root / "opt" / "makeway" / "bin"
    shown = subprocess.run(
        [prefix / "makeway", "planner", "--help"], capture_output=True, text=True, check=True
    )
    listed = subprocess.run(
        [
            prefix / "python",
            "-c",
            "import importlib.metadata as m; print(*(d.name for d in m.distributions()))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--leader-elect" in shown.stdout
    assert {"makeway", "numpy", "nats-py"} <= set(listed.stdout.split())
    assert not {"pytest", "mypy", "hypothesis", "scipy"} & set(listed.stdout.split())
    assert not uncompiled(prefix.parent, "makeway", "aiohttp", "numpy")
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah")
def test_the_schedulers_image_is_one_binary_for_nobody_in_particular(tmp_path: Path) -> None:
    context = tmp_path / "context"
    fill(context, SilentProgress())

    images = {build(tmp_path, context, name) for name in ("first", "second")}

    (image,) = images
    inspected = json.loads(buildah(tmp_path, "inspect", "--type", "image", image))
    assert inspected["OCIv1"]["config"]["User"] == "65532:65532"
    assert inspected["OCIv1"]["config"]["Entrypoint"] == ["/makeway-scheduler"]
    container = buildah(tmp_path, "from", image)
    root = Path(buildah(tmp_path, "mount", container))
    try:
        files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        version = ["chroot", "--userspec=65532:65532", str(root), "/makeway-scheduler", "--version"]
        said = subprocess.run(version, capture_output=True, text=True, check=True).stdout
    finally:
        buildah(tmp_path, "rm", container)
    assert files == {"LICENSE", "makeway-scheduler", "etc/ssl/certs/ca-certificates.crt"}
    assert said == f"Kubernetes {KUBERNETES_VERSION}\n"


def build(directory: Path, context: Path, name: str) -> str:
    """Build it; give the image's id."""
    file = IMAGES / "scheduler" / "Containerfile"
    options = ["--isolation", "chroot", "--timestamp", "0", "--quiet"]
    return buildah(directory, "build", *options, "-t", name, "-f", str(file), str(context)).splitlines()[-1]


def buildah(directory: Path, *arguments: str) -> str:
    store = [
        "--root",
        str(directory / "store"),
        "--runroot",
        str(directory / "run"),
        "--storage-driver",
        "vfs",
    ]
    command = ["buildah", *store, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
