"""The chart as it is pushed: Helm's archive of it, with a mark that its images are published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from makeway.dev.errors import DevError
from makeway.dev.release.archives import Member, packed

UNPUBLISHED: Final = 'makeway.dev/published: "false"'
PUBLISHED: Final = 'makeway.dev/published: "true"'
"""What the chart's templates read to know whether the images of its appVersion can be pulled."""


def chart_archive(chart: Path, epoch: int) -> bytes:
    """Return what `helm package` would make, with the mark set and every time the same.

    Raises:
        DevError: the mark is not in Chart.yaml.
    """
    files = {path.relative_to(chart).as_posix(): path.read_bytes() for path in _files(chart)}
    return packed({f"{chart.name}/{name}": Member(content) for name, content in marked(files).items()}, epoch)


def marked(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the chart's files with Chart.yaml saying that the images are published. Raises DevError."""
    text = files["Chart.yaml"].decode()
    if UNPUBLISHED not in text:
        raise DevError(f"Chart.yaml has no line {UNPUBLISHED}; the chart's templates ask for it")
    return {**files, "Chart.yaml": text.replace(UNPUBLISHED, PUBLISHED).encode()}


def _files(chart: Path) -> Iterable[Path]:
    """Every file that .helmignore leaves in, itself among those left out."""
    ignored = [line for line in (chart / ".helmignore").read_text().split() if not line.startswith("#")]
    for path in sorted(chart.rglob("*")):
        parts = path.relative_to(chart).parts
        dropped = any(fnmatch(part, pattern.rstrip("/")) for part in parts for pattern in ignored)
        if path.is_file() and not dropped and path.name != ".helmignore":
            yield path
