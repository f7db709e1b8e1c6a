"""What a policy may say, and how each mistake in one is told."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.config.document import MOST_PROBLEMS, ConfigError, Problem, and_others
from makeway.core.policy.document import Policy, lint_warnings, parse_policy
from makeway.core.policy.mode import Mode, more_restrictive

HEAD = "apiVersion: makeway.dev/v1\nkind: Policy\n"


def refused(text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        parse_policy(text, "policy.yaml")
    return list(caught.value.problems)


def the_problem(lines: str) -> Problem:
    (problem,) = refused(HEAD + lines)
    return problem


def test_a_policy_that_says_nothing_is_the_one_that_holds_without_any() -> None:
    assert parse_policy(HEAD, "policy.yaml") == Policy()


def test_every_field_is_read() -> None:
    policy = parse_policy(
        HEAD
        + """
mode: observe
namespaceModes: {team-a: off, "123": enforce}
disruptionBudgets: hard
hardBudgetNamespaces: [payments, "*"]
protection:
  namespaces: [kube-system]
  minimumPriority: -5
  neverEvictNamespaces: ["*"]
daemonSets:
  enabled: true
  preemption_start_delay: 1m30s
  preemption_victim_pods_selection_strategy: multiple,single
  single_max_deviation_percent: 0
  multiple_max_victims: 3
limits:
  victimsPerOrder: 100
  ordersInFlight: 500
""",
        "policy.yaml",
    )

    assert (policy.mode, policy.disruption_budgets) == ("observe", "hard")
    assert policy.hard_budget_namespaces == ("payments", "*")
    assert policy.namespace_modes == {"team-a": "off", "123": "enforce"}
    assert policy.protection.namespaces == ("kube-system",)
    assert (policy.protection.minimum_priority, policy.protection.never_evict_namespaces) == (-5, ("*",))
    daemon_sets = policy.daemon_sets
    assert (daemon_sets.enabled, daemon_sets.preemption_start_delay) == (True, timedelta(seconds=90))
    assert daemon_sets.preemption_victim_pods_selection_strategy == "multiple,single"
    assert (daemon_sets.single_max_deviation_percent, daemon_sets.multiple_max_victims) == (0, 3)
    assert (policy.limits.victims_per_order, policy.limits.orders_in_flight) == (100, 500)


def test_hard_budgets_hold_in_the_namespaces_that_the_policy_lists_and_in_no_other() -> None:
    listed = parse_policy(HEAD + "disruptionBudgets: hard\nhardBudgetNamespaces: [payments]", "policy.yaml")
    all_of_them = parse_policy(HEAD + "disruptionBudgets: hard\nhardBudgetNamespaces: ['*']", "policy.yaml")

    assert [listed.has_hard_budgets(name) for name in ("payments", "team-a")] == [True, False]
    assert [all_of_them.has_hard_budgets(name) for name in ("payments", "team-a")] == [True, True]


def test_hard_budgets_without_namespaces_are_refused_with_what_to_write() -> None:
    problem = the_problem("disruptionBudgets: hard\n")

    assert problem.describe("policy.yaml") == (
        "policy.yaml:3: disruptionBudgets: 'hard' does not say in which namespaces budgets are hard; list "
        'them in hardBudgetNamespaces, ["*"] for all: whoever may create budgets in one of them may keep its '
        "pods from ever being evicted"
    )


def test_the_terms_of_a_groups_price_are_named_once_and_in_order() -> None:
    policy = parse_policy(HEAD + "groups: {objective: [victims, budgets]}", "policy.yaml")
    assert policy.groups.objective == ("victims", "budgets")

    twice = the_problem("groups: {objective: [victims, budgets, victims]}\n")
    assert (twice.path, twice.remedy) == ("groups.objective", "name each term once, in its place")
    assert "victims" in twice.describe("policy.yaml")
    assert "sum" in the_problem("groups: {objective: [sum]}\n").describe("policy.yaml")


def test_namespaces_of_hard_budgets_alone_are_refused_as_they_would_do_nothing() -> None:
    assert the_problem("hardBudgetNamespaces: [payments]\n").path == "hardBudgetNamespaces"


def test_budgets_that_are_soft_for_a_while_keep_their_namespaces() -> None:
    policy = parse_policy(HEAD + "disruptionBudgets: soft\nhardBudgetNamespaces: [payments]", "policy.yaml")

    assert not policy.has_hard_budgets("payments")


def test_off_is_the_mode_and_not_a_boolean() -> None:
    assert parse_policy(HEAD + "mode: off", "policy.yaml").mode == "off"


def test_a_section_with_all_its_lines_commented_out_is_absent() -> None:
    assert parse_policy(HEAD + "limits:\n# victimsPerOrder: 3\n", "policy.yaml").limits == Policy().limits


def test_a_name_that_is_nearly_right_is_told_with_its_line_and_the_right_one() -> None:
    problem = the_problem("limits:\n  victimsPerOder: 3\n")

    assert problem.describe("policy.yaml") == (
        "policy.yaml:4: limits.victimsPerOder: is no field; did you mean victimsPerOrder?"
    )


def mistake(section: str, key: str, value: str, message: str) -> tuple[str, str, str, str]:
    """One wrong setting: its text and path, the value, and what is said of it."""
    return f"{section}: {{{key}: {value}}}", f"{section}.{key}", value, message


@pytest.mark.parametrize(
    ("line", "path", "value", "message"),
    [
        ("mode: enforced", "mode", "enforced", "is not allowed"),
        ("mode: [off]", "mode", "", "is not allowed"),
        ("namespaceModes: {Team-A: off}", "namespaceModes.Team-A", "Team-A", "is not allowed"),
        ("namespaceModes: {b: off, a: of}", "namespaceModes.a", "of", "is not allowed"),
        mistake("protection", "namespaces", "kube-system", "is not allowed"),
        ("protection: {namespaces: ['*']}", "protection.namespaces[0]", "*", "is not allowed"),
        mistake("protection", "minimumPriority", "1_000", "is not allowed"),
        mistake("protection", "minimumPriority", "2147483648", "is not allowed"),
        mistake("limits", "victimsPerOrder", "0", "is not allowed"),
        ("limits: 5", "limits", "5", "is not allowed"),
        mistake("daemonSets", "enabled", "on", "is not allowed"),
        mistake("daemonSets", "preemption_start_delay", "10 s", "is no duration"),
        mistake("daemonSets", "preemption_start_delay", "-1", "is negative"),
        ("daemonSets: {preemptionStartDelay: 1}", "daemonSets.preemptionStartDelay", "", "is no field"),
        ("daemonSets: {preemptionStartDelay: }", "daemonSets.preemptionStartDelay", "", "is no field"),
        ("kind: Policy", "kind", "", "is there twice, first on line 2"),
    ],
)
def test_each_mistake_has_path_value_and_a_remedy(line: str, path: str, value: str, message: str) -> None:
    problem = the_problem(line)

    assert (problem.path, problem.value, problem.message) == (path, value, message)
    assert problem.remedy
    assert problem.line == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("kind: Policy\nprotection:\n\tnamespaces: [a]\n", "is indented with a tab"),
        ("# nothing\n", "the file is empty"),
        ("mode: [", "is no YAML"),
        ("mode: \x00", "is no YAML"),
        ("a: &a 1\n", "has an anchor or an alias"),
        ("mode: !!str off\n", "has the tag"),
        ("? [a]\n: b\n", "has a key that is a list or a mapping"),
        ("[" * 100_000, "nests more than 50 deep"),
        (HEAD + "---\n" + HEAD, "there is a second document"),
        ("#" * (1 << 20) + "#", "has 1048577 characters"),
    ],
)
def test_what_is_not_yaml_that_is_accepted_is_told_so(text: str, message: str) -> None:
    (problem,) = refused(text)

    assert problem.message.startswith(message)


def test_all_problems_are_told_at_once_in_the_order_of_the_lines() -> None:
    problems = refused(
        "apiVersion: makeway.dev/v1\nmode: on\nlimit: {}\nlimits:\n  ordersInFlight: many\n"
        "daemonSets: {preemption_start_delay: 10 s}\npreemption: {rules: [{name: a, action: den}]}\n"
        "namespaceModes: {a: of}\nkind: Policies\n"
    )

    assert [problem.path for problem in problems] == [
        "mode",
        "limit",
        "limits.ordersInFlight",
        "daemonSets.preemption_start_delay",
        "preemption.rules[0].action",
        "namespaceModes.a",
        "kind",
    ]


def test_no_more_problems_are_looked_for_than_a_person_reads() -> None:
    problems = refused(HEAD + "".join(f"field{number}: 1\n" for number in range(1000)))

    assert [problem.path for problem in problems[:2]] == ["field0", "field1"]
    assert len(problems) == MOST_PROBLEMS + 1
    assert problems[-1].describe("p") == "p: has 980 more problems; mend these first"
    assert and_others(problems) == " (and 999 more)"


def test_what_is_to_be_written_is_said_in_words() -> None:
    assert the_problem("mode: on\n").remedy == "write one of enforce, observe, off"
    assert the_problem("namespaceModes: {a: on}\n").remedy == "write one of enforce, observe, off"
    assert the_problem("groups: {objective: []}\n").remedy == "write at least 1 value"
    assert the_problem("limits: {victimsPerOrder: 0}\n").remedy.startswith("write a whole number at least 1")
    assert the_problem("protection: {namespaces: [A]}\n").remedy == "write a namespace's name, such as team-a"


def test_problems_of_several_values_are_told_together() -> None:
    problems = refused(
        f"{HEAD}disruptionBudgets: hard\ngroups: {{objective: [victims, victims]}}\n"
        "daemonSets: {namespaces: [a], beyond_own_namespace: [b]}\n"
    )

    assert [problem.path for problem in problems] == [
        "disruptionBudgets",
        "groups.objective",
        "daemonSets.beyond_own_namespace",
    ]


def test_a_value_that_is_wrong_is_not_told_as_absent() -> None:
    problems = refused(f"{HEAD}disruptionBudgets: hard\nhardBudgetNamespaces: [Team]\n")

    assert [problem.path for problem in problems] == ["hardBudgetNamespaces[0]"]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "daemonSets: {namespaces: [kube-system], multiple_max_victims: 3}",
            "daemonSets.multiple_max_victims, daemonSets.namespaces have no effect while daemonSets.enabled "
            "is not true",
        ),
        ("daemonSets: {enabled: false}", None),
        ("daemonSets: {enabled: true, namespaces: [a], beyond_own_namespace: []}", None),
        (
            "daemonSets: {enabled: true, preemption_victim_pods_selection_strategy: single, "
            "multiple_max_victims: 3}",
            "daemonSets.multiple_max_victims has no effect while the strategy is single",
        ),
        (
            "daemonSets: {enabled: true, preemption_victim_pods_selection_strategy: multiple, "
            "single_max_deviation_percent: 3}",
            "daemonSets.single_max_deviation_percent has no effect while the strategy is multiple",
        ),
        ("mode: off\nnamespaceModes: {a: enforce}", "namespaceModes has no effect while mode is off"),
        (
            "disruptionBudgets: soft\nhardBudgetNamespaces: [a]",
            "hardBudgetNamespaces has no effect while disruptionBudgets is soft",
        ),
        (
            "lostWork: {longest: 1h}",
            "lostWork.longest has no effect while lostWork.rank is off and groups.objective does not name "
            "lostWork",
        ),
    ],
)
def test_lint_warns_of_a_setting_below_what_is_off(text: str, warning: str | None) -> None:
    assert list(lint_warnings(f"{HEAD}{text}\n", "policy.yaml")) == ([warning] if warning else [])


def test_the_more_restrictive_mode_wins() -> None:
    modes: list[Mode] = ["enforce", "observe", "off"]

    assert [[more_restrictive(a, b) for b in modes] for a in modes] == [
        ["enforce", "observe", "off"],
        ["observe", "observe", "off"],
        ["off", "off", "off"],
    ]


# ------------------------------------------------------------------------------------ properties

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
modes = st.sampled_from(["off", "observe", "enforce"])


budgets: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"disruptionBudgets": "soft"},
        {"disruptionBudgets": "hard", "hardBudgetNamespaces": ["*"]},
        {"disruptionBudgets": "hard", "hardBudgetNamespaces": ["payments", "a"]},
    ]
)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """The document of a policy that is right."""
    sections = {
        "mode": modes,
        "namespaceModes": st.dictionaries(names, modes, max_size=4),
        "protection": st.fixed_dictionaries(
            {},
            optional={
                "namespaces": st.lists(names, max_size=3),
                "minimumPriority": st.integers(-(2**31), 2**31 - 1),
                "neverEvictNamespaces": st.lists(names | st.just("*"), max_size=3),
            },
        ),
        "daemonSets": st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.booleans(),
                "preemption_start_delay": st.integers(0, 100_000) | st.sampled_from(["10s", "1h5m", "250ms"]),
                "multiple_max_victims": st.integers(1, 1000),
            },
        ),
        "limits": st.fixed_dictionaries(
            {}, optional={"victimsPerOrder": st.integers(1, 1000), "ordersInFlight": st.integers(1, 1000)}
        ),
    }
    return {
        "apiVersion": "makeway.dev/v1",
        "kind": "Policy",
        **draw(budgets),
        **draw(st.fixed_dictionaries({}, optional=sections)),
    }


@given(policies())
def test_a_policy_is_what_its_document_says(document: dict[str, Any]) -> None:
    policy = parse_policy(json.dumps(document), "policy.yaml")

    assert policy.mode == document.get("mode", "enforce")
    assert policy.namespace_modes == document.get("namespaceModes", {})
    assert list(policy.protection.namespaces) == document.get("protection", {}).get("namespaces", [])
    # Whoever keeps it may take it apart and compare it.
    assert msgspec.structs.replace(policy) == policy


class Quoting(yaml.SafeDumper):
    """PyYAML writes 08 and 1e5 without quotes; newer YAML, and so a policy, takes them for numbers."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


@given(policies(), st.data())
def test_one_unknown_field_anywhere_refuses_the_whole(document: dict[str, Any], data: st.DataObject) -> None:
    sections = [document, *(document[s] for s in ("protection", "daemonSets", "limits") if s in document)]
    data.draw(st.sampled_from(sections))["surprise"] = data.draw(
        st.integers() | st.none() | st.text(max_size=5)
    )

    (problem,) = refused(yaml.dump(document, Dumper=Quoting))

    assert problem.path.endswith("surprise")


@given(
    st.text(max_size=200)
    | st.text(min_size=1, max_size=9).map(lambda key: HEAD + yaml.safe_dump({key: 1}))
    | st.text("-:{}[]\"'&*!|>%@ \n\tab1#,?", max_size=80)
)
def test_any_text_is_a_policy_or_refused_with_its_problems(text: str) -> None:
    refusal = None
    try:
        parse_policy(text, "policy.yaml")
    except ConfigError as error:
        refusal = error

    if refusal is not None:
        assert refusal.problems
        assert all(problem.message and problem.remedy for problem in refusal.problems)
        assert len(str(refusal).splitlines()) == len(refusal.problems)


def test_a_value_of_another_type_is_told_in_words() -> None:
    text = HEAD + "mode: [a]\nprotection: 3\nhardBudgetNamespaces: {a: b}\n"

    with pytest.raises(ConfigError) as refused:
        parse_policy(text, "p")

    assert [problem.remedy for problem in refused.value.problems] == [
        "write one of enforce, observe, off",
        "write fields and their values",
        "write a list",
    ]
