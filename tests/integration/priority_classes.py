"""PriorityClasses of one test: they belong to no namespace."""

from typing import Any

from integration.space import Space
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def opted_in(name: str) -> dict[str, Any]:
    """Manifest of a class of high priority whose pods room is made for from outside the scheduler."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": {ANNOTATION: EXTERNAL}},
        "value": 100_000,
        "preemptionPolicy": "Never",
    }


class Classes:
    """Their names have the space's name in front."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.names: list[str] = []

    async def add(self, name: str, value: int, minimum: int | str | None = None, seconds: int = 0) -> str:
        """Make a class, with a toleration where a minimum is given; gives its name in the cluster."""
        return await self.annotated(name, value, {} if minimum is None else asking(minimum, seconds))

    async def annotated(self, name: str, value: int, annotations: dict[str, str]) -> str:
        """Make a class with annotations, opted in where preemption is from outside; gives its name."""
        full = f"{self.space.namespace}-{name}"
        policy = "PreemptLowerPriority"
        if self.space.cluster.external:
            annotations, policy = {**annotations, ANNOTATION: EXTERNAL}, "Never"
        metadata = {"name": full, "annotations": annotations}
        await self.space.post(CLASSES, {"metadata": metadata, "value": value, "preemptionPolicy": policy})
        self.names.append(full)
        return full

    async def ask(self, full: str, minimum: int, seconds: int) -> None:
        """Change what a class tolerates."""
        await self.space.merge(f"{CLASSES}/{full}", {"metadata": {"annotations": asking(minimum, seconds)}})

    async def delete(self, full: str) -> None:
        """Delete one while its pods run."""
        await self.space.api.request("DELETE", f"{CLASSES}/{full}")
        self.names.remove(full)

    async def remove(self) -> None:
        """Remove them all."""
        for name in self.names:
            await self.space.api.request("DELETE", f"{CLASSES}/{name}")


def asking(minimum: int | str, seconds: int) -> dict[str, str]:
    """Annotations of a class that tolerates."""
    return {MINIMUM_PREEMPTABLE_PRIORITY: str(minimum), TOLERATION_SECONDS: str(seconds)}
