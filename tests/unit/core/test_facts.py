"""What rules learn of a pod."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Metadata, Pod
from makeway.core.policy.facts import MOST_OWNERS, NOT_SCHEDULED, PodFacts, facts_of, opts_out

SCHEDULED = "2026-01-01T12:00:00Z"


def facts(metadata: dict[str, Any] | None = None, **parts: Any) -> PodFacts:
    return facts_of(msgspec.convert({"metadata": metadata or {}, "spec": {}, **parts}, Pod))


def test_a_bare_pod_has_nothing_but_defaults() -> None:
    assert facts() == PodFacts()


def test_name_priority_class_and_times_are_taken_as_they_are() -> None:
    found = facts(
        {"namespace": "shop", "creationTimestamp": "2026-01-01T11:00:00Z"},
        spec={"priority": -5, "priorityClassName": "cheap"},
    )

    assert (found.namespace, found.priority, found.priority_class) == ("shop", -5, "cheap")
    assert found.created_micros == microseconds(datetime(2026, 1, 1, 11, tzinfo=UTC))


@pytest.mark.parametrize(
    ("status", "expected"),
    [("True", microseconds(datetime(2026, 1, 1, 12, tzinfo=UTC))), ("False", NOT_SCHEDULED)],
)
def test_a_pod_is_scheduled_since_its_condition_became_true(status: str, expected: int) -> None:
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": SCHEDULED}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T13:00:00Z"}

    assert facts(status={"conditions": [ready, condition]}).scheduled_micros == expected


def test_a_mirror_pod_is_known_by_its_annotation() -> None:
    assert facts({"annotations": {"kubernetes.io/config.mirror": "0123"}}).mirror


@pytest.mark.parametrize(
    ("version", "kind", "controller", "daemon"),
    [
        ("apps/v1", "DaemonSet", True, True),
        ("apps/v1", "DaemonSet", None, False),
        ("apps/v1", "ReplicaSet", True, False),
        ("nonsense.example/v1", "DaemonSet", True, False),
        ("", "DaemonSet", True, False),
    ],
)
def test_only_the_controlling_daemon_set_makes_a_daemon(
    version: str, kind: str, controller: bool | None, daemon: bool
) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "logs", "uid": "u1", "controller": controller}

    found = facts({"ownerReferences": [owner]})

    assert found.daemon is daemon
    assert (found.daemonset_uid, found.daemonset_name) == (("u1", "logs") if daemon else ("", ""))
    assert found.owners == ("u1",)


@pytest.mark.parametrize("name", ["", "..", "logs/status", "Logs", "l" * 254])
def test_an_owner_by_a_name_that_no_daemon_set_has_makes_no_daemon(name: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "u1", "controller": True}

    found = facts({"ownerReferences": [owner]})

    assert (found.daemon, found.daemonset_uid, found.daemonset_name) == (False, "", "")


def test_of_thousands_of_owners_the_first_few_count() -> None:
    owners = [{"kind": "Pod", "name": "driver", "uid": f"u{number}"} for number in range(5000)]
    endless = {"kind": "Pod", "name": "driver", "uid": "u" * 5000}

    found = facts({"ownerReferences": [endless, *owners]})

    assert found.owners == tuple(f"u{number}" for number in range(MOST_OWNERS - 1))


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), ("True", False)])
def test_never_evict_counts_only_as_true(value: str, expected: bool) -> None:
    assert facts({"annotations": {"makeway.dev/never-evict": value}}).never_evict is expected


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(("value", "expected"), [("false", True), ("true", False), ("no", False)])
def test_a_pod_opts_out_by_label_or_annotation(where: str, value: str, expected: bool) -> None:
    assert facts({where: {"yunikorn.apache.org/allow-preemption": value}}).opted_out is expected


def test_a_priority_class_opts_out_by_annotation() -> None:
    assert opts_out(Metadata(annotations={"yunikorn.apache.org/allow-preemption": "false"}))
    assert not opts_out(Metadata())


@pytest.mark.parametrize(
    ("metadata", "application"),
    [
        ({"labels": {"yunikorn.apache.org/app-id": "a", "applicationId": "b"}}, "a"),
        ({"labels": {"applicationId": "b"}, "annotations": {"yunikorn.apache.org/app-id": "c"}}, "b"),
        ({"annotations": {"applicationId": "d"}}, "d"),
    ],
)
def test_the_application_is_by_label_or_else_annotation(metadata: dict[str, Any], application: str) -> None:
    assert facts(metadata).application == application


@pytest.mark.parametrize(
    ("labels", "queue"),
    [({"queue": "root.a"}, "root.a"), ({"queue": "root.a", "yunikorn.apache.org/queue": "root.b"}, "root.b")],
)
def test_the_queue_is_of_the_label(labels: dict[str, str], queue: str) -> None:
    assert facts({"labels": labels}).queue == queue
