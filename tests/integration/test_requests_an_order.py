"""What an order costs the API server, by verb, as the audit log has it."""

from collections import Counter

import pytest

from integration.preempting import full_nodes, taker
from integration.space import Space

VICTIMS = 4


@pytest.mark.both_forms
async def test_a_victim_takes_two_requests_and_its_preemptor_and_node_one_each(space: Space) -> None:
    await full_nodes(space, 1, VICTIMS)
    audit = space.cluster.audit()

    await taker(space, "p", VICTIMS)

    assert await space.until_bound("p", seconds=60) == "n1"
    evictor = space.cluster.accounts().evictor
    asked = Counter(
        (event.verb, event.resource, event.subresource)
        for event in audit.events(about=(evictor,), user=evictor)
        if event.resource in ("pods", "nodes") and event.namespace in ("", space.namespace)
    )
    looks = asked.pop(("get", "pods", "")), asked.pop(("get", "nodes", ""))
    assert looks in ((1, 1), (2, 2)), "a second look, where the last delete comes a second after the first"
    assert asked == Counter({("patch", "pods", "status"): VICTIMS, ("delete", "pods", ""): VICTIMS})
