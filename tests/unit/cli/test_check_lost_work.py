"""What `makeway check` says of annotations about saved work."""

import json
from collections.abc import Mapping
from typing import cast

import pytest

from makeway.cli.check.lost_work import MOST_PODS, judge, lost_work_result
from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.priority_classes import judge as judge_classes
from makeway.cli.connect.form import Form
from makeway.core.policy.lost_work import CHECKPOINT_INTERVAL, CHECKPOINTED_AT
from makeway.runtime.kube import Api
from unit.planner.building import make_class

HEAD = "apiVersion: makeway.dev/v1\nkind: Policy\n"
ON = HEAD + "lostWork: {rank: aboveSum}\n"
GROUPS = HEAD + "groups: {objective: [lostWork, victims]}\n"


class Pods:
    """An API server with a policy and pods, a page of two after another."""

    def __init__(self, policy: str, *saves: str | None) -> None:
        self._policy = policy
        self._saves = saves

    async def request(
        self, _: str, path: str, *, query: Mapping[str, str] | None = None, **__: object
    ) -> bytes:
        if path.endswith("makeway-policy"):
            return json.dumps({"metadata": {}, "data": {"policy.yaml": self._policy}}).encode()
        assert path == "/api/v1/pods"
        first = int((query or {}).get("continue", "0"))
        items = [
            {
                "metadata": {
                    "namespace": "shop",
                    "name": f"p{number}",
                    "annotations": None if save is None else {CHECKPOINTED_AT: save},
                }
            }
            for number, save in enumerate(self._saves)
        ]
        token = str(first + 2) if first + 2 < len(items) else ""
        return json.dumps({"metadata": {"continue": token}, "items": items[first : first + 2]}).encode()


async def looked(policy: str, *saves: str | None) -> list[tuple[str, str]]:
    at = CheckedCluster(cast("Api", Pods(policy, *saves)), "makeway-system", Form(), replaced=False)
    return [(one.state, one.detail) for one in await lost_work_result(at)]


@pytest.mark.parametrize("policy", ["", HEAD, "lostWork: 7"])
async def test_no_pod_is_read_where_no_policy_asks_for_lost_work(policy: str) -> None:
    assert await looked(policy, "soon") == []


@pytest.mark.parametrize("policy", [ON, GROUPS])
async def test_pods_whose_annotation_cannot_be_read_are_counted_and_named_on_all_pages(policy: str) -> None:
    saves = ("soon", None, "2026-11-27T20:15:00Z", "2026-11-27T20:15:00", "2026-11-27T20:15:00+01:00")

    assert await looked(policy, *saves) == [
        (
            "warning",
            "4 of 5 pods say when they saved; of 2 makeway.dev/checkpointed-at cannot be read, and counts as "
            "absent: shop/p0, shop/p3",
        )
    ]
    assert await looked(policy, *saves[1:3]) == [("ok", "1 of 2 pods say when they saved")]


def test_where_pods_are_left_it_says_so() -> None:
    assert judge(MOST_PODS, 7, (), more=True).detail == "7 of the first 20000 pods say when they saved"


def test_a_class_whose_interval_cannot_be_read_is_named() -> None:
    classes = [
        make_class(name, annotations={CHECKPOINT_INTERVAL: text})
        for name, text in (("a", "often"), ("b", "30m"))
    ]

    result = judge_classes(classes, nominator=False)

    assert result.state == "warning"
    assert result.detail == (
        "a: annotation makeway.dev/checkpoint-interval: 'often' is no duration; its pods count as never "
        "saving"
    )
