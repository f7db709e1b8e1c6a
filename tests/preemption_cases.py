"""The DP cases of docs/conformance.md that resources decide, as values: for the planner, and on a cluster.

Nodes hold 500 milli-CPU and 500 MiB.
"""

from dataclasses import dataclass, field

S, M, L, XL = 100, 200, 300, 500


@dataclass(frozen=True)
class Case:
    """Which pods stand on which node, who asks, and each candidate's victims, the best candidate first.

    A filler is (name, priority class, size, start in seconds).
    """

    nodes: dict[str, list[tuple[str, str, int, int]]]
    priority: str
    size: int
    candidates: dict[str, set[str]] = field(default_factory=dict)

    @property
    def nominated(self) -> str:
        """The node that wins."""
        return next(iter(self.candidates), "")


def pair(first: str, second: str, size: int, starts: tuple[int, int]) -> list[tuple[str, str, int, int]]:
    return [("a", first, size, starts[0]), ("b", second, size, starts[1])]


HALF = 250

CASES = {
    "DP-1 one pod of lower priority on each node": Case(
        {"n1": [("p1", "mid", L, 1)], "n2": [("p2", "mid", L, 1)]}, "high", L, {"n1": {"p1"}, "n2": {"p2"}}
    ),
    "DP-2 all have higher priority": Case({"n1": [("a", "mid", L, 1)], "n2": [("b", "mid", L, 1)]}, "low", L),
    "DP-2 all have equal priority": Case({"n1": [("a", "mid", L, 1)]}, "mid", L),
    "DP-3 the small one that need not go stays": Case(
        {"n1": [("low", "low", S, 1), ("mid", "mid", L, 1)]}, "high", L, {"n1": {"mid"}}
    ),
    "DP-4 the more important are reprieved, one node is out of reach": Case(
        {
            "n1": [("a", "mid", S, 1), ("b", "low", S, 1), ("c", "mid", M, 1), ("d", "high", S, 1)],
            "n2": [("e", "high", L, 1)],
        },
        "high",
        L,
        {"n1": {"b", "c"}},
    ),
    "DP-5 of two equals the newer goes": Case(
        {"n1": [("a", "low", S, 5), ("b", "low", S, 4), ("c", "mid", M, 3), ("d", "high", S, 2)]},
        "high",
        L,
        {"n1": {"a", "c"}},
    ),
    "DP-10 the lowest highest priority wins": Case(
        {
            "n1": pair("mid", "mid", HALF, (1, 1)),
            "n2": pair("mid", "low", HALF, (1, 1)),
            "n3": pair("low", "low", HALF, (1, 1)),
        },
        "high",
        XL,
        {"n3": {"a", "b"}, "n2": {"a", "b"}, "n1": {"a", "b"}},
    ),
    "DP-11 the lowest sum of priorities wins": Case(
        {
            "n1": [("a", "mid", M, 1), ("b", "mid", L, 1)],
            "n2": [("a", "mid", L, 1), ("b", "low", M, 1)],
            "n3": [("a", "mid", M, 1), ("b", "mid", M, 1)],
        },
        "high",
        XL,
        {"n2": {"a", "b"}, "n1": {"a", "b"}, "n3": {"a", "b"}},
    ),
    "DP-12 a few pods of negative priority do not outweigh one more pod": Case(
        {
            "n1": [("a", "mid", S, 1), ("b", "neg", S, 1), ("c", "mid", S, 1), ("d", "neg", S, 1)],
            "n2": [("a", "mid", L, 1), ("b", "neg", M, 1)],
            "n3": [("a", "mid", M, 1), ("b", "neg", S, 1), ("c", "low", S, 1)],
        },
        "high",
        XL,
        {"n2": {"a", "b"}, "n3": {"a", "b", "c"}, "n1": {"a", "b", "c", "d"}},
    ),
    "DP-13 the latest start wins": Case(
        {
            "n1": pair("mid", "mid", M, (2, 2)),
            "n2": pair("mid", "mid", M, (3, 3)),
            "n3": pair("mid", "mid", M, (1, 1)),
        },
        "high",
        XL,
        {"n2": {"a", "b"}, "n1": {"a", "b"}, "n3": {"a", "b"}},
    ),
    "DP-13 the latest of the earliest starts wins": Case(
        {
            "n1": pair("mid", "mid", M, (4, 2)),
            "n2": pair("mid", "mid", M, (5, 1)),
            "n3": pair("mid", "mid", M, (3, 6)),
        },
        "high",
        XL,
        {"n3": {"a", "b"}, "n1": {"a", "b"}, "n2": {"a", "b"}},
    ),
    "DP-18 two equals: the lower name wins": Case(
        {"n2": [("a", "mid", L, 1)], "n1": [("a", "mid", L, 1)]}, "high", L, {"n1": {"a"}, "n2": {"a"}}
    ),
}
