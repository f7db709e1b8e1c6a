"""When `makeway check` hints at packing: where pods certainly wait for a resource that is free in pieces."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
import yaml

from makeway.cli.check import packing
from makeway.cli.check.packing import NAME, packing_result, spreading
from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult, report_of
from makeway.cli.connect.form import Form
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

GPU = "nvidia.com/gpu"
LACKS = (
    f"0/3 nodes are available: 2 Insufficient {GPU}, 1 node(s) had untolerated taint {{a: b}}. preemption: x."
)
NAMES = [{"name": "MakeWay"}]


def profile(name: str = "gpu", *, strategy: Any = None, **plugins: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"schedulerName": name, "plugins": {"multiPoint": {"enabled": NAMES}, **plugins}}
    if strategy is not None:
        made["pluginConfig"] = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]
    return made


def configuration(*profiles: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "KubeSchedulerConfiguration", "profiles": list(profiles), **more}


def a_pod(
    name: str, asks: int, node: str = "", *, resource: str = GPU, told: str = LACKS, **spec: Any
) -> Any:
    requests = {resource: str(asks), "cpu": "1"}
    made: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": name, "uid": name},
        "spec": {
            "schedulerName": "gpu",
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            **spec,
        },
        "status": {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": told}]},
    }
    if node:
        made["spec"]["nodeName"], made["status"] = node, {"phase": "Running"}
    return made


def a_node(name: str, gpus: int = 8, **spec: Any) -> Any:
    allocatable = {GPU: str(gpus), "example.com/fpga": "8", "cpu": "64"}
    return {
        "metadata": {"name": name, "uid": name, "labels": {"name": name}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


PIECES = [a_node("n1"), a_node("n2")]
USED = [a_pod("a", 4, "n1"), a_pod("b", 4, "n2")]
ASKS_8 = a_pod("big", 8)


class Cluster:
    """An API server with a scheduler's configuration, pods and nodes, a page of two after another."""

    def __init__(
        self,
        config: Any,
        waiting: list[Any],
        nodes: list[Any],
        placed: list[Any],
        fails: Exception | None = None,
    ) -> None:
        self._config, self._fails = config, fails
        self._lists = {"spec.nodeName=,status.phase=Pending": waiting, "": nodes}
        self._placed = placed
        self.read: list[str] = []

    async def request(
        self, _: str, path: str, *, query: Mapping[str, str] | None = None, **__: object
    ) -> bytes:
        self.read.append(path)
        if path.endswith("configmaps"):
            if self._config is None:
                return b'{"items": null}'
            data = {"config.yaml": yaml.safe_dump(self._config)}
            return json.dumps({"items": [{"metadata": {"name": "s"}, "data": data}]}).encode()
        if self._fails is not None and path.endswith("nodes"):
            raise self._fails
        query = query or {}
        items = self._lists.get(query.get("fieldSelector", ""), self._placed)
        first = int(query.get("continue", "0"))
        token = str(first + 2) if first + 2 < len(items) else ""
        return json.dumps({"metadata": {"continue": token}, "items": items[first : first + 2]}).encode()


SPREADS = configuration(profile())


async def looked(
    config: Any = SPREADS,
    waiting: list[Any] | None = None,
    nodes: list[Any] | None = None,
    placed: list[Any] | None = None,
    fails: Exception | None = None,
) -> tuple[list[CheckResult], Cluster]:
    cluster = Cluster(
        config,
        [ASKS_8] if waiting is None else waiting,
        PIECES if nodes is None else nodes,
        USED if placed is None else placed,
        fails,
    )
    at = CheckedCluster(cast("Api", cluster), "makeway-system", Form(), replaced=False)
    return list(await packing_result(at)), cluster


async def test_a_pod_that_what_is_free_on_several_nodes_would_hold_calls_for_packing() -> None:
    results, _ = await looked(waiting=[ASKS_8, a_pod("other", 6), a_pod("third", 2)])

    [result] = results
    assert (result.name, result.state) == (NAME, "warning")
    assert result.detail == (
        "profile gpu spreads pods by LeastAllocated: 2 pods waiting for nvidia.com/gpu, of which as much is "
        "free, on several nodes: shop/big (8), shop/other (6)"
    )
    assert "MostAllocated or RequestedToCapacityRatio" in result.remedy
    assert report_of(results).healthy, "a hint, no failure"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"waiting": []}, id="no pod waits"),
        pytest.param({"placed": []}, id="a node has room"),
        pytest.param({"placed": [a_pod("a", 8, "n1"), a_pod("b", 4, "n2")]}, id="too little is free in all"),
        pytest.param({"nodes": [PIECES[0], a_node("n2", unschedulable=True)]}, id="a node is cordoned"),
        pytest.param(
            {"nodes": [PIECES[0], a_node("n2", taints=[{"key": "a", "effect": "NoSchedule"}])]}, id="a taint"
        ),
        pytest.param({"waiting": [a_pod("big", 8, nodeSelector={"name": "n1"})]}, id="it selects one node"),
        pytest.param({"waiting": [a_pod("big", 8, schedulerName="other")]}, id="of another scheduler"),
        pytest.param(
            {"waiting": [a_pod("big", 8, told="0/2 nodes are available: 2 Insufficient cpu.")]}, id="cpu"
        ),
        pytest.param(
            {"waiting": [a_pod("big", 8, told=LACKS.replace("1 node(s) had", "1 node(s) x"))]},
            id="another reason",
        ),
        pytest.param({"waiting": [a_pod("big", 8, told="")]}, id="no message"),
        pytest.param({"config": None}, id="no configuration"),
        pytest.param({"fails": ApiError(403, "Forbidden", "no")}, id="nodes may not be read"),
        pytest.param({"fails": ApiError(410, "Expired", "too old")}, id="a page has expired"),
        pytest.param({"fails": ApiUnavailable("cut off")}, id="no answer"),
        pytest.param({"nodes": [*PIECES, {"metadata": 7}]}, id="an unreadable node"),
        pytest.param({"nodes": [*PIECES, a_node("n3", cast("int", "lots"))]}, id="an unreadable quantity"),
    ],
)
async def test_where_that_is_not_certain_nothing_is_said(changes: dict[str, Any]) -> None:
    results, _ = await looked(**changes)

    assert results == []


async def test_without_pods_that_wait_for_several_neither_nodes_nor_other_pods_are_read() -> None:
    _, packed = await looked(config=configuration(profile(strategy={"type": "MostAllocated"})))
    _, idle = await looked(waiting=[a_pod("one", 1)])

    assert [path.rpartition("/")[2] for path in packed.read] == ["configmaps"]
    assert [path.rpartition("/")[2] for path in idle.read] == ["configmaps", "pods"]


@pytest.mark.parametrize("limit", ["MOST_WAITING", "MOST_NODES", "MOST_PODS"])
async def test_nothing_is_said_of_too_much_to_read(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, nodes = [ASKS_8, a_pod("x", 2), a_pod("y", 2)], [*PIECES, a_node("n3", 0)]
    placed = [*USED, a_pod("c", 0, "n3")]
    assert (await looked(waiting=waiting, nodes=nodes, placed=placed))[0]
    monkeypatch.setattr(packing, limit, 2)

    results, cluster = await looked(waiting=waiting, nodes=nodes, placed=placed)

    assert results == []
    assert len(cluster.read) <= 1 + 2 + 2 + 1, "what is beyond the limit is not asked for"


@pytest.mark.parametrize(
    ("config", "profiles"),
    [
        (configuration(profile()), {"gpu"}),
        (configuration({"plugins": {}}), {"default-scheduler"}),
        (configuration(profile(strategy={"resources": [{"name": GPU, "weight": 5}]})), {"gpu"}),
        (
            configuration(
                profile(strategy={"type": "LeastAllocated"}), profile("packs", strategy={"type": "x"})
            ),
            {"gpu"},
        ),
        (configuration(profile(strategy={"type": "MostAllocated"})), set()),
        (configuration(profile(strategy={"type": "RequestedToCapacityRatio"})), set()),
        (configuration(profile(strategy="odd")), set()),
        (configuration(profile(score={"enabled": [{"name": "GpuBinPack"}]})), set()),
        (configuration(profile(multiPoint={"enabled": [*NAMES, {"name": "GpuBinPack"}]})), set()),
        (configuration(profile(score={"disabled": [{"name": "NodeResourcesFit"}]})), set()),
        (configuration(profile(multiPoint={"disabled": [{"name": "*"}]})), set()),
        (configuration(profile(score={"enabled": [{"name": "NodeResourcesFit", "weight": 9}]})), {"gpu"}),
        (configuration(profile(), extenders=[{"urlPrefix": "http://x"}]), set()),
        (configuration(), set()),
    ],
)
def test_a_profile_spreads_where_nothing_else_could_pack(config: dict[str, Any], profiles: set[str]) -> None:
    assert spreading([config]) == profiles


def test_a_profile_that_two_configurations_have_is_not_judged() -> None:
    assert spreading([configuration(profile()), configuration(profile())]) == set()
