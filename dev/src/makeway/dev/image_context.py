"""The build context of the scheduler's image: `python -m makeway.dev.image_context DIRECTORY`.

The binary is built as every other here, without a container: the same source makes the same bytes, so the
image needs no builder's image to be pulled and pinned.
"""

import shutil
import sys
from pathlib import Path

import certifi

from makeway.dev.binaries import MAKEWAY_SCHEDULER, Binary
from makeway.dev.build import ensure
from makeway.dev.paths import CHECKOUT
from makeway.dev.progress import ConsoleProgress, Progress


def fill(directory: Path, progress: Progress, scheduler: Binary = MAKEWAY_SCHEDULER) -> None:
    """Put binary, certificates and licence there.

    Raises:
        DevError: the binary could not be built.
    """
    directory.mkdir(parents=True, exist_ok=True)
    binary = ensure((scheduler,), progress)[scheduler.name]
    for source, name, mode in (
        (binary, "makeway-scheduler", 0o555),
        (Path(certifi.where()), "cacert.pem", 0o444),
        (CHECKOUT / "LICENSE", "LICENSE", 0o444),
    ):
        target = directory / name
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
        target.chmod(mode)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), ConsoleProgress())
