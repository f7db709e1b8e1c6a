"""Policy and queues for a world: from texts, as a running planner would take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from makeway.core.config.document import ConfigError
from makeway.core.policy.document import parse_policy
from makeway.core.policy.toleration_record import CONFIGMAP, RecordError, parse_record
from makeway.core.queues.parsing import parse_queues
from makeway.planner.offline.manifests import ManifestError, documents
from makeway.planner.offline.world import World
from makeway.planner.snapshot.changes import PutTolerationRecord
from makeway.planner.snapshot.exemptions import Source
from makeway.runtime.config import revision_of
from makeway.runtime.config_kinds import POLICY, QUEUES


def enforce(world: World, text: str, where: str, source: Source | None = None) -> None:
    """Put the policy of a text in force. Raises ConfigError, ManifestError."""
    text = _of_configmap(text, where, POLICY.key)
    world.enforce(parse_policy(text, where), revision_of(text), source)


def adopt(world: World, text: str, where: str, source: Source | None = None) -> None:
    """Put the queues of a text in force. Raises ConfigError, ManifestError."""
    text = _of_configmap(text, where, QUEUES.key)
    world.adopt(parse_queues(text, where).tree, revision_of(text), source)


def take(world: World, maps: Mapping[str, Mapping[str, str]], namespace: str) -> None:
    """Put in force what makeway's ConfigMaps hold, by their names; what is refused is not, with a warning.

    Where the record of tolerations cannot be used, any class that is gone protects.
    """
    for kind in (POLICY, QUEUES):
        if (text := maps.get(kind.configmap, {}).get(kind.key)) is None:
            continue
        where = f"ConfigMap {namespace}/{kind.configmap}"
        try:
            put = enforce if kind is POLICY else adopt
            put(world, text, where, ("ConfigMap", namespace, kind.configmap))
        except (ConfigError, ManifestError) as error:
            world.warnings.append(f"{where} is refused and not effective here: {error}")
    if CONFIGMAP in maps:
        try:
            classes = tuple(parse_record(maps[CONFIGMAP]).classes.values())
        except RecordError as error:
            no_tolerations(world, namespace, str(error))
        else:
            world.snapshot.apply(PutTolerationRecord(classes))


def no_tolerations(world: World, namespace: str, why: str) -> None:
    """Let any class that is gone protect, and warn why."""
    world.warnings.append(
        f"ConfigMap {namespace}/{CONFIGMAP}: {why}, so pods whose PriorityClass is gone stay"
    )
    world.snapshot.apply(PutTolerationRecord(None))


def _of_configmap(text: str, where: str, key: str) -> str:
    """Return what a ConfigMap manifest holds under a key; any other text as it is."""
    if "kind: ConfigMap" not in text and '"ConfigMap"' not in text:
        return text
    maps: list[dict[str, Any]] = [one for one in documents(text, where) if one.get("kind") == "ConfigMap"]
    held = [data[key] for one in maps if key in (data := one.get("data") or {})]
    if len(held) != 1:
        raise ManifestError(f"{where}: {len(held)} ConfigMaps in it have the key {key}; give one")
    return str(held[0])
