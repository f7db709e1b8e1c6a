"""The in-flight state's transition table, as the plugin exports it."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

PATH = Path(__file__).parents[2] / "plugin/orders/testdata/transitions.json"


class Row(msgspec.Struct, frozen=True):
    """A row; `to` is empty where the phase stays."""

    from_: tuple[str, ...] = msgspec.field(name="from")
    event: str
    to: str = ""
    effects: tuple[str, ...] = ()


class Exported(msgspec.Struct, frozen=True):
    """The file."""

    counts: dict[str, int]
    seconds: dict[str, float]
    transitions: tuple[Row, ...]


@dataclass
class Table:
    """The transitions by phase and event, and the plugin's times."""

    counts: dict[str, int]
    seconds: dict[str, float]
    steps: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def step(self, phase: str, event: str) -> tuple[str, tuple[str, ...]] | None:
        """What an event in a phase leads to, with its effects; None where it changes nothing."""
        return self.steps.get((phase, event))


def load() -> Table:
    """Read the table that the Go side keeps."""
    exported = msgspec.json.decode(PATH.read_bytes(), type=Exported)
    table = Table(exported.counts, exported.seconds)
    for row in exported.transitions:
        for phase in row.from_:
            table.steps[phase, row.event] = (row.to or phase, row.effects)
    return table
