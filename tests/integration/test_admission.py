"""What tokens of makeway's parts cannot do where the chart's admission policies are installed.

No part of makeway runs here: every request is made with a service account's own token, as whoever has stolen
it would. What their owners do with them, with the same policies installed, is what all other tests show.
"""

import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from integration.builders import NEVER_PREEMPTS, PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import NAMESPACE, NO_POLICY
from integration.space import Space
from integration.waiting import IN_FORCE_SECONDS, NotYet, until
from makeway.core.k8s.objects import Pod
from makeway.dev import kwok
from makeway.dev.access import ADMISSION
from makeway.dev.paths import ADMISSION_MANIFESTS, CHECKOUT
from makeway.runtime.kube import Api, ApiError

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GRACE = 30
MANY = 300
"""Containers and conditions of a large pod, each container with as many environment variables as fit."""

FOREIGN_ADDRESS = {"podIP": "10.66.66.66", "podIPs": [{"$patch": "replace"}, {"ip": "10.66.66.66"}]}

Patch = Mapping[str, Any]


def condition(kind: str, **more: str) -> Patch:
    return {"status": {"conditions": [{"type": kind, **more}]}}


KUBELETS: list[Patch] = [
    {"status": FOREIGN_ADDRESS},
    {"status": {"phase": "Failed"}},
    {"status": {"containerStatuses": None}},
]
CONDITIONS = [condition("Ready", status="False"), condition("Ready", **{"$patch": "delete"})]
METADATA: list[Patch] = [
    {"metadata": {"labels": {"app": "shop"}}},
    {"metadata": {"annotations": {"example.com/x": "1"}}},
    {"metadata": {"finalizers": ["example.com/x"]}},
]


def disruption_target() -> dict[str, Any]:
    """The mark, set just now: the disruption controller takes old ones off."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }


class StolenToken:
    """Whoever holds a token, and the pods that it is used on."""

    def __init__(self, space: Space, api: Api) -> None:
        self.space = space
        self.api = api

    async def pod(self, name: str) -> Pod:
        """A pod as it is."""
        found = await self.space.pod(name)
        assert found is not None
        return found

    async def delete(
        self,
        name: str,
        *,
        uid: bool = True,
        version: bool = True,
        grace: int | None = None,
        evict: bool = False,
    ) -> None:
        """Delete a pod, with these preconditions and this grace period."""
        metadata = (await self.pod(name)).metadata
        preconditions = {"uid": metadata.uid} if uid else {}
        preconditions |= {"resourceVersion": metadata.resource_version} if version else {}
        options: dict[str, Any] = {"preconditions": preconditions} if preconditions else {}
        options |= {} if grace is None else {"gracePeriodSeconds": grace}
        path = f"/api/v1/namespaces/{self.space.namespace}/pods/{name}"
        if evict:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            await self.api.request(
                "POST", f"{path}/eviction", body=json.dumps({**body, "deleteOptions": options}).encode()
            )
            return
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        await self.api.request("DELETE", path, body=json.dumps(body).encode())

    async def patch(self, name: str, patch: Patch, content_type: str = STRATEGIC) -> None:
        """Patch a pod's status."""
        path = f"/api/v1/namespaces/{self.space.namespace}/pods/{name}/status"
        await self.api.request("PATCH", path, body=json.dumps(patch).encode(), content_type=content_type)

    async def mark(self, name: str) -> None:
        """Set DisruptionTarget."""
        await self.patch(name, {"status": {"conditions": [disruption_target()]}})

    async def cannot_delete(self, name: str, because: str, **how: Any) -> None:
        """Try to delete it, and see the pod stay."""
        with pytest.raises(ApiError, match=because) as caught:
            await self.delete(name, **how)
        # A policy that cannot be evaluated answers 422.
        assert caught.value.status in (403, 422)
        assert (await self.pod(name)).metadata.deletion_timestamp is None

    async def cannot_patch(
        self, name: str, because: str, patch: Patch, content_type: str = STRATEGIC
    ) -> None:
        """Try to patch its status, and see it as it was."""
        before = (await self.pod(name)).metadata.resource_version
        with pytest.raises(ApiError, match=because) as caught:
            await self.patch(name, patch, content_type)
        assert caught.value.status == 403
        assert (await self.pod(name)).metadata.resource_version == before

    async def cannot_patch_by_any(self, name: str, patches: Mapping[str, Sequence[Patch]]) -> None:
        """Try each patch, and see each refused for the reason that is its key."""
        for because, ones in patches.items():
            for patch in ones:
                await self.cannot_patch(name, because, patch)


@pytest.fixture
def cluster(api_cluster: RunningCluster) -> RunningCluster:
    """Give a control plane without makeway."""
    return api_cluster


@pytest_asyncio.fixture
async def evictor(cluster: RunningCluster, space: Space) -> AsyncIterator[StolenToken]:
    """Give the evictor's token, and pod `a`, which runs."""
    async with _holder(cluster, space, "evictor") as holder:
        yield holder


@pytest_asyncio.fixture
async def scheduler(cluster: RunningCluster, space: Space) -> AsyncIterator[StolenToken]:
    """Give the scheduler's token, and pod `a`, which runs."""
    async with _holder(cluster, space, "scheduler") as holder:
        yield holder


@pytest_asyncio.fixture
async def nominator(cluster: RunningCluster, space: Space) -> AsyncIterator[StolenToken]:
    """Give the nominator's token, pod `a`, which runs, and `b`, which waits and may not preempt."""
    async with _holder(cluster, space, "nominator") as holder:
        await space.create(make_pod("b").priority(NEVER_PREEMPTS).spec(schedulerName="none"))
        yield holder


@asynccontextmanager
async def _holder(cluster: RunningCluster, space: Space, account: str) -> AsyncIterator[StolenToken]:
    space.judged = False
    await space.add_nodes(make_node("n1").cpu("100"))
    await space.run(lasting("a"))
    async with cluster.connect(account) as api:
        holder = StolenToken(space, api)
        # The last to be installed: where it is in force, all are.
        await until("the policies are in force", lambda: _bounded(holder), seconds=IN_FORCE_SECONDS)
        yield holder


async def _bounded(holder: StolenToken) -> bool:
    try:
        # Another value each time: the first may be let through, and what changes nothing is never refused.
        await holder.patch("a", {"metadata": {"labels": {"probe": str(time.monotonic_ns())}}})
    except ApiError as error:
        if "labels" in error.message:
            return True
        raise
    raise NotYet("not in force")


def lasting(name: str) -> PodBuilder:
    return make_pod(name).on("n1").grace(GRACE).leaves(kwok.NEVER)


@asynccontextmanager
async def parameters(holder: StolenToken, told: str, **data: str | None) -> AsyncIterator[None]:
    """Have other parameters inside the block. `told`: what a refusal says once they are in force.

    That is asked with the evictor's token, of pod `a`, which is marked; its grace period is looked at last.
    """
    api, path = holder.space.api, f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ADMISSION}"
    before = json.loads(await api.request("GET", path))["data"]

    async def put(data: Mapping[str, str | None], told: str) -> None:
        await api.request("PATCH", path, body=json.dumps({"data": data}).encode(), content_type=MERGE)

        async def in_force() -> bool:
            with pytest.raises(ApiError) as caught:
                await holder.delete("a", grace=0)
            if told not in caught.value.message:
                raise NotYet(caught.value.message)
            return True

        await until("the parameters are in force", in_force, seconds=IN_FORCE_SECONDS)

    try:
        await put(data, told)
        yield
    finally:
        await put(before, "own grace period")


class TestEvictor:
    async def test_a_marked_pod_is_deleted_as_it_was_judged(self, evictor: StolenToken) -> None:
        await evictor.mark("a")

        await evictor.delete("a")

        pod = await evictor.pod("a")
        assert pod.metadata.deletion_timestamp is not None
        assert pod.metadata.deletion_grace_period_seconds == GRACE

    @pytest.mark.parametrize("grace", [0, 1, GRACE - 1])
    async def test_no_grace_period_is_cut_short(self, evictor: StolenToken, grace: int) -> None:
        await evictor.mark("a")

        await evictor.cannot_delete("a", "own grace period", grace=grace)
        await evictor.cannot_delete("a", "own grace period", grace=grace, evict=True)

    @pytest.mark.parametrize("version", [False, True])
    async def test_no_pod_is_deleted_without_its_uid(self, evictor: StolenToken, version: bool) -> None:
        await evictor.mark("a")

        await evictor.cannot_delete("a", "names the UID", uid=False, version=version)
        await evictor.cannot_delete("a", "names the UID", uid=False, version=version, evict=True)

    async def test_a_marked_pod_is_deleted_by_its_uid_alone(self, evictor: StolenToken) -> None:
        await evictor.mark("a")

        await evictor.delete("a", version=False)

        assert (await evictor.pod("a")).metadata.deletion_timestamp is not None

    async def test_an_unmarked_pod_is_not_deleted(self, evictor: StolenToken) -> None:
        await evictor.cannot_delete("a", "DisruptionTarget")
        await evictor.space.patch(
            "a", {"status": {"conditions": [{**disruption_target(), "status": "False"}]}}, "status"
        )
        await evictor.cannot_delete("a", "DisruptionTarget")

    async def test_pods_of_the_system_priorities_are_not_deleted(self, evictor: StolenToken) -> None:
        space = evictor.space
        of_class = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}
        quota = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [of_class]}}
        await space.post(
            f"/api/v1/namespaces/{space.namespace}/resourcequotas",
            {"metadata": {"name": "critical"}, "spec": quota},
        )

        async def admitted() -> list[Pod]:
            try:
                return await space.create(lasting("system").priority("system-cluster-critical"))
            except ApiError as error:
                raise NotYet(str(error)) from error

        await until("the quota admits it", admitted, seconds=IN_FORCE_SECONDS)
        await space.until_running("system")
        await evictor.mark("system")

        await evictor.cannot_delete("system", "pods of priority 2000000000 and above are protected")

    async def test_pods_of_protected_namespaces_are_not_deleted(self, evictor: StolenToken) -> None:
        await evictor.mark("a")
        protected = {"protectedNamespaces": f"other {evictor.space.namespace}"}
        async with parameters(evictor, f"namespace {evictor.space.namespace} is protected", **protected):
            await evictor.cannot_delete("a", "is protected by ConfigMap makeway-admission")
            await evictor.cannot_delete("a", "is protected by ConfigMap makeway-admission", evict=True)

    async def test_evictions_are_for_namespaces_whose_budgets_are_hard(self, evictor: StolenToken) -> None:
        await evictor.mark("a")
        # What is waited for is another parameter: the question is a delete.
        async with parameters(evictor, "priority -5", hardBudgetNamespaces="other", protectedPriority="-5"):
            await evictor.cannot_delete("a", "disruption budgets are hard", evict=True)

    async def test_nothing_is_deleted_without_parameters(self, evictor: StolenToken) -> None:
        await evictor.mark("a")
        async with parameters(evictor, "no such key", protectedNamespaces=None):
            await evictor.cannot_delete("a", "no such key")

    async def test_an_eviction_passes_where_budgets_are_hard(self, evictor: StolenToken) -> None:
        await evictor.mark("a")

        await evictor.delete("a", evict=True)

        assert (await evictor.pod("a")).metadata.deletion_timestamp is not None

    async def test_a_pod_without_a_node_goes_at_once(self, evictor: StolenToken) -> None:
        await evictor.space.create(make_pod("b").grace(GRACE).spec(schedulerName="none"))
        await evictor.mark("b")

        await evictor.delete("b")

        await evictor.space.until_gone("b")

    async def test_mark_and_nomination_are_set_back(self, evictor: StolenToken) -> None:
        await evictor.space.create(make_pod("b").spec(schedulerName="none"))
        await evictor.space.patch("b", {"status": {"nominatedNodeName": "n1"}}, "status")
        before = {c.type for c in (await evictor.pod("a")).status.conditions or ()}

        await evictor.mark("a")
        await evictor.patch("a", condition("DisruptionTarget", **{"$patch": "delete"}))
        held = "makeway.dev/PreemptionHeld"
        await evictor.patch("b", condition(held, status="True", reason="VictimsShare"))
        assert held in {c.type for c in (await evictor.pod("b")).status.conditions or ()}
        await evictor.patch("b", condition(held, **{"$patch": "delete"}))
        await evictor.patch("b", {"status": {"nominatedNodeName": None}}, MERGE)

        assert {c.type for c in (await evictor.pod("a")).status.conditions or ()} == before
        assert not (await evictor.pod("b")).status.nominated_node_name

    async def test_a_status_is_changed_in_nothing_else(self, evictor: StolenToken) -> None:
        await evictor.cannot_patch_by_any(
            "a",
            {
                "nothing of a pod's status": [*KUBELETS, {"status": {"reason": "Evicted"}}],
                "no condition but": [*CONDITIONS, condition("example.com/x", status="True")],
                "no labels": METADATA,
            },
        )

    async def test_it_nominates_no_pod(self, evictor: StolenToken) -> None:
        await evictor.space.create(make_pod("b").spec(schedulerName="none"))

        await evictor.cannot_patch("b", "makes none", {"status": {"nominatedNodeName": "n1"}})


class TestScheduler:
    async def test_it_preempts_by_itself_as_kube_scheduler_does(self, scheduler: StolenToken) -> None:
        await scheduler.mark("a")

        await scheduler.delete("a", uid=False, version=False)

        assert (await scheduler.pod("a")).metadata.deletion_grace_period_seconds == GRACE

    async def test_it_nominates_and_tells_why_a_pod_is_not_scheduled(self, scheduler: StolenToken) -> None:
        await scheduler.space.create(make_pod("b").spec(schedulerName="none"))
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}

        await scheduler.patch("b", {"status": {"conditions": [unscheduled], "nominatedNodeName": "n1"}})
        await scheduler.patch("b", {"status": {"nominatedNodeName": None}})

        assert [c.reason for c in (await scheduler.pod("b")).status.conditions or ()] == ["Unschedulable"]

    async def test_it_deletes_no_pod_without_mark_and_grace_period(self, scheduler: StolenToken) -> None:
        await scheduler.cannot_delete("a", "DisruptionTarget")
        await scheduler.mark("a")
        await scheduler.cannot_delete("a", "own grace period", grace=0)

    async def test_pods_of_protected_namespaces_are_not_deleted(
        self, scheduler: StolenToken, cluster: RunningCluster
    ) -> None:
        await scheduler.mark("a")
        protected = {"protectedNamespaces": scheduler.space.namespace}
        async with (
            cluster.connect("evictor") as api,
            parameters(StolenToken(scheduler.space, api), "is protected", **protected),
        ):
            await scheduler.cannot_delete("a", "is protected by ConfigMap makeway-admission")

    async def test_pods_of_protected_priorities_are_not_deleted(
        self, scheduler: StolenToken, cluster: RunningCluster
    ) -> None:
        await scheduler.mark("a")
        async with (
            cluster.connect("evictor") as api,
            parameters(StolenToken(scheduler.space, api), "priority -5", protectedPriority="-5"),
        ):
            await scheduler.cannot_delete("a", "pods of priority -5 and above are protected")

    async def test_what_is_the_kubelets_stays(self, scheduler: StolenToken) -> None:
        refused = {"the kubelet's": KUBELETS, "no conditions but": CONDITIONS, "no labels": METADATA[:1]}
        await scheduler.cannot_patch_by_any("a", refused)


class TestNominator:
    async def test_a_pod_that_may_not_preempt_is_nominated_and_set_back(self, nominator: StolenToken) -> None:
        for node in ("n1", None):
            await nominator.patch("b", {"status": {"nominatedNodeName": node}}, MERGE)

            assert (await nominator.pod("b")).status.nominated_node_name == node

    async def test_a_pod_that_may_preempt_by_itself_is_not_nominated(self, nominator: StolenToken) -> None:
        await nominator.space.create(make_pod("c").priority("high").spec(schedulerName="none"))

        await nominator.cannot_patch(
            "c", "whose preemptionPolicy is Never", {"status": {"nominatedNodeName": "n1"}}
        )

    async def test_a_pod_that_is_bound_is_not_nominated(self, nominator: StolenToken) -> None:
        await nominator.space.run(lasting("bound").priority(NEVER_PREEMPTS))

        # Kubernetes 1.37 refuses it itself.
        with pytest.raises(ApiError, match=r"bound to (no|a) node") as caught:
            await nominator.patch("bound", {"status": {"nominatedNodeName": "n2"}})
        assert caught.value.status in (403, 422)

    async def test_a_nomination_that_stands_is_not_replaced(self, nominator: StolenToken) -> None:
        await nominator.space.patch("b", {"status": {"nominatedNodeName": "n1"}}, "status")

        await nominator.cannot_patch(
            "b", "replaces no nomination", {"status": {"nominatedNodeName": "n2"}}, MERGE
        )

    async def test_a_status_is_changed_in_nothing_else(self, nominator: StolenToken) -> None:
        others = [
            condition("PodScheduled", status="True"),
            {"status": {"reason": "Evicted"}},
            {"status": {"nominatedNodeName": "n1", "message": "x"}},
        ]
        await nominator.cannot_patch_by_any(
            "b", {"no status but": [*KUBELETS[:2], *others], "no labels": METADATA}
        )

    async def test_it_deletes_evicts_binds_and_changes_no_pod(self, nominator: StolenToken) -> None:
        await nominator.space.patch("a", {"status": {"conditions": [disruption_target()]}}, "status")
        pod = f"/api/v1/namespaces/{nominator.space.namespace}/pods/b"
        binding = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n1"}}

        await nominator.cannot_delete("a", "cannot delete resource")
        await nominator.cannot_delete("a", "cannot create resource", evict=True)
        for verb, path, body in (
            ("PATCH", pod, {"metadata": {"labels": {"app": "shop"}}}),
            ("POST", f"{pod}/binding", {"apiVersion": "v1", "kind": "Binding", **binding}),
        ):
            with pytest.raises(ApiError) as caught:
                await nominator.api.request(verb, path, body=json.dumps(body).encode(), content_type=MERGE)
            assert caught.value.status == 403


async def test_a_large_pod_is_nominated_within_what_policies_may_cost(nominator: StolenToken) -> None:
    space = nominator.space
    containers = [{"name": f"c{n}", "image": "example.com/none:1"} for n in range(MANY)]
    large = make_pod("large").priority(NEVER_PREEMPTS).spec(schedulerName="none", containers=containers)
    for number in range(MANY):
        large.annotation(f"example.com/a{number}", "x" * 100)
    await space.create(large)
    conditions = [{"type": f"example.com/c{n}", "status": "True", "message": "x" * 50} for n in range(MANY)]
    await space.patch("large", {"status": {"conditions": conditions}}, "status")

    await nominator.cannot_patch("large", "no status but", {"status": {"conditions": conditions[1:]}}, MERGE)
    await nominator.patch("large", {"status": {"nominatedNodeName": "n1"}}, MERGE)

    assert (await nominator.pod("large")).status.nominated_node_name == "n1"


@pytest.mark.parametrize("account", ["evictor", "scheduler"])
async def test_a_large_pod_stays_within_the_limits_of_what_policies_may_cost(
    account: str, cluster: RunningCluster, space: Space
) -> None:
    space.judged = False
    variables = [{"name": f"VARIABLE_{n}", "value": "x" * 20} for n in range(50)]
    containers = [{"name": f"c{n}", "image": "example.com/none:1", "env": variables} for n in range(MANY)]
    async with _holder(cluster, space, account) as holder:
        large = lasting("large").label("app", "large").spec(containers=containers)
        for number in range(MANY):
            large.annotation(f"example.com/a{number}", "x" * 100)
        await space.run(large)
        conditions = [
            {"type": f"example.com/c{n}", "status": "True", "message": "x" * 50} for n in range(MANY)
        ]
        path = f"/api/v1/namespaces/{space.namespace}/pods/large/status"
        body = json.dumps({"status": {"conditions": conditions}}).encode()
        await space.api.request("PATCH", path, body=body, content_type=STRATEGIC)

        await holder.cannot_patch(
            "large", "condition", {"status": {"conditions": [{**conditions[7], "status": "False"}]}}
        )
        await holder.mark("large")
        await holder.delete("large")

        pod = await holder.pod("large")
        assert len(pod.status.conditions or ()) > MANY
        assert pod.metadata.deletion_timestamp is not None


class TestDaemonSetOwners:
    """The optional policy: who writes that a pod belongs to a DaemonSet."""

    @pytest.fixture(autouse=True)
    def policy(self, cluster: RunningCluster) -> None:
        """Install it; it stays."""
        cluster.owned.api.apply_file(ADMISSION_MANIFESTS / "daemonset-owners.yaml")

    async def test_a_pod_with_a_forged_daemonset_as_owner_is_not_created(self, space: Space) -> None:
        space.judged = False
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
        manifest = space.manifest(make_pod("forged"))
        manifest["metadata"]["ownerReferences"] = [owner]

        async def refused() -> bool:
            try:
                await space.post(f"/api/v1/namespaces/{space.namespace}/pods?dryRun=All", manifest)
            except ApiError as error:
                return error.status == 403 and "only the DaemonSet controller" in error.message
            raise NotYet("created")

        assert await until("it is answered", refused, seconds=IN_FORCE_SECONDS)
        await space.create(make_pod("later"))
        with pytest.raises(ApiError, match="only the DaemonSet controller"):
            await space.patch("later", {"metadata": {"ownerReferences": [owner]}})
        other = {**owner, "apiVersion": "example.com/v1"}
        await space.patch("later", {"metadata": {"ownerReferences": [other]}})
        with pytest.raises(ApiError, match="only the DaemonSet controller"):
            await space.patch("later", {"metadata": {"ownerReferences": [owner]}})

    async def test_the_pods_of_a_daemonset_come_and_go(self, space: Space) -> None:
        space.judged = False
        await space.add_nodes(make_node("n1"))
        labels = {"app": "agent"}
        template = {"metadata": {"labels": labels}, "spec": space.pod_spec(make_pod("x").build()["spec"])}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await space.post(
            f"/apis/apps/v1/namespaces/{space.namespace}/daemonsets",
            {"metadata": {"name": "agent"}, "spec": spec},
        )

        async def owned() -> Pod:
            found = [p for p in (await space.pods()).values() if p.metadata.labels == p.metadata.labels]
            found = [
                p for p in found if any(o.kind == "DaemonSet" for o in p.metadata.owner_references or ())
            ]
            if not found:
                raise NotYet("no pod")
            return found[0]

        pod = await until("the DaemonSet has its pod", owned)
        await space.patch(pod.metadata.name, {"metadata": {"labels": {"more": "1"}}})


GOOD_POLICIES = {
    "empty": "",
    "a mode": "apiVersion: makeway.dev/v1\nkind: Policy\nmode: observe # for now\n",
    "a quoted mode": "mode: 'off'\r\n",
    "json": '{"apiVersion": "makeway.dev/v1",\n"mode": "enforce"\n}\n',
    "lists that are not indented": "mode: enforce\nprotection:\n  namespaces:\n  - kube-system\n",
}
BAD_POLICIES = {
    "an unknown mode": ("kind: Policy\nmode: enforced\n", "mode of policy.yaml is none of"),
    "a mode without a blank": ("mode:observe\n", "mode of policy.yaml is none of"),
    "a tab": ("mode: observe\nprotection:\n\tnamespaces: [a]\n", "indented by a tab"),
    "a line without a colon": ("mode: observe\nprotection\n", "has no colon"),
}


class TestPolicy:
    """A policy that makeway could not read is refused where it is written."""

    @pytest_asyncio.fixture(autouse=True)
    async def policy(self, cluster: RunningCluster, space: Space) -> AsyncIterator[None]:
        """Install the admission policy, for as long as these tests run."""
        space.judged = False
        manifest = ADMISSION_MANIFESTS / "policy.yaml"
        cluster.owned.api.apply_file(manifest)
        yield
        await cluster.kubectl("delete", "-f", str(manifest))

    async def write(self, space: Space, data: dict[str, str], name: str = "makeway-policy") -> None:
        """Try to write a ConfigMap of makeway's namespace."""
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await space.post(f"/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All", manifest)

    async def refused(self, space: Space, data: dict[str, str]) -> str:
        """Wait until a ConfigMap is refused by the admission policy; return the message."""

        async def message() -> str:
            try:
                await self.write(space, data)
            except ApiError as error:
                if error.status in (403, 422):
                    return error.message
            raise NotYet("written")

        return await until("the policy is refused", message, seconds=IN_FORCE_SECONDS)

    async def test_what_is_wrong_at_sight_is_refused_and_named(self, space: Space) -> None:
        for text, because in BAD_POLICIES.values():
            assert because in await self.refused(space, {"policy.yaml": text})
        assert "from the key policy.yaml" in await self.refused(space, {"policy.yml": "mode: off"})

    async def test_everything_else_is_left_to_makeway(self, space: Space) -> None:
        await self.refused(space, {"policy.yaml": "mode: never"})
        documented = [
            block
            for page in (CHECKOUT / "docs").rglob("*.md")
            for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
            if "kind: Policy\n" in block
        ]
        assert len(documented) >= 3

        for text in (*GOOD_POLICIES.values(), NO_POLICY, *documented):
            await self.write(space, {"policy.yaml": text})
        await self.write(space, {"policy.yaml": "mode: never"}, "another")
