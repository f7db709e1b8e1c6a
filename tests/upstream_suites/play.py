"""One test of a suite in a process of its own, and the services that its API servers ask for."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from makeway.dev.errors import DevError
from upstream_suites.cases import Case, Outcome, cases
from upstream_suites.services import Services

_POLL_SECONDS: Final = 0.02
_MINUTES: Final = 90


@dataclass(frozen=True, slots=True)
class Programs:
    """What is run. `module_cache`: Go's, where the API server finds the certificates of its tests."""

    suite: Path
    etcd: Path
    nats_server: Path
    module_cache: Path


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a process. `attempts`: calls of MakeWay by how they ended."""

    cases: tuple[Case, ...]
    attempts: str


def tests(programs: Programs) -> list[str]:
    """Return the names of the suite's tests."""
    command = [str(programs.suite), "-test.list=."]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, env=_environment(programs))
    return [line for line in listed.stdout.splitlines() if line.startswith("Test")]


def play(programs: Programs, pattern: str, directory: Path) -> Played:
    """Run what matches `pattern`, as `-test.run` takes it; logs lie in `directory` afterwards.

    A process that ends badly though all of its cases ended well, by goroutines that it leaves behind, is a
    case by the name of TestMain that fails.
    """
    if directory.exists():
        shutil.rmtree(directory)  # of an earlier run
    directory.mkdir(parents=True)
    with (directory / "output.log").open("wb") as output, (directory / "errors.log").open("wb") as errors:
        child = subprocess.Popen(
            [str(programs.suite), "-test.v", f"-test.run={pattern}", f"-test.timeout={_MINUTES}m"],
            cwd=directory,
            env=_environment(programs, directory),
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            _serve(child, programs.nats_server, directory)
        except BaseException:
            # Its etcd, too, which would outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            raise
    found = cases((directory / "output.log").read_text(errors="replace").splitlines())
    if child.returncode != 0 and not any(case.outcome is not Outcome.PASS for case in found):
        found.append(Case("TestMain", Outcome.FAIL))
    return Played(tuple(found), _attempts(directory / "attempts.json"))


def _serve(child: subprocess.Popen[bytes], nats_server: Path, directory: Path) -> None:
    """Start and stop services as API servers ask for them, until the process ends.

    One API server at a time has services: a test that starts another one is done with the one before.
    """
    number, services = 0, None
    try:
        while child.poll() is None:
            following, current = directory / str(number + 1), directory / str(number)
            if (following / "kubeconfig").exists():
                _stop(services, current)
                number += 1
                _tell(f"  {(following / 'test').read_text()}")
                services = _start(nats_server, following)
            elif (current / "end").exists() and services is not None:
                _stop(services, current)
                services = None
            else:
                _answer_late_ends(directory, number)
                time.sleep(_POLL_SECONDS)
    finally:
        _stop(services, directory / str(number))


def _start(nats_server: Path, directory: Path) -> Services | None:
    """Start the services of an API server; None where one does not start, which the test will say, too."""
    try:
        services = Services(nats_server, directory)
    except DevError as error:
        print(f"error: {error}", file=sys.stderr)
        return None
    new = directory / "nats-url.new"
    new.write_text(services.nats_url)
    new.rename(directory / "nats-url")
    return services


def _stop(services: Services | None, directory: Path) -> None:
    if services is not None:
        services.stop()
        (directory / "ended").touch()


def _answer_late_ends(directory: Path, number: int) -> None:
    """Answer API servers that end after others have been started."""
    for ending in _ending(directory, number):
        (ending / "ended").touch()


def _ending(directory: Path, number: int) -> Iterator[Path]:
    for one in range(1, number):
        if (directory / str(one) / "end").exists() and not (directory / str(one) / "ended").exists():
            yield directory / str(one)


def _attempts(written: Path) -> str:
    """Return the counts that a test process has written, in words."""
    if not written.exists():
        return "none"
    counts = msgspec.json.decode(written.read_bytes(), type=dict[str, dict[str, float]])
    words = [
        f"{name.removesuffix('_total')} {result} {count:.0f}"
        for name, results in counts.items()
        for result, count in results.items()
        if count
    ]
    return ", ".join(words) or "none"


def _environment(programs: Programs, directory: Path | None = None) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{programs.etcd.parent}{os.pathsep}{os.environ['PATH']}",
        # Built with -trimpath, the API server looks for its test certificates by these, as under bazel.
        "TEST_SRCDIR": str(programs.module_cache),
        "TEST_WORKSPACE": ".",
        "MAKEWAY_SUITES_DIRECTORY": str(directory or ""),
        # An etcd on its usual port is not the suites': they start their own.
        "KUBE_INTEGRATION_ETCD_URL": "http://127.0.0.1:1",
    }


def _tell(text: str) -> None:
    print(text, flush=True)
