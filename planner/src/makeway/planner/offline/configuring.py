"""Policy and queues for a world: from texts, as a running planner would take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from makeway.core import queues
from makeway.core.config.document import ConfigError
from makeway.core.policy import document as policy
from makeway.core.policy.document import parse_policy
from makeway.core.policy.toleration_record import RecordError, parse_record
from makeway.core.queues.parsing import parse_queues
from makeway.planner.offline.manifests import ManifestError, documents
from makeway.planner.offline.world import World
from makeway.planner.snapshot.changes import PutTolerationRecord
from makeway.planner.snapshot.exemptions import Source
from makeway.runtime.config import revision_of

POLICY_KEY: Final = policy.KEY
QUEUES_KEY: Final = queues.parsing.KEY


def enforce(world: World, text: str, where: str, source: Source | None = None) -> None:
    """Put the policy of a text in force. Raises ConfigError, ManifestError."""
    text = _of_configmap(text, where, POLICY_KEY)
    world.enforce(parse_policy(text, where), revision_of(text), source)


def adopt(world: World, text: str, where: str, source: Source | None = None) -> None:
    """Put the queues of a text in force. Raises ConfigError, ManifestError."""
    text = _of_configmap(text, where, QUEUES_KEY)
    world.adopt(parse_queues(text, where).tree, revision_of(text), source)


def take(world: World, key: str, text: str | None, source: Source) -> None:
    """Put in force what a ConfigMap holds under a key; what is refused is told, and not in force."""
    if text is None:
        return
    where = f"{source[0]} {source[1]}/{source[2]}"
    try:
        (enforce if key == POLICY_KEY else adopt)(world, text, where, source)
    except (ConfigError, ManifestError) as error:
        world.warnings.append(f"{where} is refused and not effective here: {error}")


def take_tolerations(world: World, data: Mapping[str, str] | None, where: str) -> None:
    """Take over the record of tolerations; where it cannot be used, told, any class that is gone protects."""
    try:
        classes = tuple(parse_record(data or {}).classes.values())
    except RecordError as error:
        world.warnings.append(f"{where}: {error}, so pods whose PriorityClass is gone stay")
        classes = None
    world.snapshot.apply(PutTolerationRecord(classes))


def _of_configmap(text: str, where: str, key: str) -> str:
    """Return what a ConfigMap manifest holds under a key; any other text as it is."""
    if "kind: ConfigMap" not in text and '"ConfigMap"' not in text:
        return text
    maps: list[dict[str, Any]] = [one for one in documents(text, where) if one.get("kind") == "ConfigMap"]
    held = [data[key] for one in maps if key in (data := one.get("data") or {})]
    if len(held) != 1:
        raise ManifestError(f"{where}: {len(held)} ConfigMaps in it have the key {key}; give one")
    return str(held[0])
