"""A NATS that speaks TLS alone and lets in who shows a certificate of its authority and has a known nkey."""

import pytest

from integration.asking import run
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import assert_only_ordered_pods_were_deleted, outcome_of_order, run_victims, sized
from integration.space import open_space

pytestmark = pytest.mark.wide


@pytest.mark.both_forms(by_target=True)
async def test_every_part_and_the_command_get_in_with_certificates_of_their_own(
    secured_cluster: RunningCluster,
) -> None:
    cluster = secured_cluster
    async with open_space(cluster) as space:
        await space.add_nodes(make_node("n1").cpu("500m"))
        await run_victims(space, sized("victim", "low", 500).on("n1"))
        (urgent,) = await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("urgent") == "n1"
        order, outcome = await outcome_of_order(space, urgent)
        assert ([victim.name for victim in order.victims], outcome.result) == (["victim"], "succeeded")
        await assert_only_ordered_pods_were_deleted(space, [urgent])

        # Where NATS is, and with what, stands in the ConfigMap of the installation and in its Secrets.
        why, checked, unreadable = [
            await run(cluster, *command)
            for command in (("why", "-n", space.namespace, "urgent"), ("check",), ("history", "--unreadable"))
        ]
        assert (why[0], f"order {order.order_id}" in why[1]) == (0, True), why
        assert checked[0] == 0, checked
        assert unreadable == (0, "", "no message was put aside\n")
