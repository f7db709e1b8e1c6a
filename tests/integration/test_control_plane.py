"""The control plane itself: what the other tests stand on."""

import json

import pytest

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.space import Space
from integration.waiting import until_seen
from makeway.runtime.kube import ApiError


async def test_the_audit_log_tells_who_deleted_what_on_which_condition(plain_space: Space) -> None:
    await plain_space.add_nodes(make_node("n1"))
    pod, _ = await plain_space.run(make_pod("a"), make_pod("b"))
    options = {"preconditions": {"uid": pod.metadata.uid}}
    path = f"/api/v1/namespaces/{plain_space.namespace}/pods"

    await plain_space.api.request("DELETE", f"{path}/a", body=json.dumps(options).encode())
    with pytest.raises(ApiError):
        await plain_space.api.request("DELETE", f"{path}/b", body=json.dumps(options).encode())
    await plain_space.until_gone("a")

    async def deletes() -> list[tuple[str, bool, str]]:
        events = plain_space.audit.events(
            verb="delete", resource="pods", namespace=plain_space.namespace, user="makeway-dev-admin"
        )
        return [(event.name, event.accepted, event.precondition_uid) for event in events]

    await until_seen("both deletes are in the audit log", deletes, lambda found: len(found) >= 2)
    assert await deletes() == [("a", True, pod.metadata.uid), ("b", False, pod.metadata.uid)]
    bindings = list(
        plain_space.audit.events(subresource="binding", namespace=plain_space.namespace, name="a")
    )
    assert [plain_space.short(event.target) for event in bindings] == ["n1"]
    assert bindings[0].user == "system:kube-scheduler"


async def test_no_account_is_refused_what_its_part_needs(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu(1))
    await space.run(make_pod("victim").priority("low").cpu(1))
    await space.create(make_pod("urgent").priority("high").cpu(1))
    await space.until_running("urgent")

    refused = [
        (event.user, event.verb, event.resource, event.subresource)
        for event in space.audit.events()
        if event.code == 403 and event.user.startswith("system:serviceaccount:makeway-system:")
    ]

    assert refused == []


async def test_without_the_fallback_the_scheduler_may_not_delete_pods(crash_cluster: RunningCluster) -> None:
    assert not crash_cluster.owned.options.fallback

    async with crash_cluster.connect("scheduler") as api:
        with pytest.raises(ApiError) as refused:
            await api.request("DELETE", "/api/v1/namespaces/default/pods/any")

    assert refused.value.status == 403
