"""`makeway simulate`: files, stdin and dumps; text in a pipe, JSON and YAML; what cannot be used."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from makeway.cli.main import app
from unit.planner.offline_building import dump, node, pod, priority_class

PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  priorityClassName: high
  containers: [{name: c, resources: {requests: {cpu: "2"}}}]
"""
QUEUES = """\
partitions:
- name: default
  queues:
  - name: root
    queues:
    - name: ml
      resources: {max: {vcore: "1"}}
"""


GROUP = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: train}
spec: {priority: 1000, schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  template:
    spec:
      priorityClassName: high
      schedulingGroup: {podGroupName: train}
      containers: [{name: c, resources: {requests: {cpu: "1"}}}]
"""

AT = ("--at", "2026-01-31T13:00:00+01:00")
AS_OF = "as of 2026-01-31T12:00:00Z"


def run(*arguments: str, stdin: str = "", exits: int | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments], input=stdin)
    assert exits in (None, result.exit_code), result.output
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_bytes(
        dump(
            node("a", "2"),
            priority_class("high", 1000),
            pod("one", "a", priority=0),
            pod("two", "a", priority=0),
        )
    )
    return str(path)


def test_text_says_who_would_leave_and_sums_up(cluster: str) -> None:
    _, output, _ = run("-f", "-", "--cluster", cluster, *AT, stdin=PODS, exits=0)

    assert output.splitlines() == [
        "default/train (priority 1000) would preempt on a: 2 pods would leave",
        "  - default/one (priority 0): lower-priority",
        "  - default/two (priority 0): lower-priority",
        "  the only node on which that helps",
        "1 pod on 1 node: 1 would preempt; 2 victims",
        AS_OF,
    ]


def test_a_dump_is_judged_as_of_now_where_it_is_not_said_when_it_was_taken(cluster: str) -> None:
    _, output, _ = run("-f", "-", "--cluster", cluster, stdin=PODS)

    assert output.splitlines()[-1].startswith("as of now, ")
    assert output.splitlines()[-1].endswith("Z; --at says when the dump was taken")


def test_a_toleration_that_has_ended_since_the_dump_was_taken_still_held_then(tmp_path: Path) -> None:
    tolerates = {
        "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "5000",
        "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "60",
    }
    ran = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-31T11:59:30Z"}
    shy = priority_class("shy", 0)
    shy["metadata"]["annotations"] = tolerates
    path = tmp_path / "cluster.json"
    one = pod("one", "a", cpu="2", priority=0, priorityClassName="shy", status={"conditions": [ran]})
    path.write_bytes(dump(node("a", "2"), priority_class("high", 1000), shy, one))

    def result(at: str) -> str:
        output = run("-f", "-", "--cluster", str(path), "--at", at, "-o", "json", stdin=PODS)[1]
        report = json.loads(output)
        assert report["at"] == at
        return str(report["pods"][0]["result"])

    assert result("2026-01-31T12:00:00Z") == "refused"
    assert result("2026-01-31T12:01:00Z") == "preempts"


def test_json_and_yaml_hold_the_fields_of_a_decision_record(cluster: str) -> None:
    _, output, _ = run("-f", "-", "--cluster", cluster, "-o", "json", stdin=PODS)
    _, same, _ = run("-f", "-", "--cluster", cluster, "-o", "yaml", stdin=PODS)
    (answer,) = json.loads(output)["pods"]

    assert answer["nominatedNode"] == answer["node"] == "a"
    assert answer["diagnosis"] is None
    assert answer["pdbViolations"] == 0
    assert answer["victims"][0] == {
        "namespace": "default",
        "name": "one",
        "uid": "uid-one",
        "node": "a",
        "priority": 0,
        "gracePeriodSeconds": 30,
        "rule": "lower-priority",
    }
    assert yaml.safe_load(same)["pods"] == json.loads(output)["pods"]


def test_a_dump_in_yaml_is_read_too(cluster: str, tmp_path: Path) -> None:
    again = tmp_path / "cluster.yaml"
    again.write_text(yaml.safe_dump(json.loads(Path(cluster).read_bytes())))
    pods = tmp_path / "pods.yaml"
    pods.write_text(PODS)

    assert run("-f", str(pods), "--cluster", str(again), *AT) == run(
        "-f", str(pods), "--cluster", cluster, *AT
    )


def test_a_policy_and_queues_can_be_tried(cluster: str, tmp_path: Path) -> None:
    policy, queues = tmp_path / "policy.yaml", tmp_path / "queues.yaml"
    policy.write_text("apiVersion: makeway.dev/v1\nkind: Policy\nprotection: {namespaces: [default]}\n")
    queues.write_text(QUEUES)
    queued = PODS.replace("name: train", "name: train, labels: {queue: root.ml}")

    spared = run("-f", "-", "--cluster", cluster, "--policy", str(policy), stdin=PODS)[1]
    full = run("-f", "-", "--cluster", cluster, "--queues", str(queues), "-o", "json", stdin=queued)[1]

    assert "stays pending" in spared
    assert "protected-namespace" in spared
    (answer,) = json.loads(full)["pods"]
    assert answer["queue"] == "root.ml"
    assert "Queue root.ml at max" in answer["diagnosis"]["message"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-f", "nowhere.yaml"], "nowhere.yaml: cannot be read: no such file or directory"),
        (["-f", "-", "--cluster", "CLUSTER", "--policy", "CLUSTER"], "CLUSTER"),
        (["-f", "SERVICE", "--cluster", "CLUSTER"], "no pods in it, only 1 Service"),
    ],
)
def test_an_unusable_file_ends_with_1_and_says_why(cluster: str, arguments: list[str], told: str) -> None:
    service = Path(cluster).with_name("service.yaml")
    service.write_text("kind: Service\nmetadata: {name: web}\n")
    paths = {"CLUSTER": cluster, "SERVICE": str(service)}
    code, output, error = run(*(paths.get(one, one) for one in arguments), stdin=PODS)

    assert (code, output) == (1, "")
    assert error.startswith("makeway: ")
    assert told.replace("CLUSTER", cluster) in error
    assert "Traceback" not in error


def test_a_dump_without_nodes_says_how_to_make_one(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"kind": "List", "items": []}')

    _, _, error = run("-f", "-", "--cluster", str(empty), stdin=PODS, exits=1)

    assert "kubectl get nodes,pods" in error


def test_wrong_usage_ends_with_2(cluster: str) -> None:
    assert run()[0] == 2
    assert run("-f", "-", *AT, stdin=PODS)[0] == 2
    assert run("-f", "-", "--cluster", "-", stdin=PODS)[0] == 2
    for at in ("yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        code, _, errors = run("-f", "-", "--cluster", cluster, "--at", at, stdin=PODS)
        assert (code, "for --at: " in errors, "use a time such as" in errors) == (2, True, True)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("{kind: Pod, metadata: train}", "a pod's metadata and spec must be objects"),
        (
            "{kind: Pod, metadata: {name: p, namespace: {a: b}}, spec: {containers: [{}]}}",
            "metadata.namespace",
        ),
        (
            "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}], resourceClaims: 7}}",
            "resourceClaims",
        ),
        (f"{GROUP}---\n{GROUP.partition('---')[0]}", "PodGroup default/train is there twice"),
        (f"{GROUP}---\n{{kind: PodGroup, metadata: [train]}}", "a PodGroup's metadata must be an object"),
    ],
)
def test_a_pod_or_group_of_another_shape_is_refused_with_its_cause(
    cluster: str, manifest: str, said: str
) -> None:
    code, _, errors = run("-f", "-", "--cluster", cluster, *AT, stdin=manifest)

    assert (code, said in errors) == (1, True), errors


LOWERED = """\
partitions:
- name: default
  preemption: {quotapreemptionenabled: true}
  queues:
  - name: root
    queues:
    - name: default
      resources: {max: {vcore: "1"}, quota.preemption.delay: 10m}
"""


def test_lowered_queues_say_which_pods_would_go_in_which_queue_and_order(cluster: str) -> None:
    code, output, _ = run("--queues", "-", "--cluster", cluster, *AT, stdin=LOWERED)
    _, data, _ = run("--queues", "-", "--cluster", cluster, "-o", "json", stdin=LOWERED)

    assert code == 0
    assert output.splitlines() == [
        "root.default after 10m: root.default uses cpu 2 of at most cpu 1, cpu 1 too much: 1 pod with cpu 1",
        "  1. default/one (priority 0) on a, in root.default",
        "  only pods of scheduler profiles with the queue gate go, which is not known here; "
        "schedulers of these pods: none",
        "1 quota to enforce; 1 victim",
        AS_OF,
    ]
    report = json.loads(data)
    assert report["pods"] == []
    (quota,) = report["quotas"]
    assert (quota["queue"], quota["afterSeconds"]) == ("root.default", 600)
    assert (quota["victims"][0]["name"], quota["victims"][0]["queue"]) == ("one", "root.default")


def test_a_group_that_goes_whole_for_a_quota_is_told_as_one(cluster: str) -> None:
    there = json.loads(Path(cluster).read_text(encoding="utf-8"))
    for item in there["items"]:
        if item["kind"] == "Pod":
            item["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    whole = {"disruptionMode": {"all": {}}, "priority": 5}
    meta = {"name": "train", "namespace": "default", "uid": "train"}
    there["items"].append(
        {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": whole}
    )
    Path(cluster).write_text(json.dumps(there), encoding="utf-8")

    _, output, _ = run("--queues", "-", "--cluster", cluster, *AT, stdin=LOWERED)
    _, data, _ = run("--queues", "-", "--cluster", cluster, *AT, "-o", "json", stdin=LOWERED)

    assert output.splitlines()[1:4] == [
        "  1. group default/train: 2 pods on 1 node (priority 5), in root.default",
        "  only pods of scheduler profiles with the queue gate go, which is not known here; "
        "schedulers of these pods: none",
        "1 quota to enforce; 2 victims",
    ]
    victims = json.loads(data)["quotas"][0]["victims"]
    assert {(one["unit"], one["priority"]) for one in victims} == {("PodGroup default/train", 5)}


def test_without_pods_and_queues_there_is_nothing_to_simulate(cluster: str) -> None:
    assert run("--cluster", cluster)[0] == 2


def test_a_group_is_told_as_a_whole(cluster: str) -> None:
    _, text, _ = run("-f", "-", "--cluster", cluster, *AT, stdin=GROUP, exits=0)

    assert text.splitlines() == [
        "PodGroup default/train (priority 1000) would preempt for 2 of 2 pods: 2 pods would leave",
        "  on a 2",
        "  - default/one on a (priority 0): lower-priority",
        "  - default/two on a (priority 0): lower-priority",
        "1 group on 1 node: 1 would preempt; 2 victims",
        AS_OF,
    ]


def test_a_group_without_pods_is_refused(cluster: str) -> None:
    _, _, errors = run("-f", "-", "--cluster", cluster, stdin=GROUP.split("---", maxsplit=1)[0], exits=1)

    assert "no pods in it" in errors
