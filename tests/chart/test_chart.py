"""The chart without a cluster: lint, tests of templates, Kubernetes' schemas, alerts, what documents it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.conftest import Run
from chart.kubernetes_schemas import LOCATION, write_schemas
from makeway.cli.main import SUB_COMMANDS, load
from makeway.dev.binaries import KUBERNETES_VERSION
from makeway.dev.paths import CHART, CHECKOUT, PLUGIN_MODULE
from makeway.dev.release.chart import chart_archive

RUNBOOKS = CHECKOUT / "docs" / "runbooks"
NOT_KUBERNETES = ("ServiceMonitor", "PrometheusRule")
"""Kinds of the Prometheus operator, whose schemas are not here."""

INSTALLATIONS = {
    "as it is": (),
    "beside a scheduler that is not touched": ("bridge=external",),
    "with a shadow": (
        "bridge=external",
        "nominator.verify=shadow",
        "monitoring.serviceMonitor.enabled=true",
        "shadow.profile.plugins.multiPoint.enabled[0].name=Theirs",
    ),
    "with the plugin": ("bridge=plugin",),
    "with everything": (
        "bridge=plugin",
        "nominator.besidePlugin=true",
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
        "metrics.readers[0].namespace=monitoring",
        "metrics.readers[0].name=prometheus",
        "queues.document.partitions[0].queues[0].name=team",
        "imagePullSecrets[0]=pull",
        "scheduler.featureGates.SchedulerAsyncAPICalls=true",
        "planner.tolerations[0].operator=Exists",
        "admissionPolicies.daemonSetOwners.enabled=true",
        "criticalPodsQuota.enabled=true",
        "scheduler.namespaces[0]=team-a",
        "ui.enabled=true",
        "ui.hosts[0]=makeway.example.com",
        "ui.ingress.enabled=true",
        "ui.ingress.tls[0].secretName=page",
        "ui.from[0].namespaceSelector.matchLabels.name=ingress",
    ),
    "on an existing NATS": (
        "bridge=plugin",
        "nats.url=nats://nats.nats.svc:4222",
        "streams.replicas=3",
        "ui.enabled=true",
        *(
            f"nats.credentials.{name}={name}-creds"
            for name in ("planner", "evictor", "scheduler", "nominator", "streams", "viewer")
        ),
    ),
    "in place of the cluster's scheduler": (
        "bridge=plugin",
        "scheduler.install=replacement",
        "scheduler.names[0]=default-scheduler",
    ),
    "with planner and NATS beside the scheduler": (
        "bridge=plugin",
        "planner.placement=sidecar",
        "nats.placement=sidecar",
        "scheduler.replicas=1",
        "monitoring.serviceMonitor.enabled=true",
    ),
    "with planner and NATS beside the cluster's scheduler": (
        "bridge=plugin",
        "planner.placement=sidecar",
        "nats.placement=sidecar",
        "scheduler.install=replacement",
    ),
    "without fallback": ("bridge=plugin", "scheduler.fallback=false", "nats.trial.storage.persistent=false"),
}


def template(run: Run, *settings: str, values: Path = CHART / "values.yaml") -> str:
    sets = [f"--values={values}", *(f"--set={one}" for one in settings)]
    return run("helm", "template", "makeway", CHART, f"--kube-version={KUBERNETES_VERSION}", *sets)


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def static_pods(text: str) -> list[dict[str, Any]]:
    data = [one.get("data", {}).get("makeway-planner.yaml") for one in objects(text)]
    return [yaml.safe_load(pod) for pod in data if pod]


def assert_by_schemas(run: Run, directory: Path, rendered: str) -> None:
    """Check each object by the schema of its kind, written into a directory."""
    kinds = {(one["apiVersion"], one["kind"]) for one in objects(rendered)}
    write_schemas(directory, [one for one in kinds if one[1] not in NOT_KUBERNETES])
    skipped = f"-skip={','.join(NOT_KUBERNETES)}"
    run("kubeconform", "-strict", skipped, f"-schema-location={directory}/{LOCATION}", stdin=rendered)


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def metrics_in(expression: str) -> set[str]:
    found = re.findall(r"\b(?:makeway|process)_\w+", re.sub(r'"[^"]*"', "", expression))
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}


PRESETS = tuple(sorted(path.stem for path in (CHART / "presets").glob("*.yaml")))


@pytest.mark.parametrize("provider", PRESETS)
@pytest.mark.parametrize("bridge", ["none", "external", "plugin"])
def test_a_preset_renders_with_every_bridge_by_kubernetes_own_schemas(
    run: Run, tmp_path: Path, provider: str, bridge: str
) -> None:
    preset = CHART / "presets" / f"{provider}.yaml"
    own = yaml.safe_load(preset.read_text()).get("bridge", "none")
    if bridge not in {"none": (bridge,), "external": ("external", "plugin"), "plugin": ("plugin",)}[own]:
        pytest.skip(f"its values are for bridge={own}")

    rendered = template(run, f"bridge={bridge}", values=preset)

    assert_by_schemas(run, tmp_path, rendered)


@pytest.mark.parametrize("settings", INSTALLATIONS.values(), ids=INSTALLATIONS)
def test_it_lints_and_keeps_to_all_schemas(run: Run, tmp_path: Path, settings: tuple[str, ...]) -> None:
    sets = [f"--set={one}" for one in settings]
    run("helm", "lint", "--strict", CHART, f"--kube-version={KUBERNETES_VERSION}", *sets)

    rendered = template(run, *settings)

    rendered += "".join(f"---\n{yaml.safe_dump(pod)}" for pod in static_pods(rendered))
    assert_by_schemas(run, tmp_path, rendered)


def test_every_service_listens_on_the_port_that_its_probes_ask(run: Run) -> None:
    asked = {}
    for one in objects(template(run, *INSTALLATIONS["with everything"])):
        workload = one.get("spec", {}).get("template", {}) if one["kind"] == "Deployment" else {}
        for container in workload.get("spec", {}).get("containers", []):
            command = container.get("args", [""])[0]
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            if command in SUB_COMMANDS and "livenessProbe" in container:
                asked[command] = f":{ports[container['livenessProbe']['httpGet']['port']]}"

    listens = {
        name: parameter.default
        for name in asked
        for parameter in load(name).params
        if parameter.name == "listen"
    }
    assert set(asked) == {"planner", "evictor", "nominator", "ui-server"}
    assert asked == listens


def test_a_field_that_kubernetes_does_not_know_is_noticed(run: Run, tmp_path: Path) -> None:
    write_schemas(tmp_path, [("v1", "Service")])
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": []}}

    with pytest.raises(AssertionError, match="prots"):
        run("kubeconform", "-strict", f"-schema-location={tmp_path}/{LOCATION}", stdin=json.dumps(service))


def test_it_says_that_its_images_are_not_published_until_a_release_packs_it(run: Run, tmp_path: Path) -> None:
    packed = tmp_path / "makeway.tgz"
    packed.write_bytes(chart_archive(CHART, epoch=1_790_000_000))

    plugin = ["--set=bridge=plugin", f"--kube-version={KUBERNETES_VERSION}"]
    rendered = run("helm", "template", "makeway", packed, *plugin)

    unpublished = template(run, "bridge=plugin")
    ours, theirs = objects(unpublished), objects(rendered)
    assert [one["kind"] for one in ours] == [one["kind"] for one in theirs]
    assert "not published" not in rendered
    assert unpublished.count("not published yet: build and push them") == 3
    assert "not published" not in template(run, "image.tag=mine", "scheduler.image.tag=mine")
    external = template(run, "bridge=external")
    assert external.count("set image.repository.") == 3
    assert "version: 0.1.0" in run("helm", "show", "chart", packed)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("policy.document.protection.namespces[0]=team-a", "'namespces' not allowed"),
        ("policy.document.mode=enforced", "'enforce', 'observe', 'off'"),
        ("policy.document.disruptionBudgets=hard", "missing property 'hardBudgetNamespaces'"),
        ("queues.document.partitions[0].queue=root", "'queue' not allowed"),
    ],
)
def test_a_typo_in_policy_or_queues_fails_before_it_is_applied(run: Run, setting: str, said: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(said)):
        template(run, setting)


def test_its_unit_tests_pass_and_cover_every_template(run: Run) -> None:
    run("helm-unittest", CHART)

    tested = "".join(path.read_text() for path in (CHART / "tests").glob("*_test.yaml"))
    templates = [path.name for path in (CHART / "templates").iterdir() if path.suffix != ".tpl"]
    assert [name for name in templates if f"templates/{name}" not in tested] == []


def built_minors() -> set[str]:
    """The minor versions of Kubernetes that the plugin's modules are for, such as 1.37."""
    modules = [path.read_text() for path in PLUGIN_MODULE.glob("go*.mod")]
    return {minor for text in modules for minor in re.findall(r"k8s\.io/kubernetes v(1\.\d+)\.", text)}


def test_it_installs_a_scheduler_of_each_minor_that_is_built_and_of_no_other(run: Run) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["scheduler"]["properties"]
    allowed = schema["kubernetesVersion"]["enum"]
    assert set(allowed) == built_minors()

    # Kinds among the API versions tell the chart that a cluster was asked.
    cluster = ["--api-versions=apps/v1/Deployment", "--kube-version=v1.99.0"]
    with pytest.raises(AssertionError, match=f"only for {', '.join(allowed)}"):
        run("helm", "template", "makeway", CHART, "--set=bridge=plugin", *cluster)
    for minor in allowed:
        sets = f"--set=bridge=plugin,scheduler.kubernetesVersion={minor}"
        cluster[1] = f"--kube-version=v{minor}.3"
        (image,) = (
            container["image"]
            for one in objects(run("helm", "template", "makeway", CHART, sets, *cluster))
            if one["kind"] == "Deployment" and one["metadata"]["name"] == "makeway-scheduler"
            for container in one["spec"]["template"]["spec"]["containers"]
        )
        assert image.endswith(f"-k{minor}")


def test_a_minor_version_without_quotes_is_refused(run: Run) -> None:
    # 1.40 would be 1.4.
    with pytest.raises(AssertionError, match="got number, want string"):
        run("helm", "template", "makeway", CHART, "--set-json=scheduler.kubernetesVersion=1.37")


def test_no_value_is_without_a_schema(run: Run) -> None:
    for wrong in ("nosuch=1", "policy.document.mode=false", "nats.url=4222"):
        with pytest.raises(AssertionError, match=r"(?i)schema"):
            template(run, wrong)


@pytest.mark.parametrize("settings", INSTALLATIONS.values(), ids=INSTALLATIONS)
def test_only_the_evictor_and_a_fallback_may_delete_pods_and_none_without_a_bridge(
    run: Run, settings: tuple[str, ...]
) -> None:
    roles = [one for one in objects(template(run, *settings)) if one["kind"] in ("Role", "ClusterRole")]

    deleting = {
        role["metadata"]["name"]
        for role in roles
        for rule in role["rules"]
        if "pods" in rule.get("resources", ()) and {"delete", "deletecollection", "*"} & set(rule["verbs"])
    }
    expected = {"makeway-evictor"} if {"bridge=external", "bridge=plugin"} & {*settings} else set()
    without = {"scheduler.fallback=false", "scheduler.install=replacement"} & {*settings}
    if "bridge=plugin" in settings and not without:
        expected.add("makeway-scheduler-fallback")
    assert deleting == expected
    assert not any("*" in (*r.get("resources", ()), *r["verbs"]) for role in roles for r in role["rules"])


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("with everything", 7),
        ("with planner and NATS beside the scheduler", 3),
        ("with planner and NATS beside the cluster's scheduler", 3),
    ],
)
def test_every_pod_keeps_to_the_restricted_level(run: Run, name: str, count: int) -> None:
    rendered = template(run, *INSTALLATIONS[name])
    pods = [
        one["spec"]["template"]["spec"]
        for one in objects(rendered)
        if one["kind"] in ("Deployment", "StatefulSet", "Job")
    ]
    pods += [pod["spec"] for pod in static_pods(rendered)]

    assert len(pods) == count
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_alerts_fire_and_keep_silent_as_they_should(run: Run) -> None:
    run("promtool", "check", "rules", "--lint=all", "--lint-fatal", CHART / "files" / "alerts.yaml")
    run("promtool", "test", "rules", CHART / "tests" / "alerts.test.yaml")

    tests = yaml.safe_load((CHART / "tests" / "alerts.test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    names = {rule["alert"] for rule in alerts()}
    assert (firing, silent) == (names, names)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("Makeway*.md")}

    assert pages == {rule["alert"] for rule in alerts()}
    for rule in alerts():
        assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{rule['alert']}.md")
        assert f"({rule['alert']}.md)" in (RUNBOOKS / "README.md").read_text()


def test_alerts_and_dashboard_ask_for_metrics_that_exist() -> None:
    reference = (CHECKOUT / "docs" / "reference" / "metrics.md").read_text()
    known = {*re.findall(r"^\| (makeway_\w+) \|", reference, re.MULTILINE), "process_resident_memory_bytes"}
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]

    asked = {name for text in (*queries, *(rule["expr"] for rule in alerts())) for name in metrics_in(text)}
    assert asked - known == set()
    assert len(asked) > 25
