"""Changing the mode in a policy's text and nothing else in it: comments, order and spelling stay. Pure.

The text is edited where the parser says that the value stands. What comes out is read again, and has to be
the policy that went in with that one mode changed; else nothing is given but an error.
"""

from __future__ import annotations

from typing import Final

import msgspec
import yaml

from makeway.core.config.document import ConfigError
from makeway.core.policy.document import Policy, parse_policy
from makeway.core.policy.mode import Mode

NEW_POLICY: Final = """\
# What makeway may do; see docs/configuration.md. `makeway mode` changes the modes and leaves the rest alone.
apiVersion: makeway.dev/v1
kind: Policy
"""
"""What a policy begins as where there was none."""

_MODE: Final = "mode"
_NAMESPACE_MODES: Final = "namespaceModes"


class PolicyEditError(ValueError):
    """The text cannot be changed safely; the message says what to do by hand."""


def with_mode(policy: Policy, mode: Mode | None, namespace: str = "") -> Policy:
    """Return a policy with one mode changed. None takes a namespace's own mode away."""
    if not namespace:
        return policy if mode is None else msgspec.structs.replace(policy, mode=mode)
    modes = {name: own for name, own in policy.namespace_modes.items() if name != namespace}
    return msgspec.structs.replace(
        policy, namespace_modes={**modes, namespace: mode} if mode is not None else modes
    )


def set_mode(text: str, mode: Mode | None, namespace: str = "") -> str:
    """Return the text with the mode of the cluster, or of a namespace, changed. O(characters).

    `mode` None takes a namespace's own mode away, so that the cluster's holds for it.

    Raises:
        ConfigError: the text is no policy that is accepted, or the namespace's name is none.
        PolicyEditError: it is one, and yet the change cannot be made safely.
        ValueError: `mode` is None without a namespace.
    """
    if mode is None and not namespace:
        raise ValueError("the cluster's mode cannot be taken away")
    wanted = with_mode(parse_policy(text, "policy.yaml"), mode, namespace)
    if namespace:
        parse_policy(f'{NEW_POLICY}namespaceModes: {{"{namespace}": {mode or "off"}}}', "--namespace")
    changed = _edited(text, mode, namespace)
    try:
        if parse_policy(changed, "policy.yaml") == wanted:
            return changed
    except ConfigError:
        pass  # as good as another policy
    what = f"namespaceModes: {namespace}" if namespace else "mode"
    raise PolicyEditError(f"policy.yaml cannot be changed safely; edit {what} by hand")


def _edited(text: str, mode: Mode | None, namespace: str) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise PolicyEditError("policy.yaml is no mapping; edit it by hand")
    if not namespace:
        return _put(text, root, _MODE, f"{mode}")
    modes = _value(root, _NAMESPACE_MODES)
    if mode is None:
        if modes is None or _value(modes, namespace) is None:
            return text
        if len(modes.value) == 1:
            return _take(text, root, _NAMESPACE_MODES)
        return _take(text, modes, namespace)
    # Quoted where a bare name would be a number or a boolean to YAML.
    key = namespace if yaml.safe_load(namespace) == namespace else f'"{namespace}"'
    if modes is None:
        if root.flow_style:
            return _put(text, root, _NAMESPACE_MODES, f"{{{key}: {mode}}}")
        return _put(text, root, _NAMESPACE_MODES, f"\n  {key}: {mode}")
    return _put(text, modes, key, f"{mode}", named=namespace)


def _value(mapping: yaml.Node, key: str) -> yaml.Node | None:
    if not isinstance(mapping, yaml.MappingNode):
        return None
    return next((value for name, value in mapping.value if name.value == key), None)


def _put(text: str, mapping: yaml.Node, key: str, value: str, *, named: str = "") -> str:
    """Write a value in place of the key's, or key and value behind the mapping's last entry."""
    present = _value(mapping, named or key)
    if present is not None:
        return text[: present.start_mark.index] + value + text[present.end_mark.index :]
    if not isinstance(mapping, yaml.MappingNode):
        raise PolicyEditError(f"{key} has no place in policy.yaml; edit it by hand")
    if mapping.flow_style:
        at = mapping.end_mark.index - 1
        head = text[:at].rstrip()
        comma = "" if not mapping.value or head.endswith(",") else ", "
        quoted = key if key.startswith('"') else f'"{key}"'
        return f"{head}{comma}{quoted}: {value}{text[at:]}"
    name, last = mapping.value[0] if key == _MODE or not mapping.value else mapping.value[-1]
    indent = " " * name.start_mark.column
    colon = ":" if value.startswith("\n") else ": "
    at = _line_end(text, last)
    newline = "" if text[:at].endswith("\n") else "\n"
    return f"{text[:at]}{newline}{indent}{key}{colon}{value}\n{text[at:]}"


def _take(text: str, mapping: yaml.Node, key: str) -> str:
    """Take key and value out, with the line's comment."""
    if not isinstance(mapping, yaml.MappingNode) or mapping.flow_style:
        raise PolicyEditError(f"{key} is between braces in policy.yaml; remove it by hand")
    name, value = next(entry for entry in mapping.value if entry[0].value == key)
    start = text.rfind("\n", 0, name.start_mark.index) + 1
    return text[:start] + text[_line_end(text, value) :]


def _line_end(text: str, node: yaml.Node) -> int:
    """Where the line after a node's last begins. A block's end mark may stand behind comments that follow."""
    last = node
    while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
        entry = last.value[-1]
        last = entry[1] if isinstance(entry, tuple) else entry
    at = (
        max(last.end_mark.index - 1, last.start_mark.index)
        if last.end_mark.column == 0
        else last.end_mark.index
    )
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1
