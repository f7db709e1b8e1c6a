import json
import re
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from makeway.bus.streams.configs import epochs_config, stream_configs
from makeway.bus.subjects import Subjects
from makeway.dev import kwok, scheduler
from makeway.dev.info import ClusterInfo, read_info
from makeway.dev.kubeconfig import write_with_certificate, write_with_token
from makeway.dev.options import NATS, PLANNER, ClusterOptions
from makeway.dev.paths import CHART, RBAC_MANIFESTS
from makeway.dev.pki import Authority
from makeway.dev.ports import Ports
from makeway.dev.supervisor import Job


def post_filters(options: ClusterOptions) -> list[str]:
    """The names under postFilter, in order."""
    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]
    return [plugin["name"] for plugin in profile["plugins"]["postFilter"]["enabled"]]


def test_makeway_acts_after_idle_claims_are_freed_and_before_default_preemption() -> None:
    assert post_filters(ClusterOptions()) == [
        "DynamicResources",
        "MakeWayQueues",
        "MakeWay",
        "DefaultPreemption",
    ]


@pytest.mark.parametrize("fallback", [True, False])
def test_default_preemption_comes_after_makeway_at_every_point_or_not_at_all(fallback: bool) -> None:
    options = ClusterOptions(fallback=fallback)
    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]
    everywhere = profile["plugins"]["multiPoint"]

    after = ["DefaultPreemption"] if fallback else []
    assert everywhere["disabled"] == [{"name": "DefaultPreemption"}]
    assert [one["name"] for one in everywhere["enabled"]] == ["MakeWayQueues", "MakeWay", *after]
    assert post_filters(options) == ["DynamicResources", "MakeWayQueues", "MakeWay", *after]


@pytest.mark.parametrize("nominated_sort", [True, False])
def test_the_queue_keeps_kube_schedulers_order_unless_nominated_pods_go_first(nominated_sort: bool) -> None:
    options = ClusterOptions(nominated_sort=nominated_sort)

    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]

    assert ("queueSort" in profile["plugins"]) is nominated_sort


def test_the_plugins_arguments_can_be_overridden() -> None:
    options = ClusterOptions(mode="observe", plugin_arguments=(("notAfter", "5s"), ("maxCandidates", 3)))

    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]
    arguments = profile["pluginConfig"][0]["args"]

    assert "mode" not in arguments  # the policy says it
    assert arguments["natsURL"] == "nats://localhost"
    assert (arguments["notAfter"], arguments["maxCandidates"]) == ("5s", 3)


def test_the_scheduler_verifies_where_the_cluster_has_keys() -> None:
    options = ClusterOptions(signatures="require")

    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost", Path("/keys"))[
        "profiles"
    ]
    arguments = profile[0]["pluginConfig"][0]["args"]

    assert arguments["signatures"] == "require"
    unsigned = scheduler.configuration(
        ClusterOptions(signatures="off"), Path("kubeconfig"), "nats://localhost", Path("/keys")
    )
    assert "signatures" not in unsigned["profiles"][0]["pluginConfig"][0]["args"]


def test_third_party_plugins_run_where_a_test_asks_for_them_and_bind_first() -> None:
    options = ClusterOptions(test_plugins=True)

    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]
    names = {point: [one["name"] for one in rest["enabled"]] for point, rest in profile["plugins"].items()}

    assert names["multiPoint"] == [
        "MakeWayQueues",
        "MakeWay",
        "DefaultPreemption",
        "TestAloof",
        "TestPermit",
        "TestPreBind",
        "TestBind",
    ]
    assert names["bind"] == ["TestBind", "DefaultBinder"]


def test_without_the_plugin_the_profile_is_kube_schedulers_own() -> None:
    options = ClusterOptions(plugin=False)

    profile = scheduler.configuration(options, Path("kubeconfig"), "nats://localhost")["profiles"][0]

    assert profile == {"schedulerName": "default-scheduler"}


@pytest.mark.parametrize(
    "wrong", [{"components": frozenset({"etcd2"})}, {"mode": "on"}, {"signatures": "on"}]
)
def test_options_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"etcd2|mode|signatures"):
        ClusterOptions(**wrong)  # type: ignore[arg-type]


def test_a_job_comes_back_from_json_as_it_was() -> None:
    options = ClusterOptions(
        components=frozenset({NATS, PLANNER}),
        scheduler_feature_gates=(("SchedulerAsyncAPICalls", True),),
        plugin_arguments=(("notAfter", "5s"),),
        apiserver_arguments=("-v=4",),
    )
    job = Job("a", Path("/somewhere"), options, nodes=3, reports=5, lifeline=None)

    assert Job.from_json(job.to_json()) == job


def test_a_clusters_info_comes_back_as_it_was_written(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1"
    info = ClusterInfo(
        name="a",
        directory=tmp_path,
        server=url,
        kubeconfig=tmp_path / "admin",
        kubeconfigs={"planner": tmp_path / "planner"},
        nats_url=url,
        nats_monitor_url=url,
        planner_url=url,
        evictor_url=url,
        scheduler_url=url,
        audit_log=tmp_path / "audit.log",
        logs=tmp_path / "logs",
        binaries=tmp_path / "a directory",
        owner=1,
    )
    assert read_info(tmp_path) is None

    info.write()

    assert read_info(tmp_path) == info
    assert f"export PATH='{tmp_path}/a directory':\"$PATH\"" in info.exports()


def test_the_authority_signs_what_tls_accepts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving("serving")
    client = authority.client("system:someone", "system:masters")

    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(serving.certificate, serving.key)
    certificate = x509.load_pem_x509_certificate(client.certificate.read_bytes())

    assert certificate.subject.rfc4514_string() == "O=system:masters,CN=system:someone"
    assert client.key.stat().st_mode & 0o077 == 0


def test_kubeconfigs_stand_alone_and_are_secret(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    client = authority.client("me")
    url = "https://127.0.0.1:1"

    with_certificate = write_with_certificate(tmp_path / "a", url, authority.certificate, client, "me")
    with_token = write_with_token(tmp_path / "b", url, authority.certificate, "secret", "me")

    for path in (with_certificate, with_token):
        assert str(tmp_path) not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
    assert yaml.safe_load(with_token.read_text())["users"][0]["user"] == {"token": "secret"}


def test_two_clusters_never_choose_the_same_port() -> None:
    first, second = Ports(), Ports()

    taken = [first.take() for _ in range(20)] + [second.take() for _ in range(20)]

    assert len(set(taken)) == len(taken)
    first.release()
    second.release()


def test_at_most_one_stage_matches_a_pod_that_is_being_deleted() -> None:
    stages = {
        stage["metadata"]["name"]: stage["spec"]["selector"]["matchExpressions"]
        for stage in yaml.safe_load_all(kwok.STAGES.read_text())
    }
    deleted = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}

    assert deleted not in stages["pod-runs"]
    at_once, after_grace = stages["pod-leaves-at-once"][1], stages["pod-leaves-after-its-grace"][1]
    assert at_once["key"] == after_grace["key"]
    assert (at_once["operator"], after_grace["operator"]) == ("DoesNotExist", "In")


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
