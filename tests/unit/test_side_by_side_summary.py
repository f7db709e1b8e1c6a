"""What a run of kube-scheduler's own benchmark writes into docs/benchmarks.md."""

from bench.side_by_side.round import DEFAULT, MAKEWAY, Measured, Results, Tally
from bench.side_by_side.table import summary
from bench.side_by_side.usage import Usage


def measured(variant: str, post_filter_seconds: float) -> Measured:
    bound = Tally(created=4, bound=4, first=0.0, last=2.0)
    results = Results(
        planned=[(1.0, post_filter_seconds)],
        unplanned=None,
        groups=None,
        preemptors=bound,
        namespaces={},
        victims=12,
    )
    return Measured(variant, finished=True, seconds=9.0, results=results, used={"planner": Usage(1.5, 96)})


def test_a_line_has_both_variants_and_their_ratio() -> None:
    line = summary("PreemptionAsync/500", [measured(DEFAULT, 0.02), measured(MAKEWAY, 0.001)])

    assert line.startswith("| PreemptionAsync/500 | 1, ")
    assert "| 20, 1 (0.05) |" in line
    assert "| 4, 4 (1.00) | 2, 2 (1.00) | 3, 3 (1.00) |" in line
    assert line.endswith("| 1.5, -, - | 96, - |\n")
