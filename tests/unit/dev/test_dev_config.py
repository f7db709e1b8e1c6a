import json
import re
from pathlib import Path

import pytest
import yaml

from makeway.bus.streams.configs import epochs_config, stream_configs
from makeway.bus.subjects import Subjects
from makeway.dev import scheduler
from makeway.dev.options import ClusterOptions
from makeway.dev.paths import CHART, RBAC_MANIFESTS
from makeway.dev.ports import Ports


def post_filters(options: ClusterOptions) -> list[str]:
    """The names under postFilter, in order."""
    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]
    return [plugin["name"] for plugin in profile["plugins"]["postFilter"]["enabled"]]


@pytest.mark.parametrize("fallback", [True, False])
def test_default_preemption_comes_after_makeway_at_every_point_or_not_at_all(fallback: bool) -> None:
    options = ClusterOptions(fallback=fallback)
    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]
    everywhere = profile["plugins"]["multiPoint"]

    after = ["DefaultPreemption"] if fallback else []
    assert everywhere["disabled"] == [{"name": "DefaultPreemption"}]
    assert [one["name"] for one in everywhere["enabled"]] == ["MakeWayQueues", "MakeWay", *after]
    assert post_filters(options) == ["DynamicResources", "MakeWayQueues", "MakeWay", *after]


def test_two_clusters_never_choose_the_same_port() -> None:
    first, second = Ports(), Ports()

    taken = [first.take() for _ in range(20)] + [second.take() for _ in range(20)]

    assert len(set(taken)) == len(taken)
    first.release()
    second.release()


def rules(file: str) -> list[dict[str, list[str]]]:
    """Every rule of every role in a manifest."""
    documents = yaml.safe_load_all((RBAC_MANIFESTS / file).read_text())
    return [rule for document in documents for rule in document.get("rules", [])]


def granted(file: str, resource: str) -> set[str]:
    """The verbs a manifest grants on a resource."""
    return {verb for rule in rules(file) if resource in rule["resources"] for verb in rule["verbs"]}


def test_only_the_evictor_and_the_fallback_may_delete_pods() -> None:
    may = {path.name for path in RBAC_MANIFESTS.glob("*.yaml") if "delete" in granted(path.name, "pods")}

    assert may == {"evictor.yaml", "scheduler-fallback.yaml"}


@pytest.mark.parametrize(
    ("part", "pods", "status"),
    [
        ("planner", {"list", "watch"}, set()),
        ("evictor", {"get", "delete"}, {"patch"}),
        ("scheduler", {"list", "watch"}, {"patch"}),
    ],
)
def test_a_part_may_do_with_pods_no_more_than_its_work_takes(
    part: str, pods: set[str], status: set[str]
) -> None:
    file = f"{part}.yaml"

    assert (granted(file, "pods"), granted(file, "pods/status")) == (pods, status)


@pytest.mark.parametrize("part", ["planner", "evictor"])
def test_a_part_reads_configmaps_by_their_names_alone_and_writes_no_settings(part: str) -> None:
    found = [rule for rule in rules(f"{part}.yaml") if "configmaps" in rule["resources"]]

    assert all(rule.get("resourceNames") for rule in found)
    of_settings = [rule["verbs"] for rule in found if "makeway-policy" in rule["resourceNames"]]
    assert of_settings == [["list", "watch"]]


def test_no_role_uses_wildcards_or_reads_secrets() -> None:
    every = [rule for path in RBAC_MANIFESTS.glob("*.yaml") for rule in rules(path.name)]

    assert every
    assert not any("*" in values or "secrets" in values for rule in every for values in rule.values())
    assert json.dumps(every).count("impersonate") == 0


@pytest.mark.parametrize("where", ["dev/src/makeway/dev/nats.py", "charts/makeway/templates/nats.yaml"])
def test_every_stream_has_its_place_in_the_store_of_a_nats_of_our_own(where: str) -> None:
    """NATS sets `max_bytes` aside when it makes a stream, and refuses one for which too little is left."""
    found = re.search(r"max_file_store: (\d+)GB", (CHART.parents[1] / where).read_text())
    assert found
    subjects = Subjects("makeway")

    kept = sum(one["max_bytes"] for one in (*stream_configs(subjects), epochs_config(subjects)))

    assert kept <= int(found[1]) * 10**9
