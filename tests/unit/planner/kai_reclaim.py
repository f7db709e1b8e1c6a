"""Turn KAI-Scheduler's tables of reclaim tests, composite literals of Go, into cases as JSON.

    python tests/unit/planner/kai_reclaim.py actions/reclaim/reclaim_test.go … > kai_reclaim.json

Cases with quotas and whole GPUs alone are taken: no fractions, gangs, limits, departments or affinity.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PRIORITIES: Final = {
    "PriorityTrainNumber": 50,
    "PriorityInteractivePreemptibleNumber": 75,
    "PriorityBuildNumber": 100,
    "PriorityInferenceNumber": 125,
}
"""As in its pkg/scheduler/constants; from 100 on a pod is never preempted there."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|[\w.]+|[{}\[\]():,&*+-]')
_JOB = {"Name", "RequiredGPUsPerTask", "Priority", "QueueName", "Tasks"}
_TASK = {"NodeName", "State"}
_QUEUE = {"Name", "DeservedGPUs", "GPUOverQuotaWeight", "ParentQueue"}


class Literals:
    """Reads composite literals, types left out: mappings where elements have keys, else lists."""

    def __init__(self, text: str) -> None:
        self._tokens = [one for one in _TOKEN.findall(text) if not one.startswith("//")]
        self._at = 0

    def cases(self) -> Iterator[dict[str, Any]]:
        """Yield what follows each `test_utils.TestTopologyBasic{`."""
        for at, token in enumerate(self._tokens):
            if token == "test_utils.TestTopologyBasic" and self._tokens[at + 1] == "{":  # noqa: S105
                self._at = at + 1
                found = self._value()
                if isinstance(found, dict):
                    yield found

    def _value(self) -> Any:
        words: list[str] = []
        while self._tokens[self._at] not in "{},:":
            words.append(self._tokens[self._at])
            self._at += 1
        if self._tokens[self._at] != "{":
            return " ".join(words)
        return self._braces()

    def _braces(self) -> Any:
        self._at += 1
        items: list[Any] = []
        keyed: dict[str, Any] = {}
        while self._tokens[self._at] != "}":
            one = self._value()
            if self._tokens[self._at] == ":":
                self._at += 1
                keyed[str(one).strip('"')] = self._value()
            else:
                items.append(one)
            if self._tokens[self._at] == ",":
                self._at += 1
        self._at += 1
        return keyed or items


def case_of(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return a case of quotas and whole GPUs; None for one that asks for anything else."""
    jobs, queues, nodes = found.get("Jobs", []), found.get("Queues", []), found.get("Nodes", {})
    if "Departments" in found or "TaskExpectedResults" in found or not isinstance(nodes, dict):
        return None
    if any(not set(one) <= _JOB or len(one["Tasks"]) != 1 for one in jobs):
        return None
    if any(not set(one) <= _QUEUE or one.get("ParentQueue") for one in queues):
        return None
    tasks = [one["Tasks"][0] for one in jobs]
    numbers = [one.get("RequiredGPUsPerTask", "0") for one in jobs]
    numbers += [one.get("DeservedGPUs", "0") for one in queues]
    if any(not set(task) <= _TASK for task in tasks) or any(not one.isdigit() for one in numbers):
        return None
    if any(set(node) - {"GPUs"} for node in nodes.values()):
        return None
    expected = found.get("JobExpectedResults", {})
    mocks = found.get("Mocks", {}).get("CacheRequirements", {})
    return {
        "name": found["Name"].strip('"'),
        "nodes": {name: int(node.get("GPUs", "0")) for name, node in nodes.items()},
        "queues": {one["Name"].strip('"'): int(one.get("DeservedGPUs", "0")) for one in queues},
        "jobs": [
            {
                "name": job["Name"].strip('"'),
                "queue": job["QueueName"].strip('"'),
                "gpus": int(job.get("RequiredGPUsPerTask", "0")),
                "priority": _priority(job.get("Priority", "0")),
                "node": _node(job["Tasks"][0]),
            }
            for job in jobs
        ],
        "running": sorted(
            name for name, one in expected.items() if one.get("Status", "").endswith(("Running", "Pipelined"))
        ),
        "evictions": int(mocks.get("NumberOfCacheEvictions", "0")),
    }


def _node(task: dict[str, str]) -> str:
    """Return where a task runs; of one that is pending the tests may name the node where it is to run."""
    return "" if task.get("State", "").endswith("Pending") else task.get("NodeName", "").strip('"')


def _priority(text: str) -> int:
    name, *more = text.removeprefix("constants.").split()
    return PRIORITIES.get(name, 0) + int("".join(more) or 0)


def main() -> None:
    """Print the cases of some files, and how many there were."""
    found = [one for path in sys.argv[1:] for one in Literals(Path(path).read_text()).cases()]
    cases = [case for one in found if (case := case_of(one)) is not None]
    print(json.dumps({"all": len(found), "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
