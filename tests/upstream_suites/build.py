"""Compile a suite against the packages that stand in for upstream's utilities."""

import json
import os
import subprocess
from pathlib import Path

from makeway.dev.binaries import GO_ENVIRONMENT
from makeway.dev.progress import ConsoleProgress
from upstream_suites.suites import MODULE, PACKAGES, WAITING, Suite, sources, with_patience, with_stand_ins


def build(suite: Suite, directory: Path) -> Path:
    """Return the suite's program, which is linked anew in `directory`.

    The compiler is told by an overlay where the files are: nothing of upstream's is copied into the project.

    Raises:
        subprocess.CalledProcessError: it does not compile.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for path in sources(suite):
        changed = directory / path.name
        changed.write_text(with_stand_ins(path.read_text()))
        files[str(PACKAGES / suite.name / path.name)] = str(changed)
    patient = directory / WAITING.name
    patient.write_text(with_patience(WAITING.read_text()))
    files[str(WAITING)] = str(patient)
    overlay = directory / "overlay.json"
    overlay.write_text(json.dumps({"Replace": files}))
    program = directory / f"{suite.name}.test"
    command = ["go", "test", "-c", "-vet=off", f"-overlay={overlay}", "-ldflags=-s -w", f"-o={program}"]
    with ConsoleProgress().step(f"building the suite {suite.name}", 400):
        subprocess.run(
            [*command, f"./{(PACKAGES / suite.name).relative_to(MODULE)}"],
            cwd=MODULE,
            env={**os.environ, **GO_ENVIRONMENT},
            check=True,
        )
    return program
