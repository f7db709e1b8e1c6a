"""The control plane itself: what the other tests stand on."""

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.processes import processes_of
from integration.space import Space
from integration.waiting import NotYet, until, until_seen
from makeway.dev.kwok import AFTER_GRACE, NEVER
from makeway.dev.options import NATS, ClusterOptions
from makeway.runtime.kube import ApiError
from narrowing import there

SMALL = ClusterOptions(components=frozenset({NATS}))


async def test_a_deleted_pod_leaves_at_once_or_as_its_annotation_says(plain_space: Space) -> None:
    await plain_space.add_nodes(make_node("n1"))
    await plain_space.run(
        make_pod("quick").grace(30),
        make_pod("slow").grace(3).leaves(AFTER_GRACE),
        make_pod("stuck").grace(1).leaves(NEVER),
    )

    began = time.monotonic()
    for name in ("quick", "slow", "stuck"):
        await plain_space.delete(name)
    await plain_space.until_gone("quick", seconds=2)
    await plain_space.until_gone("slow", seconds=8)

    assert time.monotonic() - began >= 2
    assert await plain_space.pod("stuck") is not None


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


@pytest.mark.tools
async def test_clusters_run_side_by_side_and_leave_nothing(private_cluster: PrivateCluster) -> None:
    first, second = await asyncio.gather(private_cluster(SMALL), private_cluster(SMALL))
    assert first.info.server != second.info.server
    assert await second.kubectl("get", "nodes") == ""

    await asyncio.to_thread(first.owned.stop)

    assert processes_of(first.info.directory) == []
    assert processes_of(second.info.directory) != []


@pytest.mark.tools
async def test_kill_minus_nine_of_the_owner_leaves_no_process(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OWNER, str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert await there(owner.stdout).readline() == b"started\n"
    assert len(processes_of(directory)) >= 5

    owner.kill()
    await owner.wait()

    async def none_left() -> bool:
        if left := processes_of(directory):
            raise NotYet(str(left))
        return True

    await until("every process of the cluster has ended", none_left, seconds=5)


_OWNER = """
import sys, time
from pathlib import Path
from makeway.dev.cluster import DevCluster
from makeway.dev.options import KWOK, NATS, SCHEDULER, ClusterOptions
options = ClusterOptions(components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False)
cluster = DevCluster(Path(sys.argv[1]), options).start()
print("started", flush=True)
time.sleep(600)
"""
