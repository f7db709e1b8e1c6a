"""`simulate` has the API server complete a pod, or refuse it, and stores nothing."""

import asyncio
import json

import pytest

from integration.asking import Answer, ask
from integration.builders import PodBuilder, make_node, make_pod
from integration.space import Space
from integration.waiting import until_seen


async def simulated(space: Space, *pods: PodBuilder) -> list[Answer]:
    """Simulate pods of a space, and see that none of them is there afterwards."""
    manifests = json.dumps({"kind": "List", "items": [space.manifest(pod) for pod in pods]})
    report = await ask(space.cluster, "simulate", "-f", "-", stdin=manifests)
    assert await space.pods() == {}
    answers: list[Answer] = report["pods"]
    return answers


@pytest.mark.parametrize("limits", [{"defaultRequest": {"cpu": "600m"}}, {"default": {"cpu": "600m"}}])
async def test_limit_ranges_give_a_simulated_pod_its_requests(
    space: Space, limits: dict[str, dict[str, str]]
) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    path = f"/api/v1/namespaces/{space.namespace}/limitranges"
    item = {"type": "Container", **limits}
    await space.post(path, {"metadata": {"name": "defaults"}, "spec": {"limits": [item]}})
    # The API server's own view of limit ranges follows a moment later.
    await asyncio.sleep(1)

    small, bare = await simulated(space, make_pod("small").cpu("200m"), make_pod("bare"))

    assert small["result"] == "fits"
    assert bare["result"] == "refused"
    assert bare["nodesExcluded"]["Node too small: cpu"] == 1


async def test_the_api_servers_refusal_of_a_simulated_pod_is_told_in_its_words(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    path = f"/api/v1/namespaces/{space.namespace}/resourcequotas"
    await space.post(path, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "300m"}}})

    await until_seen(
        "the quota is counted",
        lambda: space.api.request("GET", f"{path}/team"),
        lambda seen: "used" in json.loads(seen).get("status", {}),
    )

    large, without, one = await simulated(
        space, make_pod("large").cpu("400m"), make_pod("without"), make_pod("one").cpu("200m")
    )

    assert large["diagnosis"]["reason"] == "NotAdmitted"
    assert large["diagnosis"]["message"] == (
        'pods "large" is forbidden: exceeded quota: team, requested: requests.cpu=400m, '
        "used: requests.cpu=0, limited: requests.cpu=300m"
    )
    assert "failed quota: team: must specify requests.cpu" in without["diagnosis"]["message"]
    assert one["result"] == "fits"
