"""Programs come from a mirror only as its index states them; what cannot be had is built, and it is said."""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from makeway.dev import downloads
from makeway.dev.binaries import ETCD, KUBE_SCHEDULER, MAKEWAY_SCHEDULER, Binary, cache_key, needed
from makeway.dev.build import ensure, usual_seconds
from makeway.dev.demo.scenarios import EXTERNAL, MAIN, SCENARIOS, played_first
from makeway.dev.downloads import INDEX, VARIABLE, Mirror, NotFetchedError, file_name, fill, named_mirror
from makeway.dev.errors import DevError
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


def half_a_file(file: Path) -> str:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return "another digest than its index states"


def not_there(file: Path) -> str:
    file.unlink()
    return "404"


@pytest.mark.parametrize("spoil", [wrong_byte, half_a_file, not_there])
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


@pytest.mark.usefixtures("go")
def test_a_program_that_the_mirror_does_not_have_is_built(
    mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    digest, told = fill(empty, [OTHER], tmp_path / "elsewhere"), Told()
    with served(empty) as url:
        monkeypatch.setenv(VARIABLE, f"{url}#sha256={digest}")
        assert ensure([TOOL], told)["tool"].read_text() == "built tool"

    assert told.lines == ["1 program (tool) to build, once; about 1 s", "building tool"]


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


def test_without_a_mirror_the_main_scenario_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    assert played_first() == MAIN


def put(root: Path, binary: Binary) -> None:
    built = root / f"{binary.name}-{cache_key(binary)}" / binary.name
    built.parent.mkdir(parents=True)
    built.write_bytes(b"built elsewhere" * 1000)


@pytest.mark.parametrize(
    ("answer", "hangs", "why"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nhalf", False, "4 of 100 bytes"),
        (b"HTTP/1.0 200 OK\r\n\r\nlonger", False, "more than is waited for"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: some\r\n\r\n4", False, "some"),
        (b"HTTP/1.0 200 OK\r\n\r\nplain", False, "not packed by gzip"),
        (b"", True, "timed out"),
    ],
    ids=["breaks off", "without an end", "without a length", "as the index states it, not packed", "hangs"],
)
def test_an_answer_that_is_no_program_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, hangs: bool, why: str
) -> None:
    monkeypatch.setattr(downloads, "_PROGRAM_BYTES", 5)
    digest = hashlib.sha256(b"plain").hexdigest()
    with answering(answer, hangs=hangs) as url:
        some = Mirror(url, {file_name(TOOL, "key"): digest}, silence_seconds=0.2 if hangs else 1)
        with pytest.raises(NotFetchedError, match=why):
            some.fetch(TOOL, "key", tmp_path / "tool")


@contextmanager
def answering(answer: bytes, *, hangs: bool = False) -> Iterator[str]:
    """Serve one answer to whatever is asked; one that hangs sends nothing for a second."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)
            if hangs:
                time.sleep(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join()
        listener.close()


def test_an_index_that_is_not_the_named_one_is_not_used(mirror: tuple[Path, str]) -> None:
    with (mirror[0] / INDEX).open("a") as index:
        index.write("more\n")
    with served(mirror[0]) as url, pytest.raises(NotFetchedError, match="another digest"):
        named_mirror({VARIABLE: f"{url}#sha256={mirror[1]}"})


DIGEST = "#sha256=" + "0" * 64


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://127.0.0.1:1/", "no sha256= with 64 digits"),
        ("http://127.0.0.1:1/#sha256=00", "no sha256= with 64 digits"),
        (f"http://127.0.0.1:1/{DIGEST.upper()}", "no sha256= with 64 digits"),
        (f"file:///etc{DIGEST}", "not http(s)://HOST/DIRECTORY"),
        (f"here{DIGEST}", "not http(s)://HOST/DIRECTORY"),
        (f"http:///programs{DIGEST}", "not http(s)://HOST/DIRECTORY"),
        (f"http://::1:8000/programs{DIGEST}", "not http(s)://HOST/DIRECTORY"),
        (f"http://fe80::1/programs{DIGEST}", "Port could not be cast"),
        (f"http://[::1/programs{DIGEST}", "Invalid IPv6 URL"),
        (f"http://mirror:80000/programs{DIGEST}", "Port out of range"),
    ],
)
def test_what_is_no_mirrors_address_ends_the_start_with_what_it_should_be(
    go: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(DevError, match=r"MAKEWAY_DOWNLOADS is .*It is URL#sha256=DIGEST") as raised:
        ensure([TOOL], Told())

    assert why in str(raised.value)
    assert not (go / "runs").exists()


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


def test_without_a_mirror_none_is_asked() -> None:
    assert named_mirror({}) is None


@pytest.mark.usefixtures("go")
def test_how_many_are_built_and_for_how_long_is_said_first_by_the_last_times_here(tmp_path: Path) -> None:
    long, told = Binary("tool", "example.com/tool", 400, version="v2"), Told()

    ensure([long], told)

    assert told.lines == ["1 program (tool) to build, once; about 7 min", "building tool"]
    assert 0 < usual_seconds(tmp_path / "cache" / "bin", long) < 60


def test_a_slower_machine_is_believed_of_the_programs_that_it_has_not_built_yet(tmp_path: Path) -> None:
    slow = {MAKEWAY_SCHEDULER.package: 1.5 * MAKEWAY_SCHEDULER.usual_seconds, "no-longer-built": 9000.0}
    (tmp_path / "seconds.json").write_text(json.dumps(slow))

    assert usual_seconds(tmp_path, MAKEWAY_SCHEDULER) == slow[MAKEWAY_SCHEDULER.package]
    assert usual_seconds(tmp_path, ETCD) == 1.5 * ETCD.usual_seconds

    # A build of which most was in Go's cache says nothing of those that are not.
    (tmp_path / "seconds.json").write_text(json.dumps({MAKEWAY_SCHEDULER.package: 20.0}))
    assert usual_seconds(tmp_path, ETCD) == ETCD.usual_seconds
