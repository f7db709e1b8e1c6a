"""Build what is missing from the cache, once, however many processes ask for it at the same time.

`python -m makeway.dev.build` builds what the integration tests need.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from makeway.dev.binaries import ALL, CHART_TOOLS, GO_ENVIRONMENT, OF_TESTS, Binary, cache_key
from makeway.dev.downloads import Mirror, NotFetchedError, named_mirror
from makeway.dev.errors import DevError
from makeway.dev.lock import hold
from makeway.dev.paths import CONTROL_PLANE_MODULE, PLUGIN_MODULE, cache_directory
from makeway.dev.progress import ConsoleProgress, Progress

_TAIL_LINES = 25
_TIMES = "seconds.json"
"""How long the last build of each binary took, in the cache."""
_COLLECTING = {"GOGC": "off"}
"""A compiler takes a fifth less CPU, and 1.1 GiB at the most; the linker takes more memory anyway."""
_WORKSPACE = (CONTROL_PLANE_MODULE, PLUGIN_MODULE)
"""Modules whose dependencies have the same versions, so that one Go command builds programs of both."""
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
            _fetch(root, binary, progress, mirror)
        _build_missing(root, missing, progress)
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
    timed = [one for one in ALL if _timed(one) in times]
    usual = sum(one.usual_seconds for one in timed)
    slower = max(sum(times[_timed(one)] for one in timed) / usual, 1.0) if usual else 1.0
    return times.get(_timed(binary), binary.usual_seconds * slower)


def _timed(binary: Binary) -> str:
    """The name of a build's time in `_TIMES`."""
    return " ".join(filter(None, (binary.package, binary.tags)))


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


def built_together(binaries: Iterable[Binary]) -> list[list[Binary]]:
    """Return groups of what one Go command builds, in the order of their first members.

    Built one after the other, each waits at its end on one core for its longest package and for the linker.
    """
    groups: dict[object, list[Binary]] = {}
    for binary in binaries:
        where = _WORKSPACE if binary.module in _WORKSPACE and not binary.modfile else binary.module
        alike = (where, binary.modfile, binary.tags, binary.architecture)
        groups.setdefault(binary if where is None else alike, []).append(binary)
    return list(groups.values())


def _fetch(root: Path, binary: Binary, progress: Progress, mirror: Mirror | None) -> None:
    """Fetch a binary unless it is there; why it cannot be had is said in one line."""
    with (
        _locked(root, [binary], progress),
        tempfile.TemporaryDirectory(prefix=".fetched-", dir=root) as temporary,
    ):
        place, target = _place(root, binary), Path(temporary) / binary.name
        if mirror is None or _use(place):
            return
        why = ""
        with progress.step(f"fetching {binary.name}"):
            try:
                mirror.fetch(binary, cache_key(binary), target)
            except NotFetchedError as error:
                why = str(error)
        if why:
            progress.note(f"{binary.name} is built, since it cannot be fetched: {why}")
        else:
            place.parent.mkdir(exist_ok=True)
            target.replace(place)
            _prune(root, binary.name, keep=place.parent)


@contextmanager
def _locked(root: Path, binaries: Iterable[Binary], progress: Progress) -> Iterator[None]:
    """Hold the locks of what is fetched or built; another process that does so is named."""
    with ExitStack() as locks:
        for name in sorted({binary.name for binary in binaries}):
            waits = partial(progress.note, f"{name}: another process builds it")
            locks.enter_context(hold(root / f".{name}.lock", waits))
        yield


def _build_missing(root: Path, wanted: Sequence[Binary], progress: Progress) -> None:
    """Build what is missing; what has a version of its own shares no code, and is built beside the rest.

    A result counts only if its sources did not change meanwhile.
    """
    with _locked(root, wanted, progress):
        while missing := _missing(root, wanted):
            check_go()
            began, usual = time.monotonic(), {_timed(one): usual_seconds(root, one) for one in missing}
            names = ", ".join(binary.name for binary in missing)
            with progress.step(f"building {names}", sum(usual.values())), ThreadPoolExecutor() as pool:
                beside = [
                    [one for one in missing if (one.module is None) == alone] for alone in (False, True)
                ]
                for _ in pool.map(partial(_build_groups, root), map(built_together, beside)):
                    pass
            _note_times(root, usual, time.monotonic() - began)
            for binary in missing:
                _prune(root, binary.name, keep=_place(root, binary).parent)


def _build_groups(root: Path, groups: Iterable[Sequence[Binary]]) -> None:
    for group in groups:
        places = [_place(root, binary) for binary in group]
        with tempfile.TemporaryDirectory(prefix=f".{group[0].name}-", dir=root) as temporary:
            _build(group, Path(temporary))
            for binary, place in zip(group, places, strict=True):
                if _place(root, binary) == place:
                    place.parent.mkdir(exist_ok=True)
                    (Path(temporary) / _file_of(binary)).replace(place)


def _place(root: Path, binary: Binary) -> Path:
    """Where the binary belongs, as its sources are now."""
    return root / f"{binary.name}-{cache_key(binary)}" / binary.name


def _note_times(root: Path, usual: Mapping[str, float], seconds: float) -> None:
    """Keep how long a build took, shared out as usual; two that end at once may lose one of their times."""
    share = seconds / sum(usual.values())
    new = root / f".{_TIMES}.{os.getpid()}"
    new.write_text(json.dumps(_times(root) | {name: round(one * share, 1) for name, one in usual.items()}))
    new.replace(root / _TIMES)


def _use(place: Path) -> bool:
    """Whether the binary is there; if so its time is set, so that it counts as in use."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def _build(group: Sequence[Binary], directory: Path) -> None:
    """Run the Go command; the programs lie in `directory` afterwards, as `_file_of` names them."""
    first = group[0]
    flags = [f"-ldflags={binary.package}={binary.ldflags}" for binary in group]
    flags += [f"-tags={first.tags}"] if first.tags else []
    flags += [f"-modfile={first.modfile}"] if first.modfile else []
    environment = {**_COLLECTING, **os.environ, **GO_ENVIRONMENT}
    if first.architecture:
        environment |= {"GOOS": "linux", "GOARCH": first.architecture}
    packages = [binary.package for binary in group]
    modules = {binary.module for binary in group if binary.module is not None}
    # A package that is named by its place is looked for from there.
    where = next((one.module for one in group if one.package.startswith(".")), first.module) or directory
    if modules:
        command = ["go", "build", *flags, "-o", f"{directory}/", *packages]
    else:
        command = ["go", "install", *flags, f"{first.package}@{first.version}"]
        environment["GOBIN"] = str(directory)
    if len(modules) > 1:
        workspace = directory / "go.work"
        used = "".join(f"use {json.dumps(str(module))}\n" for module in sorted(modules))
        workspace.write_text(f"go {_wanted_go()}\n{used}")
        environment["GOWORK"] = str(workspace)
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
    if result.returncode != 0 or not all((directory / _file_of(binary)).exists() for binary in group):
        tail = "\n".join(result.stdout.splitlines()[-_TAIL_LINES:])
        names = ", ".join(binary.name for binary in group)
        raise DevError(
            f"{names} could not be built (exit code {result.returncode}).\n"
            f"Command: {' '.join(command)}\nIn: {where}\nLast lines of its output:\n{tail}\n"
            "If a download failed, check GOPROXY (`go env GOPROXY`) and run the same again: "
            "what is built already is kept."
        )


def _file_of(binary: Binary) -> str:
    """How Go names the program of a package: by its path's last element that is no major version."""
    *_, before, last = binary.package.split("/")
    return before if re.fullmatch(r"v\d+", last) else last


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
    ensure(CHART_TOOLS if sys.argv[1:] == ["chart"] else OF_TESTS, ConsoleProgress())
