"""`makeway policy lint`: files, manifests, stdin; for people and for programs."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from makeway.cli.main import app
from makeway.cli.policy.lint import lint
from makeway.core.config.document import ConfigError
from makeway.core.policy.document import parse_policy
from makeway.runtime.config import revision_of

POLICY = "apiVersion: makeway.dev/v1\nkind: Policy\nmode: observe\n"
QUEUES = "partitions:\n- name: default\n  queues:\n  - name: root\n"
MANIFEST = """\
apiVersion: v1
kind: Namespace
metadata: {name: makeway-system}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: makeway-policy
data:
  policy.yaml: |
    apiVersion: makeway.dev/v1
    kind: Policy
    mode: observed
  queues.yml: ""
---
apiVersion: v1
kind: ConfigMap
metadata: {name: makeway-queues}
data:
  queues.yaml: "partitions: []"
"""


def run(*arguments: str, stdin: str = "", exits: int | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["policy", "lint", *arguments], input=stdin)
    assert exits in (None, result.exit_code), result.output
    return result.exit_code, result.output


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    for name, text in (("policy.yaml", POLICY), ("q.yaml", QUEUES)):
        (tmp_path / name).write_text(text)
    return str(tmp_path / "policy.yaml"), str(tmp_path / "q.yaml")


def test_what_is_accepted_is_told_with_its_kind_and_coming_revision(files: tuple[str, str]) -> None:
    _, output = run(*files, exits=0)

    assert output.splitlines() == [
        f"{files[0]}: policy accepted, {revision_of(POLICY)}",
        f"{files[1]}: queues accepted, {revision_of(QUEUES)}",
    ]


def test_what_is_refused_ends_with_1_and_every_problem_on_a_line_of_its_own() -> None:
    twice = "groups: {objective: [victims, victims]}\ndisruptionBudgets: hard\n"
    _, output = run("-", stdin=POLICY + twice, exits=1)

    assert [line.split(": ")[:2] for line in output.splitlines()] == [
        ["<stdin>:4", "groups.objective"],
        ["<stdin>:5", "disruptionBudgets"],
    ]


def test_configmaps_in_a_manifest_are_judged_with_the_lines_of_the_manifest() -> None:
    _, output = run("-", stdin=MANIFEST, exits=1)

    assert output.splitlines() == [
        "<stdin>(makeway-policy/policy.yaml):13: mode: 'observed' is not allowed; "
        "write one of enforce, observe, off",
        *[line for line in output.splitlines() if "makeway-queues/queues.yaml" in line],
    ]
    assert "makeway-queues/queues.yaml" in output


def test_a_program_gets_one_document() -> None:
    code, output = run("-o", "json", "-", stdin=POLICY.replace("observe", "observed"))

    answer = json.loads(output)
    (result,) = answer["results"]
    (problem,) = result["problems"]
    assert (code, answer["accepted"], result["kind"]) == (1, False, "policy")
    assert (problem["path"], problem["line"], problem["value"]) == ("mode", 3, "observed")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "holds no configuration"),
        ("kind: Service\napiVersion: v1\n", "holds no configuration"),
        ("mode: observe\n", "apiVersion: is missing"),
        ("a: [", "is no YAML"),
        (POLICY + "---\n" + QUEUES, "there is a second document"),
        (MANIFEST.replace("policy.yaml: |\n    apiVersion", "policy.yaml:\n    apiVersion"), "is no text"),
    ],
)
def test_what_is_no_configuration_is_told_so(text: str, wanted: str) -> None:
    _, output = run("-", stdin=text, exits=1)

    assert wanted in output


def test_an_unreadable_file_keeps_no_other_from_being_judged(files: tuple[str, str]) -> None:
    _, output = run("/nowhere/policy.yaml", files[0], exits=1)

    assert "/nowhere/policy.yaml: cannot be read: no such file or directory" in output
    assert "policy accepted" in output


def test_without_a_file_the_usage_is_wrong() -> None:
    assert run()[0] == 2


@example("mode: observe\n---\n...\n")
@example("...\n---\n" + POLICY)
@given(
    st.lists(
        st.sampled_from(
            [POLICY, QUEUES, MANIFEST, "---\n", "...\n", "mode: off\n", "# a\n", "kind: Policy\n", "%\n"]
        ),
        max_size=4,
    ).map("".join)
)
def test_a_file_that_lint_accepts_as_a_policy_is_one_and_one_that_it_refuses_is_none(text: str) -> None:
    findings = lint(text, "policy.yaml")
    try:
        parse_policy(text, "policy.yaml")
        accepted = True
    except ConfigError:
        accepted = False

    alone = [finding for finding in findings if finding.alone and finding.kind == "policy"]
    if any(finding.problems for finding in findings):
        assert not accepted
    elif alone:
        assert accepted
        assert alone[0].revision == revision_of(text)


def test_how_fast_lowered_quotas_come_down_is_noted_where_a_file_has_any_or_limits() -> None:
    quotas = (
        "partitions:\n- preemption: {quotapreemptionenabled: true}\n  queues:\n"
        "  - {name: a, namespaces: [a], resources: {max: {vcore: 1}, quota.preemption.delay: 60}}\n"
        "  - {name: default, resources: {max: {vcore: 1}}}\n"
    )

    assert "note: by the default limits of the policy, for a lowered quota" in run("-", stdin=quotas)[1]
    assert "note" not in run("-", stdin=QUEUES)[1]
    assert "note" not in run("-", stdin=POLICY)[1]
    slow = run("-", stdin=POLICY + "limits: {victimsPerMinute: 5}\n")
    assert slow[0] == 0
    assert "note: for a lowered quota at most 4 pods of one queue go in a minute" in slow[1]


RULES = """\
apiVersion: makeway.dev/v1
kind: Policy
preemption:
  rules:
  - name: first
    preemptors: {priorityClasses: [urgent, prod], queues: [root.a]}
    victims:
      namespaceSelector: {matchLabels: {team: a}}
      labelSelector: {matchExpressions: [{key: keep, operator: DoesNotExist}]}
    action: allow
    minimumRunTime: 90s
  bands:
  - {classes: [prod], never: own}
"""


def test_rules_are_printed_in_their_order_with_those_of_bands(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(RULES)

    result = CliRunner().invoke(app, ["policy", "explain", str(file)])

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "1. first: allow once the victim has run 90 s, until then deny; "
        "preemptors: class urgent or prod, queue root.a; victims: namespace label team in (a), label !keep",
        "2. band-1: deny; preemptors: class prod; victims: class prod",
        "else: no rule keeps the victim; priorities, protection, budgets and the like hold anyway",
    ]


@pytest.mark.parametrize(("text", "wrong"), [(None, "cannot be read"), ("kind: Policy", "apiVersion")])
def test_a_policy_that_is_refused_is_not_explained(tmp_path: Path, text: str | None, wrong: str) -> None:
    file = tmp_path / "policy.yaml"
    if text is not None:
        file.write_text(text)

    result = CliRunner().invoke(app, ["policy", "explain", str(file)])

    assert result.exit_code == 1
    assert wrong in result.stdout


def test_a_policy_in_a_manifest_is_explained_as_one_in_a_file() -> None:
    """As `kubectl get cm makeway-policy -o yaml` prints it."""
    manifest = MANIFEST.replace("observed", "observe")

    result = CliRunner().invoke(app, ["policy", "explain", "-"], input=manifest)
    refused = CliRunner().invoke(app, ["policy", "explain", "-"], input=MANIFEST)

    assert (result.exit_code, result.stdout.partition(":")[0]) == (0, "always")
    assert refused.stdout.startswith("<stdin>(makeway-policy/policy.yaml):3: mode: 'observed' is not allowed")
