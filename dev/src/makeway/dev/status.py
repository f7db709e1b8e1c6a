"""What runs of a named cluster, seen from outside its owner."""

from dataclasses import dataclass
from pathlib import Path

from makeway.dev.info import ClusterInfo
from makeway.dev.probes import http_ok, unverified
from makeway.dev.records import ProcessRecord, read_records


@dataclass(frozen=True)
class ProcessStatus:
    """One line of `makeway dev status`."""

    name: str
    state: str
    """`ready`, `running` (nothing to ask), `not ready`, `paused` or `ended`."""
    pid: int | None
    restarts: int
    detail: str
    """Why it is not ready."""


def components(info: ClusterInfo) -> list[ProcessStatus]:
    """Look at every process of the cluster, in the order they were started."""
    probes = {
        "scheduler": http_ok(f"{info.scheduler_url}/readyz", unverified()),
        "planner": http_ok(f"{info.planner_url}/readyz"),
        "evictor": http_ok(f"{info.evictor_url}/readyz"),
        "nats": http_ok(f"{info.nats_monitor_url}/healthz"),
    }

    def look(record: ProcessRecord) -> ProcessStatus:
        state = process_state(record.pid)
        detail = ""
        if state == "running" and record.name in probes:
            detail = probes[record.name]()
            state = "not ready" if detail else "ready"
        return ProcessStatus(record.name, state, record.pid, record.restarts, detail)

    return [look(record) for record in read_records(info.directory)]


def process_state(pid: int | None) -> str:
    """`running`, `paused` (SIGSTOP) or `ended`. Source: proc(5), the third field of /proc/<pid>/stat."""
    if pid is None:
        return "ended"
    try:
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    return {"T": "paused", "Z": "ended", "X": "ended"}.get(fields[0], "running")
