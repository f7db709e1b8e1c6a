"""Programs come from a mirror only as its index states them; what cannot be had is built, and it is said."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from makeway.dev.binaries import ETCD, KUBE_SCHEDULER, MAKEWAY_SCHEDULER, Binary, cache_key, needed
from makeway.dev.build import ensure
from makeway.dev.demo.scenarios import EXTERNAL, MAIN, SCENARIOS, played_first
from makeway.dev.downloads import INDEX, VARIABLE, NotFetchedError, file_name, fill, named_mirror
from served import served_in_threads
from unit.dev.test_build import TOOL, go

pytestmark = pytest.mark.tools

__all__ = ["go"]

OTHER = Binary("other", "example.com/other", 1, version="v1")


class Told:
    """Notes what is reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def step(self, what: str, usual_seconds: float = 0) -> Iterator[None]:
        self.lines.append(what)
        yield

    def note(self, text: str) -> None:
        self.lines.append(text)


def served(directory: Path) -> AbstractContextManager[str]:
    """Serve the files of a directory."""

    def read(path: str, body: bytes) -> tuple[int, bytes]:
        file = directory / path.removeprefix("/")
        return (200, file.read_bytes()) if file.is_file() else (404, b"")

    return served_in_threads(read)


@pytest.fixture
def mirror(tmp_path: Path) -> tuple[Path, str]:
    """The directory of a mirror that has the tool, as a machine built it, and the digest of its index."""
    put(tmp_path / "elsewhere", TOOL)
    directory = tmp_path / "mirror"
    return directory, fill(directory, [TOOL, OTHER], tmp_path / "elsewhere")


def packed(directory: Path) -> Path:
    return directory / file_name(TOOL, cache_key(TOOL))


@pytest.mark.usefixtures("go")
def test_what_a_mirror_has_is_fetched_and_nothing_is_built(
    go: Path, mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    with served(mirror[0]) as url:
        monkeypatch.setenv(VARIABLE, f"{url}#sha256={mirror[1]}")
        program = ensure([TOOL], told)["tool"]

    assert program.read_bytes() == b"built elsewhere" * 1000
    assert program.stat().st_mode & 0o111
    assert not (go / "runs").exists()
    assert told.lines == ["1 program (tool) to fetch", "fetching tool"]


def wrong_byte(file: Path) -> str:
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    return "another digest than its index states"


def not_there(file: Path) -> str:
    file.unlink()
    return "404"


@pytest.mark.parametrize("spoil", [wrong_byte, not_there])
def test_what_is_not_as_the_index_states_it_is_built_and_said_in_one_line(
    go: Path, mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, spoil: object
) -> None:
    assert callable(spoil)
    why, told = spoil(packed(mirror[0])), Told()
    with served(mirror[0]) as url:
        monkeypatch.setenv(VARIABLE, f"{url}#sha256={mirror[1]}")
        program = ensure([TOOL], told)["tool"]

    assert program.read_text() == "built tool"
    (line,) = [one for one in told.lines if why in one]
    assert line.startswith("tool is built, since it cannot be fetched: ")
    assert len((go / "runs").read_text().splitlines()) == 1
    assert [path.name for path in program.parent.iterdir()] == ["tool"]


@pytest.mark.parametrize(
    ("lacks", "cached", "first"),
    [
        ((), (), MAIN),
        ((MAKEWAY_SCHEDULER,), (), EXTERNAL),
        ((MAKEWAY_SCHEDULER,), (MAKEWAY_SCHEDULER,), MAIN),
        ((MAKEWAY_SCHEDULER, KUBE_SCHEDULER), (), MAIN),
        ((MAKEWAY_SCHEDULER, KUBE_SCHEDULER), (KUBE_SCHEDULER,), EXTERNAL),
        ((MAKEWAY_SCHEDULER, ETCD), (), MAIN),
    ],
)
def test_from_a_mirror_without_the_plugins_scheduler_the_external_form_is_played_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lacks: tuple[Binary, ...],
    cached: tuple[Binary, ...],
    first: str,
) -> None:
    every = {one for name in (MAIN, EXTERNAL) for one in needed(SCENARIOS[name].options)}
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "mirror"
    for one in every - set(lacks):
        put(elsewhere, one)
    for one in cached:
        put(tmp_path / "cache" / "bin", one)
    monkeypatch.setenv("MAKEWAY_CACHE", str(tmp_path / "cache"))
    digest = fill(directory, every, elsewhere)

    with served(directory) as url:
        monkeypatch.setenv(VARIABLE, f"{url}#sha256={digest}")
        assert played_first() == first
    assert played_first() == MAIN  # the mirror cannot be reached any more


def put(root: Path, binary: Binary) -> None:
    built = root / f"{binary.name}-{cache_key(binary)}" / binary.name
    built.parent.mkdir(parents=True)
    built.write_bytes(b"built elsewhere" * 1000)


def test_an_index_that_is_not_the_named_one_is_not_used(mirror: tuple[Path, str]) -> None:
    with (mirror[0] / INDEX).open("a") as index:
        index.write("more\n")
    with served(mirror[0]) as url, pytest.raises(NotFetchedError, match="another digest"):
        named_mirror({VARIABLE: f"{url}#sha256={mirror[1]}"})


DIGEST = "#sha256=" + "0" * 64


@pytest.mark.parametrize(
    "url", ["http://[::1]:1/programs", "http://user:word@127.0.0.1:1", "http://127.0.0.1:1"]
)
def test_a_mirror_that_cannot_be_reached_is_told_in_one_line_and_all_is_built(
    go: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(VARIABLE, url + DIGEST)
    told = Told()

    assert ensure([TOOL], told)["tool"].read_text() == "built tool"
    assert len((go / "runs").read_text().splitlines()) == 1
    assert len([line for line in told.lines if line.startswith("nothing is fetched, all is built: ")]) == 1
