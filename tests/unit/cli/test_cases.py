"""Situations that people have met, each a folder of tests/cases: the files given, and the answer.

`expected.yaml` has in `says` what the case is about, and the answer: `pods` and `groups` by name, `quotas`
by queue, `mentions`, words that are said beside it; or `lint`, a warning of `makeway policy lint`. `at`: when
the cluster was dumped, where that matters.

Of a pod or group: `result`, `node` (or a list of which it is one), `victims`, `victims_one_of`,
`victims_at_most`, `stays`, `violations` of budgets, `mentions`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from makeway.cli.main import app

CASES = Path(__file__).parents[2] / "cases"
NAMES = sorted(path.name for path in CASES.iterdir() if path.is_dir())

Answer = dict[str, Any]


def run(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def simulated(case: Path, at: str) -> tuple[Answer, str]:
    """Ask as a person would, with the files that there are."""
    options = {"-f": "pods.yaml", "--policy": "policy.yaml", "--queues": "queues.yaml"}
    given = [
        part for option, name in options.items() if (case / name).exists() for part in (option, case / name)
    ]
    moment = ["--at", at] if at else []
    output, notes = run(
        "simulate", "--cluster", str(case / "cluster.yaml"), *map(str, given), *moment, "-o", "json"
    )
    return json.loads(output), notes


def names(victims: Iterable[Answer]) -> list[str]:
    return sorted(victim["name"] for victim in victims)


def check(answer: Answer, expected: Answer) -> None:
    """Hold the answer about one pod or group to what is expected of it."""
    victims = names(answer["victims"])
    for key, value in expected.items():
        match key:
            case "result":
                assert answer["result"] == value
            case "node":
                assert answer["node"] in (value if isinstance(value, list) else [value])
            case "victims":
                assert victims == sorted(value)
            case "victims_one_of":
                assert victims in [sorted(one) for one in value]
            case "victims_at_most":
                assert len(victims) <= value
            case "stays":
                assert not set(victims) & set(value)
            case "violations":
                assert answer["pdbViolations"] == value
            case "mentions":
                assert value in json.dumps([answer["warnings"], answer["diagnosis"]])
            case _:
                pytest.fail(f"expected.yaml: {key} is not known")


@pytest.mark.parametrize("name", NAMES)
def test_a_situation_that_people_have_met_is_answered_rightly(name: str) -> None:
    case = CASES / name
    expected = yaml.safe_load((case / "expected.yaml").read_text())
    assert expected.pop("says")
    if "lint" in expected:
        output, _ = run("policy", "lint", str(case / "policy.yaml"))
        assert expected.pop("lint") in output
    else:
        report, notes = simulated(case, expected.pop("at", ""))
        for kind in ("pods", "groups"):
            answers = {one["name"]: one for one in report[kind]}
            for one, wanted in expected.pop(kind, {}).items():
                check(answers[one], wanted)
        if "quotas" in expected:
            taken = {one["queue"]: names(one["victims"]) for one in report["quotas"] if one["victims"]}
            assert taken == expected.pop("quotas")
        assert expected.pop("mentions", "") in notes
    assert not expected, "expected.yaml says more than is looked at"
