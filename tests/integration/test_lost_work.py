"""Lost work on the real control plane: what a pod says of its last save decides which node is chosen."""

import asyncio
from datetime import UTC, datetime

from integration.builders import make_node
from integration.configuring import NO_POLICY, policy_text, put_policy
from integration.preempting import deletes_of, first_decision, settle, sized
from integration.space import Space
from makeway.core.k8s.times import api_time
from makeway.core.policy.lost_work import CHECKPOINTED_AT
from makeway.dev.checker.history import InForce

_APART_SECONDS = 5


async def test_the_pod_that_has_just_saved_goes_and_not_the_one_that_started_last(space: Space) -> None:
    space.in_force = InForce(ranks_by_lost_work=True)
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await space.run(sized("saving", "low", 500).on("n1"))
    await space.run(sized("silent", "low", 500).on("n2"))
    await asyncio.sleep(_APART_SECONDS)
    await space.patch("saving", {"metadata": {"annotations": {CHECKPOINTED_AT: api_time(datetime.now(UTC))}}})

    try:
        await put_policy(space.cluster, policy_text(lostWork={"rank": "aboveSum"}))
        await settle()
        (urgent,) = await space.create(sized("urgent", "high", 500))
        assert await space.until_bound("urgent") == "n1"
    finally:
        await put_policy(space.cluster, NO_POLICY)

    assert (len(deletes_of(space, "saving")), deletes_of(space, "silent")) == (1, [])
    best, other = (await first_decision(space, urgent)).candidates
    assert best.decided_by == "least-lost-work"
    assert best.lost_work_seconds + _APART_SECONDS - 1 <= other.lost_work_seconds
