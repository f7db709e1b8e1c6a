"""What a process says of itself in its metrics."""

import re
from collections.abc import Mapping

import aiohttp

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Samples:
    """One reading of a /metrics page."""

    def __init__(self, text: str) -> None:
        self._samples: list[tuple[str, Mapping[str, str], float]] = []
        for line in text.splitlines():
            if found := _SAMPLE.match(line):
                labels = dict(_LABEL.findall(found[2] or ""))
                self._samples.append((found[1], labels, float(found[3])))

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 where there is none."""
        return sum(
            value
            for sample, found, value in self._samples
            if sample == name and all(found.get(label) == wanted for label, wanted in labels.items())
        )

    def above(self, histogram: str, seconds: float, **labels: str) -> float:
        """How many observations of a histogram lie above a bound, which must be one of its buckets."""
        bounds = {float(found["le"]) for sample, found, _ in self._samples if sample == f"{histogram}_bucket"}
        bound = min((b for b in bounds if abs(b - seconds) < 1e-9), default=None)
        assert bound is not None or not bounds, f"{histogram} has buckets {sorted(bounds)}"
        within = sum(
            value
            for sample, found, value in self._samples
            if sample == f"{histogram}_bucket"
            and float(found["le"]) == bound
            and all(found.get(label) == wanted for label, wanted in labels.items())
        )
        return self.total(f"{histogram}_count", **labels) - within


async def scrape(url: str) -> Samples:
    """Read a process's metrics; the scheduler's certificate is its cluster's own and not looked at."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics", ssl=False) as answer:
        assert answer.status == 200, await answer.text()
        return Samples(await answer.text())
