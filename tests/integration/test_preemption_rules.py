"""Who may preempt whom on the real control plane: a rule keeps the victim that would have gone."""

from typing import Any

from integration.builders import make_node
from integration.configuring import policy
from integration.preempting import deletes_of, first_decision, settle, sized
from integration.space import Space
from makeway.core.policy.preemption import NAMESPACE_NAME


async def test_a_rule_over_namespaces_and_classes_keeps_a_pod_so_that_another_goes(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await space.run(sized("kept", "low", 500).on("n1"))
    await space.run(sized("other", "mid", 500).on("n2"))
    rule = {
        "name": "low-stays",
        "preemptors": _classes_here(space, "high"),
        "victims": _classes_here(space, "low"),
        "action": "deny",
    }

    async with policy(space.cluster, preemption={"rules": [rule]}):
        await settle()
        (urgent,) = await space.create(sized("urgent", "high", 500))
        assert await space.until_bound("urgent") == "n2"

    assert (deletes_of(space, "kept"), len(deletes_of(space, "other"))) == ([], 1)
    assert [one.node for one in (await first_decision(space, urgent)).candidates] == [space.node_name("n2")]


def _classes_here(space: Space, name: str) -> dict[str, Any]:
    """Return a selector, each time a value of its own: a policy has no aliases."""
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: space.namespace}},
        "priorityClasses": [name],
    }
