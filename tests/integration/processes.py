"""What runs on this machine."""

from pathlib import Path


def processes_of(directory: Path) -> list[str]:
    """Command lines of the processes that name something in a cluster's directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{directory}/" in line:
            found.append(line)
    return found
