"""Turn Kueue's tables of preemption tests, builders of Go, into cases as JSON.

    python tests/unit/planner/kueue_reclaim.py preemption_test.go … > kueue_reclaim.json

Cases of one flavor are taken whose limits queues have as well: nominal quotas are guarantees, those of a
cohort with what is below it, and what may be borrowed above them a max. All quota of a tree is one node. A
target that reclaims from `LowerPriority` preempts by priority alone, with reclaim off; from `Any` with it on.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from makeway.core.k8s.quantity import milli_value, parse, value

RESOURCES: Final = {"CPU": ("cpu", milli_value), "Memory": ("memory", value)}
"""Resources of the tables: their names here, and what amounts are counted in."""

_OBJECT: Final = re.compile(r"utiltestingapi\.Make(?:ClusterQueue|Cohort|Workload)\(|baseIncomingWl\.Clone\(")


@dataclass
class Node:
    """A cohort or a queue of a tree, and the quota of its own."""

    parent: str = ""
    quota: dict[str, int] = field(default_factory=dict)
    borrows: dict[str, int] = field(default_factory=dict)
    leaf: bool = False
    text: str = ""


def tables(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the queues that cases share and the fields of each case, of the first table of a file."""
    shared, _, rest = text.partition("cases := map[string]struct {")
    rest = rest.partition("for name, tc := range cases")[0]
    for block in re.split(r'^\t\t"[^\n]*": \{$', rest, flags=re.MULTILINE)[1:]:
        parts = re.split(r"^\t\t\t(\w+):", block, flags=re.MULTILINE)
        fields = dict(zip(parts[1::2], parts[2::2], strict=True))
        yield shared.partition("defaultClusterQueues := ")[2], fields


def case_of(shared: str, fields: dict[str, str]) -> dict[str, Any] | str:
    """Return a case of one tree of queues, or what it has that queues do not."""
    queues = fields.get("clusterQueues", "")
    nodes = tree_of(shared if "defaultClusterQueues" in queues else queues, fields.get("cohorts", ""))
    target = _named(fields["targetCQ"])
    line = _line(nodes, target)
    inside = {name for name in nodes if _line(nodes, name)[-1] == line[-1]}
    admitted = [
        {"name": _named(one), **pod}
        for one in _objects(fields.get("admitted", ""))
        if (pod := workload(one))["queue"] in inside
    ]
    asks = workload(_objects(fields["incoming"])[0])
    policy = re.sub(r"\s+", " ", nodes[target].text)
    text = "".join((*(nodes[one].text for one in inside), fields["incoming"], fields["assignment"]))
    lower = any(one["queue"] == target and one["priority"] < asks["priority"] for one in admitted)
    others = any(one["queue"] != target for one in admitted)
    for what, is_so in {
        "several flavors": len(set(re.findall(r'MakeFlavorQuotas\("(\w+)"\)', text))) > 1,
        "several pod sets": "MakePodSet(" in text,
        "lending limits": "lending" in text,
        "borrowWithinCohort": "BorrowWithinCohort:" in policy,
        "times of admission": "now.Add(" in fields.get("admitted", ""),
        "pods that are being evicted": "Condition(" in fields.get("admitted", ""),
        "equal priority within a queue": "WithinClusterQueue: kueue.PreemptionPolicyLowerOrNewer" in policy,
        "no preemption within a queue": lower and "WithinClusterQueue: kueue.PreemptionPolicyNever" in policy,
        "no reclaim": others and "ReclaimWithinCohort" not in policy,
    }.items():
        if is_so:
            return what
    whole = {name: _subtree(nodes, name) for name in inside}
    return {
        "nodes": {"n1": whole[line[-1]]},
        "queues": {
            ".".join(reversed(_line(nodes, name))): {
                "guaranteed": whole[name],
                "max": {one: whole[name].get(one, 0) + more for one, more in nodes[name].borrows.items()},
            }
            for name in sorted(inside)
        },
        "reclaim": "ReclaimWithinCohort: kueue.PreemptionPolicyAny" in policy,
        "pods": [{**one, "queue": ".".join(reversed(_line(nodes, one["queue"])))} for one in admitted],
        "asks": {**asks, "queue": ".".join(reversed(line))},
        "victims": sorted(
            _named(one) for one in _objects(fields.get("wantWorkloads", "")) if "WorkloadPreempted" in one
        ),
    }


def tree_of(queues: str, cohorts: str) -> dict[str, Node]:
    """Return cohorts and queues by name; cohorts that only queues name are there too."""
    nodes: dict[str, Node] = {}
    for text, leaf in ((cohorts, False), (queues, True)):
        for one in _objects(text):
            above = re.search(r'\b(?:Cohort|Parent)\("([\w-]+)"\)', one)
            node = nodes[_named(one)] = Node(above[1] if above else "", leaf=leaf, text=one)
            for resource, amounts in re.findall(r"\bResource\(corev1\.Resource(\w+), ([^)]*)\)", one):
                nominal, borrowed, *lent = [*re.findall(r'"(\w*)"', amounts), ""][:3]
                name, counted = RESOURCES[resource]
                node.quota[name] = counted(parse(nominal))
                if borrowed:
                    node.borrows[name] = counted(parse(borrowed))
                if any(lent):
                    node.text += " lending"
    for node in [*nodes.values()]:
        if node.parent:
            nodes.setdefault(node.parent, Node())
    return nodes


def workload(text: str) -> dict[str, Any]:
    """Return a pod: its queue, its priority and what it requests."""
    priority = re.search(r"Priority\((-?\d+)\)", text)
    queue = re.search(r'(?:MakeAdmission|SimpleReserveQuota)\("([\w-]+)"', text)
    requests = {}
    for resource, amount in re.findall(r'\bRequest\(corev1\.Resource(\w+), "(\w+)"\)', text):
        name, counted = RESOURCES[resource]
        requests[name] = counted(parse(amount))
    return {
        "queue": queue[1] if queue else "",
        "priority": int(priority[1]) if priority else 0,
        "requests": requests,
    }


def _subtree(nodes: dict[str, Node], name: str) -> dict[str, int]:
    """Return the quota of a cohort or queue with all below it."""
    found = Counter(nodes[name].quota)
    for below, node in nodes.items():
        if node.parent == name:
            found.update(_subtree(nodes, below))
    return dict(found)


def _line(nodes: dict[str, Node], name: str) -> list[str]:
    line = [name]
    while nodes[line[-1]].parent:
        line.append(nodes[line[-1]].parent)
    return line


def _objects(text: str) -> list[str]:
    return _OBJECT.split(text)[1:]


def _named(text: str) -> str:
    found = re.search(r'"([\w-]+)"', text)
    return found[1] if found else ""


def main() -> None:
    """Print the cases of some files, and how many others there were by what they have."""
    cases, others = list[dict[str, Any]](), Counter[str]()
    for path in map(Path, sys.argv[1:]):
        for number, (shared, fields) in enumerate(tables(path.read_text()), start=1):
            found = case_of(shared, fields)
            if isinstance(found, str):
                others[found] += 1
            else:
                cases.append({"name": f"{path.stem} {number}", **found})
    lines = ",\n".join(map(json.dumps, cases))
    print(f'{{"not taken": {json.dumps(dict(others.most_common()))},\n"cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
