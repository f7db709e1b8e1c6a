"""Build what is missing from the cache, once, however many processes ask for it at the same time.

`python -m makeway.dev.build` builds what the integration tests need.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from makeway.dev.binaries import GO_ENVIRONMENT, OF_TESTS, Binary, cache_key
from makeway.dev.errors import DevError
from makeway.dev.lock import hold
from makeway.dev.paths import CONTROL_PLANE_MODULE, cache_directory
from makeway.dev.progress import ConsoleProgress, Progress

_TAIL_LINES = 25
_UNUSED_SECONDS = 3 * 24 * 3600
"""An older build of a binary is removed when nothing has started it for so long."""


def ensure(binaries: Iterable[Binary], progress: Progress) -> Mapping[str, Path]:
    """Return the path of every binary by its name, building what the cache lacks.

    Raises:
        DevError: Go is missing or too old, or a build failed; the text has the tail of the compiler's output.
    """
    return {binary.name: _ensure_one(binary, progress) for binary in binaries}


def _ensure_one(binary: Binary, progress: Progress) -> Path:
    root = cache_directory() / "bin"
    place = _place(root, binary)
    if _use(place):
        return place
    root.mkdir(parents=True, exist_ok=True)
    with hold(
        root / f".{binary.name}.lock", lambda: progress.note(f"{binary.name}: another process builds it")
    ):
        check_go()
        while not _use(place := _place(root, binary)):
            _build_into(place, binary, progress)
        _prune(root, binary.name, keep=place.parent)
    return place


def _place(root: Path, binary: Binary) -> Path:
    """Where the binary belongs, as its sources are now."""
    return root / f"{binary.name}-{cache_key(binary)}" / binary.name


def _build_into(place: Path, binary: Binary, progress: Progress) -> None:
    """Build into a directory beside; the result counts only if the sources did not change meanwhile."""
    root = place.parent.parent
    with (
        tempfile.TemporaryDirectory(prefix=f".{binary.name}-", dir=root) as temporary,
        progress.step(f"building {binary.name}", binary.usual_seconds),
    ):
        built = _build(binary, Path(temporary))
        if _place(root, binary) == place:
            place.parent.mkdir(exist_ok=True)
            built.replace(place)


def _use(place: Path) -> bool:
    """Whether the binary is there; if so its time is set, so that it counts as in use."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def _build(binary: Binary, directory: Path) -> Path:
    """Run the Go command; the binary lies in `directory` afterwards."""
    target = directory / binary.name
    flags = [f"-ldflags={binary.ldflags}", *([f"-tags={binary.tags}"] if binary.tags else [])]
    flags += [f"-modfile={binary.modfile}"] if binary.modfile else []
    environment = {**os.environ, **GO_ENVIRONMENT}
    if binary.architecture:
        environment |= {"GOOS": "linux", "GOARCH": binary.architecture}
    if binary.module is not None:
        command = ["go", "build", *flags, "-o", str(target), binary.package]
        where = binary.module
    else:
        command = ["go", "install", *flags, f"{binary.package}@{binary.version}"]
        environment["GOBIN"] = str(directory)
        where = directory
    result = subprocess.run(
        command,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode == 0 and not target.exists() and len(made := list(directory.iterdir())) == 1:
        # `go install` names a program by its package, which may be `cmd/server`.
        made[0].rename(target)
    if result.returncode != 0 or not target.exists():
        tail = "\n".join(result.stdout.splitlines()[-_TAIL_LINES:])
        raise DevError(
            f"{binary.name} could not be built (exit code {result.returncode}).\n"
            f"Command: {' '.join(command)}\nIn: {where}\nLast lines of its output:\n{tail}\n"
            "If a download failed, check GOPROXY (`go env GOPROXY`) and run the same again: "
            "what is built already is kept."
        )
    return target


def check_go() -> None:
    """Raise DevError unless a Go at least as new as go.mod asks for is on PATH."""
    wanted = _wanted_go()
    found = shutil.which("go")
    if found is None:
        raise DevError(
            f"Go {wanted} or newer is needed to build the control plane, and no `go` is on PATH. {_HELP}"
        )
    version = subprocess.run(
        [found, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOWORK": "off"},
    ).stdout.strip()
    if _numbers(version) < _numbers(wanted):
        raise DevError(
            f"Go {wanted} or newer is needed; {found} is {version or 'of no known version'}. {_HELP}"
        )


_HELP = "Install it from https://go.dev/dl/ and put its bin directory on PATH."


def _wanted_go() -> str:
    text = (CONTROL_PLANE_MODULE / "go.mod").read_text()
    match = re.search(r"^go (\S+)$", text, re.MULTILINE)
    return match.group(1) if match else "1.26.0"


def _numbers(version: str) -> tuple[int, ...]:
    """`go1.26.8` or `1.26.0` as (1, 26, 8) or (1, 26, 0); anything else as ()."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _prune(root: Path, name: str, keep: Path) -> None:
    """Remove builds of the same binary that nothing has used for days."""
    for directory in root.glob(f"{name}-*"):
        binary = directory / name
        if directory != keep and binary.exists() and time.time() - binary.stat().st_mtime > _UNUSED_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    ensure(OF_TESTS, ConsoleProgress())
