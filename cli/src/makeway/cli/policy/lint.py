"""Which configurations a file holds, and what is wrong with them. Pure; nothing but texts in and values out.

A file may be a policy or queues, or a manifest with the ConfigMaps that hold them, with other objects
beside them. It is told by its content what a document is, by a ConfigMap's keys what a text in it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from makeway.core.config.document import ConfigError, Problem, did_you_mean
from makeway.core.config.yaml_tree import Mapping, Node, Scalar, YamlError, documents, split_documents
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
    findings = [
        finding
        for before, document in split_documents(text)
        for finding in _document(document, source, before)
    ]
    if len(findings) > 1 and any(finding.alone for finding in findings):
        # Read as a file, it would be refused.
        remedy = "keep one in a file; a manifest holds several in ConfigMaps"
        second = Problem("", "", "there is a second document", remedy)
        return [*findings, Finding(source, "", (second,))]
    if findings:
        # A file is named by all of its text, as whoever reads it names it.
        return [
            replace(one, revision=revision_of(text)) if one.alone and one.revision else one
            for one in findings
        ]
    remedy = f"give a policy, queues, or a ConfigMap with the key {' or '.join(KEYS)}"
    return [Finding(source, "", (Problem("", "", "holds no configuration", remedy),))]


def _document(text: str, source: str, before: int) -> Iterator[Finding]:
    try:
        found = documents(text)
    except YamlError as error:
        line = error.line + before if error.line else 0
        yield Finding(source, "", (Problem("", "", error.message, error.remedy, line),))
        return
    for node in found[:1]:
        fields = _fields(node)
        kind = _text(fields.get("kind"))
        if kind == "ConfigMap":
            yield from _configmap(fields, source, before)
        elif _is_queues(fields):
            yield replace(_judged("queues", text, source, before), alone=True)
        elif kind == "Policy" or "apiVersion" not in fields or not kind:
            yield replace(_judged("policy", text, source, before), alone=True)


def _is_queues(fields: dict[str, Node]) -> bool:
    return "partitions" in fields or (
        "kind" not in fields and any(did_you_mean(name, ("partitions",)) for name in fields)
    )


def _configmap(fields: dict[str, Node], source: str, before: int) -> Iterator[Finding]:
    name = _text(_fields(fields.get("metadata")).get("name")) or "?"
    for key, node in _fields(fields.get("data")).items():
        kind = KEYS.get(key, "")
        where, line, path = f"{source}({name}/{key})", before + node.line, f"data.{key}"
        if not kind:
            if meant := did_you_mean(key, tuple(KEYS)):
                yield Finding(where, "", (Problem(path, "", "is not read", f"did you mean {meant}?", line),))
        elif isinstance(node, Scalar):
            # Lines can only be told where the text stands as it is.
            yield _judged(kind, node.text, where, line if node.block else None)
        else:
            remedy = f"write `{key}: |` above it"
            yield Finding(where, kind, (Problem(path, "", "is no text", remedy, line),))


def _judged(kind: str, text: str, source: str, before: int | None) -> Finding:
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


def _fields(node: Node | None) -> dict[str, Node]:
    return {key.text: value for key, value in node.entries} if isinstance(node, Mapping) else {}


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""
