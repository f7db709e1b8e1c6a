"""Build what is missing from the cache, once, however many processes ask for it at the same time.

`python -m makeway.dev.build` builds what the integration tests need.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from makeway.dev.binaries import ALL, GO_ENVIRONMENT, OF_TESTS, Binary, cache_key
from makeway.dev.downloads import Mirror, NotFetchedError, named_mirror
from makeway.dev.errors import DevError
from makeway.dev.lock import hold
from makeway.dev.paths import CONTROL_PLANE_MODULE, cache_directory
from makeway.dev.progress import ConsoleProgress, Progress

_TAIL_LINES = 25
_TIMES = "seconds.json"
"""How long the last build of each binary took, in the cache."""
_COLLECTING = {"GOGC": "off"}
"""The compiler takes a fifth less CPU, and 1.1 GiB at the most; the linker takes more memory anyway."""
_UNUSED_SECONDS = 3 * 24 * 3600
"""An older build of a binary is removed when nothing has started it for so long."""


def ensure(binaries: Iterable[Binary], progress: Progress) -> Mapping[str, Path]:
    """Return the path of every binary by its name, fetching or building what the cache lacks.

    What that is, and how long it takes by this machine's last times, is said first.

    Raises:
        DevError: Go is missing or too old, or a build failed, and the text has the tail of the compiler's
            output; or MAKEWAY_DOWNLOADS is no mirror's address.
    """
    root, wanted = cache_directory() / "bin", list(binaries)
    if missing := _missing(root, wanted):
        root.mkdir(parents=True, exist_ok=True)
        mirror = reached_mirror(progress)
        building = to_build(missing, mirror)
        fetching = [binary for binary in missing if binary not in building]
        if fetching:
            progress.note(f"{_named(fetching)} to fetch")
        if building:
            progress.note(f"{_named(building)} to build, once; about {_left(root, building)}")
        for binary in fetching:
            _ensure_one(root, binary, progress, mirror)
        for number, binary in enumerate(building):
            rest = f" ({number + 1} of {len(building)}, about {_left(root, building[number:])} left)"
            _ensure_one(root, binary, progress, None, rest)
    return {binary.name: _place(root, binary) for binary in wanted}


def to_build(binaries: Iterable[Binary], mirror: Mirror | None) -> list[Binary]:
    """Return those that neither the cache nor the mirror has."""
    missing = _missing(cache_directory() / "bin", binaries)
    return [one for one in missing if mirror is None or not mirror.has(one, cache_key(one))]


def _missing(root: Path, binaries: Iterable[Binary]) -> list[Binary]:
    return [binary for binary in binaries if not _use(_place(root, binary))]


def usual_seconds(root: Path, binary: Binary) -> float:
    """Return how long the last build of a binary took here, else what it takes on two cores.

    Where the others took longer here than they usually do, so will this one.
    """
    times = _times(root)
    timed = [one for one in ALL if one.name in times]
    usual = sum(one.usual_seconds for one in timed)
    slower = max(sum(times[one.name] for one in timed) / usual, 1.0) if usual else 1.0
    return times.get(binary.name, binary.usual_seconds * slower)


def _times(root: Path) -> dict[str, float]:
    try:
        found = json.loads((root / _TIMES).read_text())
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _named(binaries: Sequence[Binary]) -> str:
    programs = "program" if len(binaries) == 1 else "programs"
    return f"{len(binaries)} {programs} ({', '.join(binary.name for binary in binaries)})"


def _left(root: Path, binaries: Iterable[Binary]) -> str:
    seconds = sum(usual_seconds(root, binary) for binary in binaries)
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def reached_mirror(progress: Progress) -> Mirror | None:
    """Return the mirror that the environment names, where its index can be had; why not is said in one line.

    Raises:
        DevError: what the environment names is no mirror's address.
    """
    try:
        return named_mirror()
    except NotFetchedError as error:
        progress.note(f"nothing is fetched, all is built: {error}")
        return None


def _ensure_one(
    root: Path, binary: Binary, progress: Progress, mirror: Mirror | None, rest: str = ""
) -> None:
    with hold(
        root / f".{binary.name}.lock", lambda: progress.note(f"{binary.name}: another process builds it")
    ):
        while not _use(place := _place(root, binary)):
            if mirror is not None and _fetch_into(place, binary, progress, mirror):
                continue
            check_go()
            _build_into(place, binary, progress, rest)
        _prune(root, binary.name, keep=place.parent)


def _fetch_into(place: Path, binary: Binary, progress: Progress, mirror: Mirror) -> bool:
    """Report whether the binary was fetched; why not is said in one line."""
    root = place.parent.parent
    with tempfile.TemporaryDirectory(prefix=f".{binary.name}-", dir=root) as temporary:
        why, target = "", Path(temporary) / binary.name
        with progress.step(f"fetching {binary.name}"):
            try:
                mirror.fetch(binary, place.parent.name.removeprefix(f"{binary.name}-"), target)
            except NotFetchedError as error:
                why = str(error)
        if why:
            progress.note(f"{binary.name} is built, since it cannot be fetched: {why}")
            return False
        place.parent.mkdir(exist_ok=True)
        target.replace(place)
    return True


def _place(root: Path, binary: Binary) -> Path:
    """Where the binary belongs, as its sources are now."""
    return root / f"{binary.name}-{cache_key(binary)}" / binary.name


def _build_into(place: Path, binary: Binary, progress: Progress, rest: str) -> None:
    """Build into a directory beside; the result counts only if the sources did not change meanwhile."""
    root = place.parent.parent
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix=f".{binary.name}-", dir=root) as temporary,
        progress.step(f"building {binary.name}{rest}", usual_seconds(root, binary)),
    ):
        built = _build(binary, Path(temporary))
        _note_time(root, binary, time.monotonic() - began)
        if _place(root, binary) == place:
            place.parent.mkdir(exist_ok=True)
            built.replace(place)


def _note_time(root: Path, binary: Binary, seconds: float) -> None:
    """Keep how long a build took; two that end at once may lose one of their times."""
    new = root / f".{_TIMES}.{os.getpid()}"
    new.write_text(json.dumps({**_times(root), binary.name: round(seconds, 1)}))
    new.replace(root / _TIMES)


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
    environment = {**_COLLECTING, **os.environ, **GO_ENVIRONMENT}
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
