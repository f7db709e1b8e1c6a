"""The chart as it is, `bridge: none`: it may write its Lease and Events, and nothing else."""

import asyncio
import json

import pytest
import yaml

from integration.builders import make_node, make_pod
from integration.charting import NAMESPACE, render
from integration.conftest import Install
from integration.granting import Grant, denied, grants, unused
from integration.priority_classes import Classes
from integration.waiting import NotYet, until
from makeway.dev.errors import DevError

pytestmark = pytest.mark.wide

PLANNER = "makeway-planner"
READS = ("get", "list", "watch")
WRITES = {
    f"create leases.coordination.k8s.io {NAMESPACE}",
    f"update leases.coordination.k8s.io {NAMESPACE}/makeway-planner",
    "create events.events.k8s.io",
    f"patch configmaps {NAMESPACE}/makeway-tolerations",
}
"""What the planner changes in a cluster, of which no part is a pod's or a node's."""

REFUSED = (
    Grant("patch", "", "pods/status"),
    Grant("patch", "", "pods"),
    Grant("delete", "", "pods"),
    Grant("create", "", "pods/eviction"),
    Grant("create", "", "pods/binding"),
    Grant("patch", "", "nodes"),
    Grant("patch", "", "configmaps", NAMESPACE, "makeway-policy"),
    Grant("patch", "", "configmaps", NAMESPACE, "makeway-brake"),
    Grant("patch", "", "configmaps", NAMESPACE, "makeway-keys"),
    Grant("update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
    Grant("get", "", "secrets", NAMESPACE),
    Grant("create", "", "serviceaccounts/token", NAMESPACE),
)


async def test_secrets_are_made_in_the_cluster_and_again_where_one_is_lost(install: Install) -> None:
    installed = install(render())
    await installed.come_up(scheduler=False)
    await asyncio.to_thread(installed.release.start_service, "planner")
    login = ("makeway-nats-viewer", "password")
    before = installed.release.secret(*login)
    await installed.cluster.kubectl("delete", "secret", "-n", NAMESPACE, login[0])

    again = await asyncio.to_thread(installed.release.secret, *login)

    assert again["password"] == before["password"]
    assert again["ca.crt"] == before["ca.crt"]
    async with installed.bus() as bus:
        assert await bus.orders("nobody") == []
    tested = await asyncio.to_thread(installed.release.check)
    assert "✗ NATS" not in tested.stdout, tested.stdout + tested.stderr
    assert "✓ planner" in tested.stdout, tested.stdout + tested.stderr
    assert denied(event for event in installed.events("makeway-streams")) == []


async def test_the_chart_is_applied_again_and_leaves_what_was_made_in_the_cluster(install: Install) -> None:
    manifests = render()
    installed = install(manifests)
    await installed.come_up(scheduler=False)
    text = yaml.safe_dump_all(manifests)

    async def made() -> dict[str, object]:
        listed = await installed.cluster.kubectl("get", "secrets,configmaps", "-n", NAMESPACE, "-o", "json")
        return {
            f"{one['kind']} {one['metadata']['name']}": one["data"]
            for one in json.loads(listed)["items"]
            if one["kind"] == "Secret" or one["metadata"]["name"] == "makeway-keys"
        }

    installed.release.secret("makeway-signing-planner", "order.pem", "control.pem")
    before = await made()
    assert "ConfigMap makeway-keys" in before
    for _ in range(2):
        await installed.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        assert await made() == before
    patch = (
        "patch",
        "configmap",
        "makeway-policy",
        "-n",
        NAMESPACE,
        "--field-manager=makeway",
        "--type=merge",
    )
    await installed.cluster.kubectl(*patch, "-p", json.dumps({"data": {"policy.yaml": "mode: enforce\n"}}))
    with pytest.raises(DevError, match=r'conflict with "makeway".*\.data\.policy\.yaml'):
        await installed.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    for _ in range(2):
        await installed.cluster.kubectl("apply", "-f", "-", stdin=text)
        assert await made() == before


def writing(granted: set[Grant]) -> set[str]:
    return {str(one) for one in granted if one.verb not in READS}


def test_no_account_is_granted_more_than_that() -> None:
    manifests = render()

    bound = {
        subject["name"]
        for one in manifests
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in one["subjects"]
    }
    assert bound == {PLANNER, "makeway-streams", "makeway-check"}
    assert writing(grants(manifests, "makeway-check")) == {"create subjectaccessreviews.authorization.k8s.io"}
    made = {one for one in writing(grants(manifests, "makeway-streams")) if "secrets" in one}
    assert made == {
        f"create secrets {NAMESPACE}",
        *(
            f"update secrets {NAMESPACE}/makeway-{name}"
            for name in (
                "nats-planner",
                "nats-streams",
                "nats-viewer",
                "nats-passwords",
                "nats-server",
                "nats-authority",
                "signing-planner",
            )
        ),
    }
    assert writing(grants(manifests, PLANNER)) == WRITES


async def test_a_planner_that_compares_writes_nothing_else_and_may_not(install: Install) -> None:
    manifests = render()
    installed = install(manifests)

    async def allowed(grant: Grant) -> bool:
        resource, _, subresource = grant.resource.partition("/")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{NAMESPACE}:{PLANNER}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"],
                "resourceAttributes": {
                    "verb": grant.verb,
                    "group": grant.group,
                    "resource": resource,
                    "subresource": subresource,
                    "namespace": grant.namespace or "default",
                    "name": grant.name,
                },
            },
        }
        command = ("create", "-f", "-", "-o", "jsonpath={.status.allowed}")
        return await installed.cluster.kubectl(*command, stdin=json.dumps(review)) == "true"

    async def leads() -> bool:
        renewed = [
            one for one in installed.events(PLANNER) if (one.verb, one.resource) == ("update", "leases")
        ]
        if not renewed:
            raise NotYet("its Lease was not renewed yet")
        return True

    async def all_used() -> bool:
        found = unused(grants(manifests, PLANNER), installed.events(PLANNER))
        if found:
            raise NotYet(f"unused {sorted(found)}")
        return True

    await installed.come_up(scheduler=False)
    process, _ = await asyncio.to_thread(installed.release.start_service, "planner")
    await until("the planner leads", leads, every=0.5)
    async with installed.space() as space, installed.bus() as bus:
        classes = Classes(space)
        await classes.add("tolerant", 10, minimum=20, seconds=60)  # which is put on record
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(make_pod("low").priority("low").cpu(1))
        (pod,) = await space.create(make_pod("high").priority("high").cpu(1))
        assert await space.until_bound("high") == "n1"

        await until("the preemption is compared", lambda: bus.comparisons(pod.metadata.uid))
        await until("the planner has used what it is granted", all_used, every=0.5)
        await classes.remove()
    wrongly = [str(grant) for grant in REFUSED if await allowed(grant)]
    assert await allowed(Grant("update", "coordination.k8s.io", "leases", NAMESPACE, PLANNER))
    log = installed.release.log(process)

    assert wrongly == []
    assert denied(installed.events()) == []
    accounts = {event.user.rpartition(":")[2] for event in installed.events()}
    assert accounts == {PLANNER, "makeway-streams"}
    wrote = {(event.verb, event.resource) for event in installed.events(PLANNER) if event.verb not in READS}
    assert wrote == {
        ("create", "leases"),
        ("update", "leases"),
        ("create", "events"),
        ("patch", "configmaps"),
    }
    assert "ermissions violation" not in log
