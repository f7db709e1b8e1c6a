"""The comparison itself must be able to fail, and to make its failures small."""

from typing import Any

import msgspec
import pytest

from differential.case import decode
from differential.compare import compare
from differential.shrink import shrink


def pod(uid: str, node: str = "", *, priority: int = 0, cpu: str = "1") -> dict[str, Any]:
    requests = {"resources": {"requests": {"cpu": cpu}}, "name": "main"}
    spec = {"priority": priority, "schedulerName": "default-scheduler", "containers": [requests]}
    placed = {"nodeName": node} if node else {}
    return {
        "metadata": {"namespace": "default", "name": uid, "uid": uid, "labels": {"app": uid}},
        "spec": {**spec, **placed},
        "status": {},
    }


def cluster() -> dict[str, Any]:
    """Two nodes of two cores; on `a` one pod has to go, on `b` another of higher priority."""
    preemptor = pod("P", priority=100)
    allocatable = {"cpu": "2", "pods": "10"}
    return {
        "seed": 1,
        "constraints": ["resources", "priorities"],
        "namespaces": [],
        "nodes": [{"metadata": {"name": name}, "status": {"allocatable": allocatable}} for name in "ab"],
        "pods": [
            pod("low", "a"),
            pod("kept", "a", priority=10),
            pod("mid", "b", priority=50),
            pod("top", "b", priority=90),
            preemptor,
        ],
        "preemptor": preemptor,
        "answer": {
            "potential": ["a", "b"],
            "candidates": {"a": {"uids": ["low"]}, "b": {"uids": ["mid"]}},
            "chosen": "a",
            "sampled": "a",
        },
    }


def differences(case: dict[str, Any]) -> set[str]:
    return {one.what for one in compare(decode(msgspec.json.encode(case))).disagreements}


def test_equal_answers_agree() -> None:
    assert differences(cluster()) == set()


@pytest.mark.parametrize(
    ("candidates", "chosen", "expected"),
    [
        ({"a": {"uids": ["low"]}}, "a", {"a candidate here alone"}),
        ({"a": {"uids": ["kept"]}, "b": {"uids": ["mid"]}}, "a", {"other victims", "choice"}),
        (
            {"a": {"uids": ["low"], "violations": 1}, "b": {"uids": ["mid"]}},
            "b",
            {"other violations", "choice"},
        ),
        ({"a": {"uids": ["low"]}, "b": {"uids": ["mid"]}}, "b", {"choice"}),
        ({"a": {"uids": ["low", "P"]}, "b": {"uids": ["mid"]}}, "b", {"a victim is not removable", "choice"}),
    ],
)
def test_another_answer_is_found_out(candidates: dict[str, Any], chosen: str, expected: set[str]) -> None:
    case = cluster()
    case["answer"].update(candidates=candidates, chosen=chosen)

    assert differences(case) == expected


def test_without_a_column_the_planner_may_have_more_candidates_but_not_fewer() -> None:
    case = cluster()
    case["constraints"].append("a kind without a column")
    case["answer"]["candidates"] = {"a": {"uids": ["low", "kept"]}}
    assert differences(case) == set()

    case["nodes"][0]["status"]["allocatable"] = {"cpu": "0", "pods": "10"}
    assert differences(case) == {"not a candidate here"}


def test_a_disagreement_is_shrunk_to_what_it_needs() -> None:
    case = cluster()

    def differs(smaller: dict[str, Any]) -> bool:
        return any(one["metadata"]["name"] == "mid" for one in smaller["pods"])

    small = shrink(case, differs)

    assert [node["metadata"]["name"] for node in small["nodes"]] == ["b"]
    assert [one["metadata"]["name"] for one in small["pods"]] == ["mid", "P"]
    assert all("labels" not in one["metadata"] for one in small["pods"])
    assert case == cluster()
