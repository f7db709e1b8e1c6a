"""What `makeway check` says of pod groups."""

import pytest
import yaml

from makeway.cli.check.pod_groups import GROUP_RIGHTS, judge
from makeway.cli.check.rights import Right
from makeway.core.policy.document import Groups, Policy
from makeway.dev.paths import RBAC_MANIFESTS
from makeway.runtime.pod_group_api import PodGroupApi

HOLD = Policy(groups=Groups(preemptors="hold"))


@pytest.mark.parametrize(
    ("version", "policy", "missing", "state"),
    [
        ("v1beta1", Policy(), [], "ok"),
        ("v1beta1", Policy(), None, "ok"),
        ("v1beta1", Policy(), [GROUP_RIGHTS[0]], "wrong"),
        ("v1alpha2", Policy(), [], "warning"),
        ("v1alpha2", HOLD, [], "ok"),
        ("v1beta1", HOLD, [], "ok"),
        ("v1alpha2", None, [], "ok"),
    ],
)
def test_what_the_policy_does_not_hold_of_gangs_is_named_and_rights_that_are_missing(
    version: str, policy: Policy | None, missing: list[Right] | None, state: str
) -> None:
    (result,) = judge(PodGroupApi(version), policy, missing)

    assert result.state == state


def test_the_rights_asked_for_are_those_that_the_manifest_grants() -> None:
    granted = set()
    for document in yaml.safe_load_all((RBAC_MANIFESTS / "pod-groups.yaml").read_text()):
        for rule in document.get("rules", ()):
            account = document["metadata"]["name"].split("-")[1]
            granted |= {
                Right(account, verb, group, resource)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }

    assert granted == set(GROUP_RIGHTS)
