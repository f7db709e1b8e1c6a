"""The control plane itself: what the other tests stand on."""

import asyncio
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import nats
import pytest

from builders_bus import make_order
from integration.builders import make_node, make_pod
from integration.bus_reader import BusReader
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.processes import processes_of
from integration.space import Space
from integration.waiting import NotYet, until, until_seen
from makeway.bus.codec import wrap
from makeway.bus.subjects import Subjects
from makeway.dev.kwok import AFTER_GRACE, NEVER
from makeway.dev.options import NATS, ClusterOptions
from makeway.runtime.kube import ApiError
from narrowing import there

SMALL = ClusterOptions(components=frozenset({NATS}))


async def test_a_pod_is_scheduled_and_runs_without_a_kubelet(plain_space: Space) -> None:
    await plain_space.add_nodes(make_node("n1").cpu(2))
    await plain_space.create(make_pod("a").cpu(1))

    pod = await plain_space.until_running("a")

    assert plain_space.short(pod.spec.node_name) == "n1"
    ready = {condition.type: condition.status for condition in pod.status.conditions or ()}
    assert ready["Ready"] == "True"


async def test_a_pod_that_does_not_fit_stays_pending(plain_space: Space) -> None:
    await plain_space.add_nodes(make_node("n1").cpu(1).resource("example.com/gpu", 1))
    await plain_space.run(make_pod("fits").resource("example.com/gpu", 1))
    await plain_space.create(make_pod("a").resource("example.com/gpu", 1))

    with pytest.raises(AssertionError, match=r"Insufficient example\.com/gpu"):
        await plain_space.until_bound("a", seconds=2)


async def test_a_pod_reports_the_start_time_its_test_gives_it(plain_space: Space) -> None:
    await plain_space.add_nodes(make_node("n1"))

    old, new = await plain_space.run(make_pod("old").on("n1").started(1), make_pod("new").on("n1").started(2))

    assert (there(new.status.start_time) - there(old.status.start_time)).total_seconds() == 1


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


async def test_controllers_keep_deployments_and_budgets(plain_space: Space) -> None:
    await plain_space.add_nodes(make_node("n1"))
    spec = make_pod("web").cpu("100m").build()["spec"]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": plain_space.pod_spec(spec)}
    await plain_space.post(
        f"/apis/apps/v1/namespaces/{plain_space.namespace}/deployments",
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    )

    await until_seen(
        "three pods of the Deployment run",
        plain_space.pods,
        lambda pods: [pod.status.phase for pod in pods.values()] == ["Running"] * 3,
    )
    await plain_space.disruption_budget("web", {"app": "web"}, minAvailable=2)


async def test_no_account_may_do_more_than_its_part(plain_cluster: RunningCluster) -> None:
    async def allowed(account: str, verb: str, resource: str, subresource: str = "") -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:makeway-system:makeway-{account}",
                "resourceAttributes": {
                    "namespace": "default",
                    "verb": verb,
                    "resource": resource,
                    "subresource": subresource,
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        async with plain_cluster.connect() as api:
            answer = json.loads(await api.request("POST", path, body=json.dumps(review).encode()))
        return bool(answer["status"]["allowed"])

    assert await allowed("evictor", "delete", "pods")
    assert await allowed("evictor", "patch", "pods", "status")
    # It looks for all members of a group that goes whole, and follows them.
    assert await allowed("evictor", "list", "pods")
    assert await allowed("evictor", "watch", "pods")
    assert not await allowed("evictor", "create", "pods")
    assert not await allowed("evictor", "get", "secrets")
    assert await allowed("planner", "watch", "pods")
    assert not await allowed("planner", "delete", "pods")
    assert not await allowed("planner", "patch", "pods", "status")
    assert await allowed("scheduler", "create", "pods", "binding")
    assert not await allowed("scheduler", "create", "pods")
    # Its fallback is on by default.
    assert await allowed("scheduler", "delete", "pods")


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


async def test_planner_evictor_and_scheduler_serve_their_metrics(cluster: RunningCluster) -> None:
    info = cluster.info
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        for url in (info.planner_url, info.evictor_url, info.scheduler_url):
            async with session.get(f"{url}/metrics", ssl=False) as answer:
                assert "makeway_" in await answer.text(), url


async def test_without_the_fallback_the_scheduler_may_not_delete_pods(crash_cluster: RunningCluster) -> None:
    assert not crash_cluster.owned.options.fallback

    async with crash_cluster.connect("scheduler") as api:
        with pytest.raises(ApiError) as refused:
            await api.request("DELETE", "/api/v1/namespaces/default/pods/any")

    assert refused.value.status == 403


async def test_a_killed_component_stays_away_until_it_is_started_again(plain_cluster: RunningCluster) -> None:
    before = plain_cluster.process("scheduler").pid
    await plain_cluster.kill("scheduler")
    await asyncio.sleep(1)
    assert plain_cluster.process("scheduler").pid is None

    await plain_cluster.start("scheduler")

    assert plain_cluster.process("scheduler").pid not in (None, before)


async def test_a_component_that_crashes_is_started_again(plain_cluster: RunningCluster) -> None:
    scheduler = plain_cluster.process("scheduler")
    before, restarts = scheduler.pid, scheduler.restarts

    scheduler.signal(signal.SIGKILL)

    async def another() -> bool:
        return scheduler.pid not in (None, before)

    await until("the scheduler is started again", another, seconds=5)
    assert scheduler.restarts == restarts + 1
    await asyncio.to_thread(scheduler.wait_ready)


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


async def test_what_was_said_on_the_bus_is_read_back_in_order(plain_cluster: RunningCluster) -> None:
    now = datetime.now(UTC)
    orders = [
        make_order(f"uid-{number % 2}", order_id=f"ord-{number}", created_at=now, not_after=now)
        for number in range(4)
    ]
    subjects = Subjects("reader-test")
    connection = await nats.connect(plain_cluster.info.nats_url)
    jetstream = connection.jetstream()
    reader = BusReader(jetstream, "reader-test")
    assert await reader.orders() == []

    await jetstream.add_stream(name=subjects.orders_stream, subjects=[subjects.orders])
    for order in orders:
        assert order.preemptor is not None
        await jetstream.publish(subjects.orders_of("pod", order.preemptor.uid), wrap(order, "makeway/test/1"))

    assert await reader.orders() == orders
    assert await reader.orders("uid-1") == [orders[1], orders[3]]
    assert await reader.outcomes("ord-1") == []
    await connection.close()


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
