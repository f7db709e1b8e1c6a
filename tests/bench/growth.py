"""How costs grow with the cluster, drawn from what `make bench` measured: `make bench BENCH=plots`.

    .venv/bin/pytest tests/bench/bench_*.py --benchmark-json=plans.json
    cd plugin && go test ./plugin -run '^$' -bench PostFilter > postfilter.txt
    PYTHONPATH=tests .venv/bin/python -m bench.growth plans.json postfilter.txt docs/growth.svg

Both axes are logarithmic, so that a cost in proportion to the nodes rises as steeply as the dotted line.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

Points = dict[float, float]
"""Milliseconds by number of nodes."""

NAMES = {
    "test_first_plan": "first plan of a class",
    "test_one_dirty_node": "plan after one node has changed",
    "test_repeated_plan": "repeated plan",
    "test_request": "a whole request",
}
BRIDGE = "the plugin's part of a preemption"
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c4554d")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 820, 420, 60, 20, 50, 290
LINE_HEIGHT = 15
TICKS_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def of_plans(measured: Mapping[str, object]) -> dict[str, Points]:
    """Read pytest-benchmark's JSON: medians by benchmark and by its parameter `<nodes> nodes`."""
    found: dict[str, Points] = {}
    benchmarks = measured["benchmarks"]
    assert isinstance(benchmarks, list)
    for one in benchmarks:
        name = NAMES.get(str(one["name"]).partition("[")[0])
        nodes = re.search(r"\[(\d+) nodes\]", str(one["name"]))
        if name is not None and nodes is not None:
            found.setdefault(name, {})[float(nodes[1])] = float(one["stats"]["median"]) * 1000
    return found


def of_postfilter(text: str) -> Points:
    """Read the lines `BenchmarkPostFilter/nodes=<nodes>-2 … <number> ns/op`."""
    lines = re.finditer(r"^BenchmarkPostFilter/nodes=(\d+)\S*\s+\d+\s+([\d.]+) ns/op", text, re.MULTILINE)
    return {float(line[1]): float(line[2]) / 1e6 for line in lines}


def drawn(series: Mapping[str, Points]) -> str:
    """Draw the series into one SVG. Raises ValueError where there is nothing to draw."""
    nodes = sorted({node for points in series.values() for node in points})
    times = [value for points in series.values() for value in points.values()]
    ticks = [tick for tick in TICKS_MS if min(times) / 2 <= tick <= max(times) * 2]
    low, high = min(*times, *ticks), max(*times, *ticks)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / nodes[0]) / math.log(nodes[-1] / nodes[0])

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - math.log(value / low) / math.log(high / low))

    def line(points: Iterable[tuple[float, float]], style: str) -> str:
        at = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        return f'<polyline fill="none" {style} points="{at}"/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    ]
    for tick in ticks:
        parts.append(line([(nodes[0], tick), (nodes[-1], tick)], 'stroke="#e3e2e0"'))
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g} ms</text>')
    below = f'y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
    parts += [f'<text x="{x(node):.1f}" {below}>{node:,.0f}</text>' for node in nodes]
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}">nodes</text>')
    reach = min(nodes[-1], nodes[0] * high / low)
    dotted = 'stroke="#9b9a97" stroke-dasharray="2 4"'
    parts.append(line([(nodes[0], low), (reach, low * reach / nodes[0])], dotted))
    labels: list[tuple[float, float, str, str]] = []
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        ordered = sorted(points.items())
        parts.append(line(ordered, f'stroke="{colour}" stroke-width="2"'))
        last, value = ordered[-1]
        labels.append((y(value) + 4, x(last) + 8, colour, f"{name}, {value:.2g} ms"))
    lowest = 0.0
    for height, left, colour, text in sorted(labels):
        lowest = max(height, lowest + LINE_HEIGHT)
        parts.append(f'<text x="{left:.1f}" y="{lowest:.1f}" fill="{colour}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Read two files, write the third."""
    plans, postfilter, picture = map(Path, sys.argv[1:])
    series = of_plans(json.loads(plans.read_text()))
    if points := of_postfilter(postfilter.read_text()):
        series[BRIDGE] = points
    picture.write_text(drawn(series))


if __name__ == "__main__":
    main()
