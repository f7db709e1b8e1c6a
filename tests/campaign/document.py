"""The numbers of runs, in docs/reliability.md.

    PYTHONPATH=tests .venv/bin/python -m campaign.document run-1.json run-2.json

writes those of several runs, as `--json` of `campaign.run` has kept them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- campaign: written by make campaign -->", "<!-- campaign: end -->"


def write(summaries: list[Mapping[str, Any]], document: Path = DOCUMENT) -> None:
    """Put the numbers of some runs between the document's marks; a row for each run.

    Raises:
        ValueError: the document has no such marks.
    """
    text = document.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{document} has no line {BEGIN!r}, or no line {END!r} after it")
    document.write_text(f"{before}{BEGIN}\n\n{table(summaries)}\n\n{END}{after}")


def table(summaries: list[Mapping[str, Any]]) -> str:
    """The runs as a table of Markdown; what was injected is summed up by the first word of its name."""
    lines = ["| Run | Injected | Load | Seen | Found |", "|---|---|---|---|---|"]
    for one in summaries:
        servers = "one nats-server" if one["nats_servers"] == 1 else f"{one['nats_servers']} nats-servers"
        run = f"seed {one['seed']}: {one['minutes']:g} minutes, {one['nodes']} nodes, {servers}"
        run += f", signatures {one['signatures']}" if "signatures" in one else ""
        spoilt = {"requests of the API server spoilt": one["requests_spoilt"]}
        found = f"{one['violations']} violations, {one['not_settled']} not settled"
        injected = Counter[str]()
        for name, number in {**one["injected"], **one["forged"]}.items():
            injected["not stored" if name.startswith("not ") else name.split()[0]] += number
        cells = (run, _list({**injected, **spoilt}), _list(one["load"]), _list(one["seen"]), found)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "nothing"


if __name__ == "__main__":
    write([json.loads(Path(name).read_text()) for name in sys.argv[1:]])
