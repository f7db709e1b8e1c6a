#!/usr/bin/env python3
"""`kubectl makeway` as krew installs it: the first call makes an environment, every call runs in it.

It stands in the plugin's archive as `kubectl-makeway`, beside the wheel and the requirements, and imports the
standard library alone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

NEEDED = (3, 11)


def main() -> None:
    """Make the environment of this version where it is not there yet, and become the command in it."""
    if sys.version_info < NEEDED:
        sys.exit(f"makeway: Python {'.'.join(map(str, NEEDED))} or newer is needed; python3 is {sys.version}")
    here = Path(__file__).resolve().parent
    (wheel,) = here.glob("makeway-*.whl")
    version = wheel.name.split("-")[1]
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    place = Path(data) / "makeway" / version
    if not (place / "bin" / "kubectl-makeway").exists():
        install(here, wheel, place)
    command = str(place / "bin" / "kubectl-makeway")
    os.execv(command, [command, *sys.argv[1:]])  # noqa: S606 - it is meant to be replaced


def install(here: Path, wheel: Path, place: Path) -> None:
    """Install into a directory beside, and put a link to it in place: two at once do no harm."""
    place.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    sys.stderr.write(f"makeway: installing its packages below {place.parent}, once\n")
    try:
        venv.create(directory, with_pip=True)
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
        pip.append("--disable-pip-version-check")
        for what in (["--require-hashes", "-r", str(here / "requirements.txt")], ["--no-deps", str(wheel)]):
            subprocess.run([*pip, *what], check=True)
        link = directory / "link"
        link.symlink_to(directory)
        link.replace(place)
    except (subprocess.CalledProcessError, OSError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        sys.exit(f"makeway: its packages could not be installed: {error}")


if __name__ == "__main__":
    main()
