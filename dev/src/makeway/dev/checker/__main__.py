"""Check a running cluster by its directory, and print what was found; exit code 1 where that is anything."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from makeway.dev.audit_log import AuditLog
from makeway.dev.checker.check import check
from makeway.dev.checker.findings import Findings
from makeway.dev.checker.history import RecordedHistory
from makeway.dev.checker.read import connect, read_requests, read_streams
from makeway.dev.info import read_info


async def check_directory(
    directory: Path,
    *,
    prefix: str = "makeway",
    namespace: str = "",
    fallback: bool = True,
    simple_preemptor: bool = False,
) -> Findings:
    """Judge everything a running cluster has recorded until now, or what happened in one namespace.

    Raises:
        FileNotFoundError: there is no cluster in the directory.
    """
    info = read_info(directory)
    if info is None:
        raise FileNotFoundError(f"no cluster in {directory}")
    connection = await connect(info.nats_url)
    try:
        streams = await read_streams(connection.jetstream(timeout=5), prefix)
    finally:
        await connection.close()
    now = datetime.now(UTC)
    requests = read_requests(AuditLog(info.audit_log, whole=True), namespace, streams)
    history = RecordedHistory(
        requests, streams.within(namespace), fallback=fallback, simple_preemptor=simple_preemptor
    )
    return check(history, now)


def main() -> int:
    """Read the command line, check, print."""
    parser = argparse.ArgumentParser(prog="python -m makeway.dev.checker", description=__doc__)
    parser.add_argument("directory", type=Path, help="the cluster's directory, with cluster.json in it")
    parser.add_argument("--subject-prefix", default="makeway")
    parser.add_argument("--namespace", default="", help="only what concerns pods of this namespace")
    parser.add_argument("--no-fallback", action="store_true", help="the scheduler may not delete pods either")
    parser.add_argument("--simple-preemptor", action="store_true", help="a policy turned it on")
    options = parser.parse_args()
    report = asyncio.run(
        check_directory(
            options.directory,
            prefix=options.subject_prefix,
            namespace=options.namespace,
            fallback=not options.no_fallback,
            simple_preemptor=options.simple_preemptor,
        )
    )
    print(report)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
