"""Who goes by a policy and who not yet, and whose ConfigMap it is."""

from pathlib import Path

import msgspec
import pytest

from makeway.bus.component_status import ComponentStatus
from makeway.cli.connect.configmaps import manager_of
from makeway.cli.mode.components import confirmation, in_order, row, silent, without
from makeway.dev.samples import MESSAGES
from unit.cli.test_connect import api_server, kubeconfig, makeway

REVISION = "sha256:00ff"


def status(**changes: object) -> ComponentStatus:
    one = MESSAGES["component-status.full"]
    assert isinstance(one, ComponentStatus)
    return msgspec.structs.replace(one, trouble="", breaker="", **changes)


def test_a_component_confirms_where_policy_and_mode_are_those_that_are_waited_for() -> None:
    assert confirmation(status(), revision=REVISION, mode="enforce").confirmed
    assert confirmation(status(), revision=REVISION, mode="observe", namespace="shop").confirmed

    late = confirmation(status(policy_revision="sha256:1"), revision=REVISION, mode="enforce")
    assert (late.confirmed, late.why) == (False, "has another policy")
    told = confirmation(status(mode="observe"), revision=REVISION, mode="enforce")
    assert (told.confirmed, told.why) == (False, "is still in mode observe")


def test_a_component_held_to_less_by_its_own_argument_confirms_and_that_is_said() -> None:
    held = confirmation(status(mode="observe", own_mode="observe"), revision=REVISION, mode="enforce")

    assert held.confirmed
    assert held.why == "held to observe by its own argument"
    assert row(held)[2:] == ("observe", REVISION, "held to observe by its own argument")


def test_pods_that_do_not_answer_are_named() -> None:
    heard = [confirmation(status(identity="sched-1_1_ab"), revision=REVISION, mode="enforce")]
    pods = {"planner-0": "planner", "evictor-0": "evictor", "sched-1": "scheduler"}

    missing = in_order(silent(heard, pods))

    assert [(one.component, one.identity, one.confirmed) for one in missing] == [
        ("evictor", "evictor-0", False),
        ("planner", "planner-0", False),
    ]
    assert without(heard) == ["planner", "evictor"]


@pytest.mark.parametrize(
    ("labels", "annotations", "manager"),
    [
        ({}, {}, ""),
        ({"app.kubernetes.io/managed-by": "Helm"}, {}, ""),
        ({}, {"argocd.argoproj.io/tracking-id": "x:y"}, "Argo CD"),
        ({"kustomize.toolkit.fluxcd.io/name": "apps"}, {}, "Flux"),
        ({}, {"makeway.dev/managed-by": "the chart's values"}, "the chart's values"),
    ],
)
def test_only_what_would_put_its_own_text_back_manages_the_policy(
    labels: dict[str, str], annotations: dict[str, str], manager: str
) -> None:
    assert manager_of(labels, annotations) == manager


async def test_a_policy_that_something_else_manages_is_not_written(tmp_path: Path) -> None:
    annotations = {"argocd.argoproj.io/tracking-id": "x"}
    configmap = {
        "metadata": {"resourceVersion": "7", "annotations": annotations},
        "data": {"policy.yaml": "apiVersion: makeway.dev/v1\nkind: Policy\n"},
    }
    async with api_server(200, configmap) as url:
        code, out, err = await makeway(
            "mode", "observe", "--release", f"--kubeconfig={kubeconfig(tmp_path, url)}"
        )

    assert (code, out) == (1, "")
    assert "ConfigMap makeway-policy is managed by Argo CD, which would put its own text back" in err


async def test_a_policy_that_is_refused_is_not_changed_and_its_problems_are_told(tmp_path: Path) -> None:
    configmap = {"metadata": {"resourceVersion": "7"}, "data": {"policy.yaml": "kind: Policy\nmode: on\n"}}
    async with api_server(200, configmap) as url:
        _, _, err = await makeway(
            "mode", "observe", "--release", f"--kubeconfig={kubeconfig(tmp_path, url)}", exits=1
        )

    assert "the policy is refused as it is stored, so nothing was changed: " in err
    assert "'on' is not allowed" in err


async def test_without_permission_and_without_a_server_it_ends_with_3(tmp_path: Path) -> None:
    body = {"kind": "Status", "reason": "Forbidden", "message": 'configmaps "makeway-policy" is forbidden'}
    async with api_server(403, body) as url:
        _, _, err = await makeway("mode", "off", f"--kubeconfig={kubeconfig(tmp_path, url)}", exits=3)
    assert "no permission" in err

    await makeway("mode", f"--kubeconfig={kubeconfig(tmp_path, 'http://127.0.0.1:1')}", exits=3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["enforced"], "is not one of"),
        (["inherit"], "only a namespace can inherit"),
        (["off", "--timeout=soon"], "'soon' is no duration"),
    ],
)
async def test_what_is_called_wrongly_ends_with_2(arguments: list[str], said: str) -> None:
    code, out, err = await makeway("mode", *arguments)

    assert (code, out) == (2, "")
    assert said in err
    assert "Value error" not in err
