"""What the owner of a cluster writes down about its processes, for `makeway dev status` elsewhere."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

_RECORDS = "processes.json"


@dataclass(frozen=True)
class ProcessRecord:
    """What is written down of a process, whenever one of the set was started."""

    name: str
    pid: int | None
    restarts: int


def write_records(directory: Path, records: Iterable[ProcessRecord]) -> None:
    """Write records into a cluster's directory, whole or not at all."""
    temporary = directory / f".{_RECORDS}"
    temporary.write_text(json.dumps([asdict(record) for record in records], indent=2))
    temporary.replace(directory / _RECORDS)


def read_records(directory: Path) -> list[ProcessRecord]:
    """Read what was last written; nothing where there is no cluster."""
    try:
        return [ProcessRecord(**values) for values in json.loads((directory / _RECORDS).read_text())]
    except FileNotFoundError:
        return []
