"""Which configurations a file holds, and what is wrong with them. Pure; nothing but texts in and values out.

A file may be a policy or queues, or a manifest with the ConfigMaps that hold them, with other objects
beside them. It is told by its content what a document is, by a ConfigMap's keys what a text in it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from makeway.core.config.document import ConfigError, Problem, YamlError, line_of, nodes_of
from makeway.core.policy import document as policy
from makeway.core.policy.document import Policy, PolicyLimits, lint_warnings, parse_policy
from makeway.core.policy.rates import pace_of_quotas, rates_of
from makeway.core.queues import parsing
from makeway.core.queues.parsing import Queues, parse_queues
from makeway.core.queues.quota_order import unenforced
from makeway.runtime.config import revision_of

KEYS: Final = {policy.KEY: "policy", parsing.KEY: "queues"}


@dataclass(frozen=True)
class Finding:
    """One configuration, or one document that is none. `source`: the file, and where it is in a ConfigMap.

    `kind` is policy or queues, or empty; `revision` names what was accepted. `alone`: in no ConfigMap.
    `notes`: what it comes to, where that is easily overlooked.
    """

    source: str
    kind: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    revision: str = ""
    alone: bool = False


def lint(text: str, source: str) -> list[Finding]:
    """Judge everything in a file. One that holds no configuration is a problem too."""
    try:
        found = nodes_of(text)
    except YamlError as error:
        return [Finding(source, "", (error.problem,))]
    findings = [finding for node in found for finding in _document(node, text, source)]
    if any(finding.alone for finding in findings) and len(found) > 1:
        # Read as a file, it would be refused.
        remedy = "keep one in a file; a manifest holds several in ConfigMaps"
        second = Problem("", "", "there is a second document", remedy, line_of(found[1]))
        return [Finding(source, "", (second,))]
    if findings:
        return findings
    remedy = f"give a policy, queues, or a ConfigMap with the key {' or '.join(KEYS)}"
    return [Finding(source, "", (Problem("", "", "holds no configuration", remedy),))]


def policy_in(text: str, source: str) -> tuple[str, str]:
    """Return the policy in the first ConfigMap that holds one, and where it is; else what was given."""
    try:
        found = nodes_of(text)
    except YamlError:
        return text, source
    for fields in map(_fields, found):
        held = _fields(fields.get("data")).get(policy.KEY)
        if isinstance(held, yaml.ScalarNode):
            return held.value, f"{source}({_text(_fields(fields.get('metadata')).get('name'))}/{policy.KEY})"
    return text, source


def _document(node: yaml.Node, text: str, source: str) -> Iterator[Finding]:
    fields = _fields(node)
    kind = _text(fields.get("kind"))
    if kind == "ConfigMap":
        yield from _configmap(fields, source)
    elif "partitions" in fields:
        yield replace(_judged("queues", text, source, 0), alone=True)
    elif kind == "Policy" or "apiVersion" not in fields or not kind:
        yield replace(_judged("policy", text, source, 0), alone=True)


def _configmap(fields: dict[str, yaml.Node], source: str) -> Iterator[Finding]:
    name = _text(_fields(fields.get("metadata")).get("name")) or "?"
    for key, node in _fields(fields.get("data")).items():
        if not (kind := KEYS.get(key, "")):
            continue
        where = f"{source}({name}/{key})"
        if isinstance(node, yaml.ScalarNode):
            # Lines can only be told where the text stands as it is.
            yield _judged(kind, node.value, where, line_of(node) if node.style == "|" else None)
        else:
            remedy = f"write `{key}: |` above it"
            problem = Problem(f"data.{key}", "", "is no text", remedy, line_of(node))
            yield Finding(where, kind, (problem,))


def _judged(kind: str, text: str, source: str, before: int | None) -> Finding:
    """Judge a text. `before`: how many lines of the file stand before it; None where that is not known."""
    parse: Callable[[str, str], Any] = parse_policy if kind == "policy" else parse_queues
    try:
        value = parse(text, source)
    except ConfigError as error:
        problems = tuple(
            replace(one, line=one.line + before if one.line and before is not None else 0)
            for one in error.problems
        )
        return Finding(source, kind, problems)
    warnings = lint_warnings(text, source) if kind == "policy" else value.warnings
    return Finding(source, kind, (), warnings, tuple(_notes(value)), revision_of(text))


def _notes(value: Policy | Queues) -> Iterator[str]:
    """Return how fast lowered quotas come down, where queues have any, or a policy has limits of its own."""
    if isinstance(value, Policy):
        if rates_of(value.limits, 0) != rates_of(PolicyLimits(), 0):
            yield pace_of_quotas(value.limits)
    elif any(not unenforced(value.tree, queue.path) for queue in value.tree):
        yield f"by the default limits of the policy, {pace_of_quotas(PolicyLimits())}"


def _fields(node: yaml.Node | None) -> dict[str, yaml.Node]:
    entries = node.value if isinstance(node, yaml.MappingNode) else ()
    return {key.value: value for key, value in entries if isinstance(key, yaml.ScalarNode)}


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
