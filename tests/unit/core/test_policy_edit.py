"""Changing the mode in a policy's text leaves everything else as it is."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.config.document import ConfigError
from makeway.core.policy.document import parse_policy
from makeway.core.policy.edit import NEW_POLICY, PolicyEditError, set_mode
from makeway.core.policy.mode import MODES, Mode

COMMENTED = """\
# yaml-language-server: $schema=https://makeway.dev/schemas/v1/policy.json
apiVersion: makeway.dev/v1
kind: Policy
mode: observe                  # plan and record, evict nothing ...
namespaceModes:
  team-a: enforce              # ... but for the pods of team-a

# Whom nobody touches.
protection:
  namespaces: [kube-system]
"""


def changed_lines(before: str, after: str) -> list[str]:
    return [line for line in after.splitlines() if line not in before.splitlines()]


def test_only_the_word_itself_changes_and_its_comment_stays() -> None:
    after = set_mode(COMMENTED, "enforce")

    assert after == COMMENTED.replace("mode: observe ", "mode: enforce ", 1)


def test_a_namespaces_mode_changes_in_its_place() -> None:
    assert set_mode(COMMENTED, "off", "team-a") == COMMENTED.replace("team-a: enforce", "team-a: off")


def test_a_namespace_is_added_behind_the_others_and_before_what_follows() -> None:
    after = set_mode(COMMENTED, "off", "team-b")

    assert changed_lines(COMMENTED, after) == ["  team-b: off"]
    assert after.index("team-a") < after.index("team-b") < after.index("# Whom nobody touches.")


def test_the_last_namespaces_mode_takes_its_heading_along() -> None:
    after = set_mode(COMMENTED, None, "team-a")

    assert "namespaceModes" not in after
    assert parse_policy(after, "p").namespace_modes == {}
    assert "# Whom nobody touches." in after


def test_one_namespace_of_several_is_taken_away_alone() -> None:
    two = set_mode(COMMENTED, "off", "team-b")

    assert set_mode(two, None, "team-a") == two.replace(
        "  team-a: enforce              # ... but for the pods of team-a\n", ""
    )
    assert set_mode(two, None, "nobody") == two


def test_a_policy_that_says_no_mode_gets_one_below_its_first_line() -> None:
    after = set_mode(NEW_POLICY, "observe")

    assert changed_lines(NEW_POLICY, after) == ["mode: observe"]
    assert set_mode(after, "off", "team-a").endswith("namespaceModes:\n  team-a: off\n")


def test_names_that_yaml_would_take_for_something_else_are_quoted() -> None:
    for name in ("123", "on", "null"):
        after = set_mode(COMMENTED, "off", name)
        assert parse_policy(after, "p").namespace_modes[name] == "off"


def test_json_and_braces_are_changed_in_place() -> None:
    text = '{"apiVersion": "makeway.dev/v1", "kind": "Policy", "mode": "off"}'

    after = set_mode(set_mode(text, "enforce"), "observe", "team-a")

    policy = parse_policy(after, "p")
    assert (policy.mode, policy.namespace_modes) == ("enforce", {"team-a": "observe"})


def test_a_text_that_is_refused_is_not_changed() -> None:
    with pytest.raises(ConfigError):
        set_mode(COMMENTED.replace("kind: Policy", "kind: Polity"), "off")


def test_a_namespace_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Team_A' is not allowed; write a namespace's name"):
        set_mode(COMMENTED, "off", "Team_A")


def test_a_namespace_between_braces_is_not_taken_out_by_guessing() -> None:
    text = NEW_POLICY + "namespaceModes: {a: off, b: off}\n"

    with pytest.raises(PolicyEditError, match="by hand"):
        set_mode(text, None, "a")


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
TEXTS = NAMES.filter(lambda name: not name[0].isdigit())
"""PyYAML writes 08 and 1e5 without quotes; newer YAML, and so a policy, takes them for numbers."""
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(MODES),
        "namespaceModes": st.dictionaries(NAMES, st.sampled_from(MODES), max_size=3),
        "protection": st.fixed_dictionaries({"namespaces": st.lists(TEXTS, max_size=2)}),
        "limits": st.just({"ordersInFlight": 7}),
    },
)


@given(POLICIES, st.booleans(), st.sampled_from(MODES), NAMES | st.just(""))
def test_whatever_the_policy_the_mode_is_set_and_all_else_stays(
    fields: dict[str, object], flow: bool, mode: Mode, namespace: str
) -> None:
    whole = {"apiVersion": "makeway.dev/v1", "kind": "Policy", **fields}
    text = yaml.safe_dump(whole, default_flow_style=flow)
    before = parse_policy(text, "p")

    edited = set_mode(text, mode, namespace)

    after = parse_policy(edited, "p")
    assert (after.namespace_modes[namespace] if namespace else after.mode) == mode
    assert (after.protection, after.limits) == (before.protection, before.limits)
    others = {name: own for name, own in before.namespace_modes.items() if name != namespace}
    assert others.items() <= after.namespace_modes.items()
    assert set_mode(edited, mode, namespace) == edited
