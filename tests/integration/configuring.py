"""Put a policy in force on a running cluster, for the length of a block.

A deleted ConfigMap leaves the last policy in force, so what is left behind is one that says nothing.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import yaml

from integration.cluster import RunningCluster
from integration.scraping import Samples, scrape
from integration.waiting import NotYet, until, until_seen
from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.dev.options import EVICTOR, LIFTED_RATES, NOMINATOR, PLANNER
from makeway.runtime.config import revision_of

NAMESPACE = "makeway-system"
CONFIGMAP = "makeway-policy"
QUEUES_CONFIGMAP = "makeway-queues"
NO_LIMITS = "partitions: [{queues: []}]\n"


def policy_text(**fields: Any) -> str:
    """A policy of these fields, spelled as in YAML, with rates that hold up no test."""
    limits = dict(LIFTED_RATES) | fields.pop("limits", {})
    return "apiVersion: makeway.dev/v1\nkind: Policy\n" + yaml.safe_dump({"limits": limits, **fields})


NO_POLICY = policy_text()

HOLDING = {"namespaces": ["nowhere"]}
"""Protection of no pod that there is, with which nothing is evicted without a plan."""


async def put(cluster: RunningCluster, data: Mapping[str, str], name: str = CONFIGMAP) -> None:
    """Write a ConfigMap as a person would."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": dict(data),
    }
    await cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(manifest)
    )


async def put_policy(cluster: RunningCluster, text: str) -> None:
    """Write a policy and wait until everybody keeps to it."""
    await put(cluster, {"policy.yaml": text})
    await until_in_force(cluster, revision_of(text))


async def until_in_force(cluster: RunningCluster, revision: str) -> None:
    """Wait until all have a policy in force, or the control state that follows from it."""

    async def in_force() -> bool:
        planner, evictor = await readings(cluster)
        for name, samples in ((PLANNER, planner), (EVICTOR, evictor)):
            if not samples.total("makeway_config_info", config="policy", revision=revision):
                raise NotYet(f"{name} has another policy")
        state = await control_state(cluster)
        if state.policy_revision != revision:
            raise NotYet("the control state is of another policy")
        taken = evictor.total("makeway_evictor_control_revision")
        if taken != state.revision:
            raise NotYet(f"control state {state.revision} was published, {taken:.0f} taken")
        nominates = NOMINATOR in cluster.owned.options.components
        if nominates and await _nominators_revision(cluster) != state.revision:
            raise NotYet(f"the nominator has not taken control state {state.revision}")
        return True

    await until(f"policy {revision} is in force", in_force)


async def _nominators_revision(cluster: RunningCluster) -> int:
    """The least control state that a nominator goes by; 0 where none answers."""
    bus = await Bus.connect(cluster.info.nats_url, name="tests/configuration")
    try:
        answers = await bus.components.ask(0.3)
    finally:
        await bus.close()
    return min((one.revision for one in answers if one.component == "nominator"), default=0)


async def readings(cluster: RunningCluster) -> tuple[Samples, Samples]:
    """What planner and evictor say of themselves."""
    return await scrape(cluster.info.planner_url), await scrape(cluster.info.evictor_url)


@asynccontextmanager
async def policy(cluster: RunningCluster, **fields: Any) -> AsyncIterator[None]:
    """Have a policy of these fields in force inside the block, and one that says nothing after it."""
    await put_policy(cluster, policy_text(**fields))
    try:
        yield
    finally:
        await put_policy(cluster, NO_POLICY)


async def put_queues(cluster: RunningCluster, text: str) -> None:
    """Write queues and wait until the planner has them in force and has told their limits."""
    await put(cluster, {"queues.yaml": text}, QUEUES_CONFIGMAP)
    revision = revision_of(text)

    await until_seen(
        f"queues {revision} are in force",
        lambda: control_state(cluster),
        lambda state: state.queues_revision == revision,
    )


async def control_state(cluster: RunningCluster) -> ControlState:
    """The control state that was published last. Raises NotYet where there is none."""
    bus = await Bus.connect(cluster.info.nats_url, name="tests/configuration")
    try:
        state, _ = await bus.control()
    finally:
        await bus.close()
    if state is None:
        raise NotYet("there is no control state")
    return state


async def events_on(cluster: RunningCluster, configmap: str) -> str:
    """The Events of a ConfigMap, as kubectl shows them."""
    text = await cluster.kubectl("describe", "configmap", configmap, "-n", NAMESPACE)
    return text.partition("\nEvents:")[2]
