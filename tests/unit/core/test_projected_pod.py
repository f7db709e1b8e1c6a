"""What the scheduler sends of a pod: all that the planner reads, and nothing else.

The scheduler's plugin makes `projected.json` of `full.json`, and a test of its own holds it to that.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from makeway.core.k8s.objects import Pod, View
from makeway.core.policy import facts
from projected_pods import FULL, PROJECTED, read


def unset(view: View, path: str) -> Iterator[str]:
    """Return the fields that have their defaults, in a view and the first of each kind below it."""
    for field in msgspec.structs.fields(type(view)):
        value = getattr(view, field.name)
        where = f"{path}.{field.encode_name}"
        if value is None or value in ("", (), {}):
            yield where
        elif isinstance(value, View):
            yield from unset(value, where)
        elif isinstance(value, tuple) and isinstance(value[0], View):
            yield from unset(value[0], where)


def test_the_planner_reads_the_same_of_what_is_sent_as_of_the_whole_pod() -> None:
    assert read(PROJECTED) == read(FULL)


def test_the_whole_pod_has_every_field_that_anything_reads() -> None:
    # An init container alone has a restart policy that means something; of a pod of a group no plan is asked.
    assert set(unset(read(FULL), "pod")) == {"pod.spec.containers.restartPolicy", "pod.spec.schedulingGroup"}
    assert (msgspec.json.decode(FULL, type=Pod).metadata.annotations or {}).keys() >= facts._READ


def test_what_nothing_reads_is_not_sent() -> None:
    sent = json.loads(PROJECTED)

    assert b"not-read" in FULL
    assert b"not-read" not in PROJECTED
    assert {"env", "args", "command", "envFrom"}.isdisjoint(sent["spec"]["containers"][0])
    assert "managedFields" not in sent["metadata"]


def test_the_walk_over_a_view_finds_a_field_that_is_not_set() -> None:
    whole: dict[str, Any] = json.loads(FULL)
    del whole["spec"]["initContainers"][0]["ports"][0]["hostIP"]

    assert "pod.spec.initContainers.ports.hostIP" in set(unset(read(json.dumps(whole).encode()), "pod"))
