"""The worked examples of docs/policies, applied as they stand."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import NO_POLICY, put_policy, until_in_force
from integration.preempting import assert_stays_pending, deletes_of, first_decision, run_victims
from integration.space import Space
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.toleration import PreemptionToleration, toleration_of
from makeway.runtime.config import revision_of

PAGES = Path(__file__).parents[2] / "docs" / "policies"
EXAMPLES = sorted((PAGES.parents[1] / "examples" / "policies").glob("*.yaml"))


def example(page: str) -> str:
    """The manifests on a page, as a person would copy them."""
    # Blocks of manifests: others show a part of one.
    blocks = re.findall(
        r"^```yaml\n(apiVersion:.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE
    )
    assert blocks, f"{page} has no example"
    return "---\n".join(blocks)


async def test_the_classes_of_the_page_on_toleration_say_what_it_says(space: Space) -> None:
    manifests = example("toleration.md")
    try:
        await space.cluster.kubectl("apply", "-f", "-", stdin=manifests)
        found = {}
        for manifest in yaml.safe_load_all(manifests):
            name = manifest["metadata"]["name"]
            stored = await space.api.request("GET", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
            found[name] = toleration_of(msgspec.json.decode(stored, type=PriorityClass))
    finally:
        await space.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifests)

    assert found == {
        "batch": None,
        "batch-10m": PreemptionToleration(10_000, 600),
        "batch-uninterrupted": PreemptionToleration(10_000, -1),
        "service": None,
        "platform": None,
    }


@pytest.mark.both_forms(by_target=True)
@pytest.mark.parametrize("protected_by", ["never-evict", "hard-budget"])
async def test_the_policy_of_the_page_on_protection_protects(space: Space, protected_by: str) -> None:
    manifests = example("protection.md").replace("databases]", f"{space.namespace}]")
    (manifest,) = yaml.safe_load_all(manifests)
    await space.add_nodes(make_node("n1").cpu(2))
    victim = make_pod("victim").priority("low").cpu(2).label("app", "ledger")
    if protected_by == "never-evict":
        victim.annotation("makeway.dev/never-evict", "true")
    else:
        await space.disruption_budget("ledger", {"app": "ledger"}, minAvailable=1)
    await run_victims(space, victim)

    try:
        await space.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
        await until_in_force(space.cluster, revision_of(manifest["data"]["policy.yaml"]))
        (urgent,) = await space.create(make_pod("urgent").priority("high").cpu(2))
        await assert_stays_pending(space, "urgent", seconds=1)
        assert (await first_decision(space, urgent)).spared_by_rule == {protected_by: 1}
        assert deletes_of(space, "victim") == []
    finally:
        await put_policy(space.cluster, NO_POLICY)
    # Nothing protects the victim any more, and the pod that waits is tried again by itself.
    assert await space.until_bound("urgent") == "n1"


async def test_the_policy_of_the_page_on_daemonsets_makes_room_as_its_table_says(space: Space) -> None:
    page = example("daemonset.md").replace("logging", space.namespace)
    manifests, daemonset = page.split("---\n")
    (manifest,) = yaml.safe_load_all(manifests)
    space.simple_preemptor = True
    await space.add_nodes(make_node("node-a").cpu(4))
    await run_victims(
        space,
        make_pod("checkout").cpu(3),
        make_pod("reports").cpu("500m"),
        make_pod("thumbnails").cpu("500m").label("yunikorn.apache.org/allow-preemption", "false"),
    )

    try:
        await space.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
        await until_in_force(space.cluster, revision_of(manifest["data"]["policy.yaml"]))
        await space.cluster.kubectl("apply", "-n", space.namespace, "-f", "-", stdin=daemonset)
        await space.until_gone("reports")
        (shipper,) = [name for name in await space.pods() if name.startswith("log-shipper")]
        assert await space.until_bound(shipper) == "node-a"
        assert set(await space.pods()) == {"checkout", "thumbnails", shipper}
    finally:
        await put_policy(space.cluster, NO_POLICY)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_the_api_server_takes_each_example(gang_planning_cluster: RunningCluster, path: Path) -> None:
    kubectl = gang_planning_cluster.kubectl
    found = documents(path)
    # A policy would count for the tests that come next.
    ours = [one for one in found if one["kind"] == "ConfigMap"]
    others = [one for one in found if one not in ours]
    namespaces = {one["metadata"].get("namespace", "") for one in others} - {""}
    # Namespaces stay: one that is being deleted takes no object of the next example.
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one}} for one in namespaces]
    said = ""
    try:
        for manifests, options in ((made, ()), (ours, ("--dry-run=server",)), (others, ())):
            if manifests:
                text = yaml.safe_dump_all(manifests)
                said += await kubectl("apply", *options, "-f", "-", stdin=text)
    finally:
        if others:
            delete = ("delete", "--ignore-not-found", "--wait=false", "-f", "-")
            await kubectl(*delete, stdin=yaml.safe_dump_all(others))

    assert len(said.splitlines()) == len(made) + len(found)
