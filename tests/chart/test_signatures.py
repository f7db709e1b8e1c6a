"""The keys of signatures in the rendered chart: they belong together, and each part has its own alone."""

from typing import Any

import pytest
import yaml

from chart.conftest import Run
from chart.test_chart import objects, template
from makeway.bus.signing.keys import SigningKind

PLUGIN = "bridge=plugin"
REQUIRED = "signatures.mode=require"
KINDS = {"planner": {SigningKind.ORDER, SigningKind.CONTROL}, "evictor": {SigningKind.OUTCOME}}


def named(rendered: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in rendered if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def test_each_part_mounts_the_secret_of_its_own_keys_alone(run: Run) -> None:
    rendered = objects(template(run, PLUGIN, REQUIRED))

    for one in rendered:
        if one["kind"] not in ("Deployment", "StatefulSet"):
            continue
        component = one["metadata"]["name"].removeprefix("makeway-")
        pod = one["spec"]["template"]["spec"]
        secrets = {volume["secret"]["secretName"] for volume in pod.get("volumes", ()) if "secret" in volume}
        mounted = {name for name in secrets if name.startswith("makeway-signing-")}
        assert mounted == ({f"makeway-signing-{component}"} if component in KINDS else set()), component
        if component in KINDS:
            mounts = pod["containers"][0]["volumeMounts"]
            assert {"name": "signing", "mountPath": "/etc/makeway/signing", "readOnly": True} in mounts


def test_the_nominator_verifies_and_has_no_key(run: Run) -> None:
    rendered = objects(template(run, "bridge=external", REQUIRED))

    pod = named(rendered, "Deployment", "makeway-nominator")["spec"]["template"]["spec"]
    assert "makeway-signing" not in str(pod)
    arguments = pod["containers"][0]["args"]
    assert "--signatures=require" in arguments
    assert not any(one.startswith("--signing-keys") for one in arguments)


@pytest.mark.parametrize("mode", ["log", "require"])
def test_the_parts_are_told_to_sign_and_verify(run: Run, mode: str) -> None:
    rendered = objects(template(run, PLUGIN, f"signatures.mode={mode}"))

    for component in ("planner", "evictor"):
        pod = named(rendered, "Deployment", f"makeway-{component}")["spec"]["template"]["spec"]
        arguments = pod["containers"][0]["args"]
        assert {f"--signatures={mode}", "--signing-keys=/etc/makeway/signing"} <= set(arguments)
    configuration = named(rendered, "ConfigMap", "makeway-scheduler")["data"]["scheduler.yaml"]
    (profile,) = yaml.safe_load(configuration)["profiles"]
    arguments = profile["pluginConfig"][0]["args"]
    assert arguments["signatures"] == mode
    assert arguments["keysConfigMap"] == {"namespace": "default", "name": "makeway-keys"}


def test_without_signatures_there_are_no_keys_and_no_arguments(run: Run) -> None:
    rendered = template(run, PLUGIN, "signatures.mode=off")

    for text in ("makeway-signing-", "--signatures", "name: signing"):
        assert text not in rendered


@pytest.mark.parametrize("install", ["second", "replacement"])
def test_no_part_may_write_public_keys_or_read_a_secret_but_who_makes_them(run: Run, install: str) -> None:
    rendered = objects(template(run, PLUGIN, REQUIRED, f"scheduler.install={install}"))

    roles = {
        (one["kind"], one["metadata"]["name"]): one["rules"]
        for one in rendered
        if one["kind"] in ("Role", "ClusterRole")
        and "helm.sh/hook" not in one["metadata"].get("annotations", {})
    }
    making = roles.pop(("Role", "makeway-streams"))
    (reads,) = [rule for rule in making if rule["resources"] == ["secrets"] and "get" in rule["verbs"]]
    assert all(name.startswith("makeway-") for name in reads["resourceNames"])
    rules = [rule for found in roles.values() for rule in found]
    assert not any("secrets" in rule.get("resources", ()) for rule in rules)
    reading = [rule for rule in rules if "makeway-keys" in rule.get("resourceNames", ())]
    assert len(reading) == 3, "planner, evictor and scheduler verify"
    for rule in reading:
        assert rule["resourceNames"] == ["makeway-keys"]
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
    for rule in rules:
        if "configmaps" in rule.get("resources", ()):
            assert rule.get("resourceNames"), rule


def test_two_renderings_with_no_value_set_are_equal(run: Run) -> None:
    assert template(run) == template(run)
    assert not [one for one in objects(template(run, PLUGIN)) if one["kind"] == "Secret"]
