"""queues.yaml: what is read from it, what is refused, what is only named."""

from datetime import timedelta
from textwrap import dedent, indent

import pytest

from makeway.core.config.document import ConfigError
from makeway.core.queues.parsing import Queues, parse_queues
from makeway.core.queues.placement import place

WHOLE = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true, enabled: true}
    placementrules: [{name: tag, value: namespace, create: true}]
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: team-a
            namespaces: [team-a, team-a-dev]
            resources:
              guaranteed: {vcore: 2, memory: 10Gi}
              max: {vcore: "10", memory: 40Gi, nvidia.com/gpu: 4}
              quota.preemption.delay: 5m
              quota.preemption.miss: 20
            queues:
              - name: batch
                properties: {quota.preemption.delay: 90, application.sort.policy: fifo, priority.offset: "5"}
              - name: web
                namespaces: ["*"]
"""


def below_root(*queues: str) -> Queues:
    """Read a file with these queues below root."""
    return parse_queues(in_a_file(*queues), "queues.yaml")


def in_a_file(*queues: str) -> str:
    head = "partitions:\n- queues:\n  - name: root\n    queues:\n"
    return head + "".join(
        indent("- " + indent(dedent(queue).strip(), "  ")[2:], "    ") + "\n" for queue in queues
    )


def test_a_whole_file_becomes_a_tree() -> None:
    tree = parse_queues(WHOLE, "queues.yaml").tree
    team, batch, web = (tree.at(f"root.team-a{rest}") for rest in ("", ".batch", ".web"))

    assert [queue.path for queue in tree] == [
        "root",
        "root.team-a",
        "root.team-a.batch",
        "root.team-a.web",
        "root.default",
        "root.@unplaced",
    ]
    assert tree.quota_preemption
    assert team.guaranteed == {"cpu": 2000, "memory": 10 * 2**30}
    assert team.maximum == {"cpu": 10_000, "memory": 40 * 2**30, "nvidia.com/gpu": 4}
    assert (team.delay, team.miss_percent) == (timedelta(minutes=5), 20)
    assert (batch.delay, batch.miss_percent) == (timedelta(seconds=90), 100)
    assert team.namespaces == batch.namespaces == {"team-a", "team-a-dev"}
    assert not web.namespaces
    assert web.delay == timedelta(0)


def with_delay(delay: str, *, enabled: bool = True) -> Queues:
    switch = "partitions:\n- preemption: {quotapreemptionenabled: true}\n" if enabled else "partitions:\n-"
    text = f"  queues: [{{name: a, resources: {{max: {{vcore: 1}}, quota.preemption.delay: {delay}}}}}]\n"
    return parse_queues(switch + text if enabled else switch + text[1:], "queues.yaml")


def test_a_delay_that_never_evicts_is_warned_of() -> None:
    warning, *_ = with_delay("300", enabled=False).warnings

    assert "quota.preemption.delay of root.a has no effect" in warning
    assert "quotapreemptionenabled" in warning


def test_a_delay_too_short_to_take_a_mistake_back_is_warned_of() -> None:
    warning, *_ = with_delay("5").warnings

    assert "quota.preemption.delay of root.a is below 60s" in warning
    assert not [one for one in with_delay("60").warnings if "delay" in one]
    assert not [one for one in with_delay("0").warnings if "delay" in one]


def test_the_longest_delay_of_yunikorn_is_accepted() -> None:
    assert with_delay("2147483647").tree.at("root.a").delay == timedelta(seconds=2147483647)
    with pytest.raises(ConfigError, match="longer than 2147483647 s"):
        with_delay("2147483648")


def test_what_has_no_meaning_here_is_accepted_and_named() -> None:
    warnings = parse_queues(WHOLE, "queues.yaml").warnings

    named = [warning.partition(" ")[0] for warning in warnings if "meaning" in warning]
    assert named == [
        "partitions[0].placementrules",
        "partitions[0].queues[0].submitacl",
        "partitions[0].queues[0].queues[0].queues[0].properties.application.sort.policy",
        "partitions[0].queues[0].queues[0].queues[0].properties.priority.offset",
    ]
    assert "of root.team-a.batch" in [one for one in warnings if "meaning" in one][-1]


GUARANTEED = "queues: [{name: a, resources: {guaranteed: {vcore: 1}}}, {name: b}]"


def with_preemption(preemption: str, queues: str = GUARANTEED) -> Queues:
    return parse_queues(f"partitions: [{{preemption: {{{preemption}}}, {queues}}}]", "queues.yaml")


def test_queues_take_back_what_others_use_only_where_that_is_turned_on() -> None:
    assert with_preemption("enabled: true").tree.reclaim
    assert not with_preemption("enabled: false").tree.reclaim
    assert not with_preemption("quotapreemptionenabled: true").tree.reclaim


def test_owners_of_a_file_without_the_switch_learn_what_a_guarantee_does_not_do_here() -> None:
    (warning,) = with_preemption("").warnings

    assert "guaranteed of root.a keeps the queue's own pods and, unlike in YuniKorn, takes nothing" in warning
    assert not with_preemption("enabled: true").warnings
    assert not with_preemption("enabled: false").warnings
    assert not with_preemption("", "queues: [{name: a}]").warnings


def test_reclaim_without_a_guarantee_and_limits_of_reclaim_without_it_are_warned_of() -> None:
    fenced = "queues: [{name: a, properties: {preemption.policy: fence}}]"

    assert "no queue has a guarantee" in with_preemption("enabled: true", fenced).warnings[0]
    assert (
        "preemption.policy of root.a has no effect" in with_preemption("enabled: false", fenced).warnings[0]
    )


def test_a_fence_is_of_its_own_queue_and_what_is_disabled_of_all_below_it() -> None:
    tree = below_root(
        """
        name: a
        properties: {preemption.policy: Fence}
        queues: [{name: b}]
        """,
        """
        name: c
        properties: {preemption.policy: disabled}
        queues: [{name: d}, {name: e, properties: {preemption.policy: default}}]
        """,
    ).tree

    assert [queue.path for queue in tree if queue.fenced] == ["root.a"]
    assert [queue.path for queue in tree if not queue.lends] == ["root.c", "root.c.d"]
    with pytest.raises(ConfigError, match="write default, fence or disabled"):
        below_root("{name: a, properties: {preemption.policy: never}}")


def test_quota_preemption_is_off_unless_it_is_turned_on() -> None:
    assert not below_root("name: a").tree.quota_preemption


def test_without_a_root_one_is_put_on_top_and_the_default_queue_is_always_there() -> None:
    tree = parse_queues("partitions: [{queues: [{name: a}, {name: b}]}]", "queues.yaml").tree

    assert [queue.path for queue in tree] == ["root", "root.a", "root.b", "root.default"]


def test_a_template_for_queues_made_on_the_way_changes_nothing() -> None:
    found = below_root("{name: a, childtemplate: {resources: {max: {memory: 1G}}}}")

    assert not found.tree.at("root.a").maximum
    assert len(found.warnings) == 1


def setting(section: str, key: str, value: str, says: str) -> tuple[str, str, str, str]:
    """A queue with one setting, whose key has periods: its text and path, the value, and what is said."""
    return f"{{name: a, {section}: {{{key}: {value}}}}}", f"{section}.{key}", value, says


@pytest.mark.parametrize(
    ("queue", "path", "value", "says"),
    [
        ("{name: a, resources: {max: {memory: 10K}}}", "resources.max.memory", "10K", "suffix"),
        ("{name: a, resources: {max: {memory: 1.5Gi}}}", "resources.max.memory", "1.5Gi", "whole number"),
        ("{name: a, resources: {max: {memory: -1}}}", "resources.max.memory", "-1", "negative"),
        ("{name: a, resources: {guaranteed: {vcore: .inf}}}", "resources.guaranteed.vcore", ".inf", "cores"),
        ("{name: a, resources: {max: {cpus: 1}}}", "resources.max.cpus", "1", "vcore"),
        ("{name: a, resources: {max: {cpu: 1, vcore: 1}}}", "resources.max.vcore", "1", "twice"),
        setting("resources", "quota.preemption.delay", "-5", "negative"),
        setting("resources", "quota.preemption.delay", "soon", "no duration"),
        setting("properties", "quota.preemption.delay", "1 hour", "no duration"),
        (
            "{name: a, resources: {quota.preemption.delay: 5}, properties: {quota.preemption.delay: 6}}",
            "properties.quota.preemption.delay",
            "6",
            "under resources",
        ),
        setting("resources", "quota.preemption.miss", "101", "at most 100"),
        setting("properties", "quota.preemption.miss", "10%", "percentage"),
        ("{name: a, resources: {maximum: {memory: 1}}}", "resources.maximum", "", "did you mean max"),
        ("{name: a.b}", "name", "a.b", "one part"),
        ("{name: a, namespaces: []}", "namespaces", "", "names no namespace"),
        ("{name: a, namespaces: [Team]}", "namespaces[0]", "Team", "namespace's name"),
    ],
)
def test_a_malformed_value_is_refused_with_its_place_and_what_to_write(
    queue: str, path: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        below_root(queue)

    (problem,) = refused.value.problems
    assert problem.path == f"partitions[0].queues[0].queues[0].{path}"
    assert problem.value == value
    assert says in f"{problem.message}; {problem.remedy}"
    assert problem.line > 0


@pytest.mark.parametrize(
    ("queue", "path", "says"),
    [
        (
            "{name: a, resources: {guaranteed: {memory: 9G}, max: {memory: 9G}, quota.preemption.delay: 1}}",
            "resources.max.memory",
            "not above the guaranteed 9G of root.a",
        ),
        (
            "{name: a, resources: {guaranteed: {memory: 11G}, max: {memory: 10G}}}",
            "resources.max.memory",
            "less than the 11G guaranteed in root.a",
        ),
        (
            "{name: a, resources: {guaranteed: {vcore: 3}},"
            " queues: [{name: b, resources: {guaranteed: {vcore: 2}}},"
            " {name: c, resources: {guaranteed: {vcore: 2}}}]}",
            "resources.guaranteed.vcore",
            "less than the 4 guaranteed to the queues below root.a",
        ),
        (
            "{name: a, resources: {max: {memory: 3G}},"
            " queues: [{name: b, resources: {guaranteed: {memory: 4G}}}]}",
            "queues[0].resources.guaranteed.memory",
            "more than root.a may use",
        ),
        (
            "{name: a, resources: {max: {memory: 3G}},"
            " queues: [{name: b, resources: {guaranteed: {memory: 2G}}},"
            " {name: c, resources: {guaranteed: {memory: 2G}}}]}",
            "resources.max.memory",
            "less than the 4G guaranteed in root.a",
        ),
        ("{name: default, queues: [{name: a}]}", "queues", "below root.default"),
        ("{name: default, namespaces: [a]}", "namespaces", "too few"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused_with_the_queues_path(queue: str, path: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        below_root(queue)

    assert f"partitions[0].queues[0].queues[0].{path}" in [one.path for one in refused.value.problems]
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "queue",
    [
        "{name: a, resources: {guaranteed: {memory: 10G}, max: {memory: 10G}}}",
        "{name: a, resources: {guaranteed: {pods: 8, vcore: 5}, max: {pods: 9}, quota.preemption.delay: 1}}",
        "{name: a, resources: {guaranteed: {memory: 0}, max: {memory: 0}, quota.preemption.delay: 1}}",
        "{name: a, resources: {max: {memory: 1G}}, queues: [{name: b, resources: {max: {memory: 2G}}}]}",
        "{name: a, resources: {max: {pods: 4}}, queues: [{name: b, resources: {guaranteed: {pods: 4}}}]}",
    ],
)
def test_a_tree_at_the_edge_of_sense_is_accepted(queue: str) -> None:
    assert below_root(queue).tree.find("root.a")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("partitions: []", "exactly one"),
        ("partitions: [{queues: []}, {queues: []}]", "exactly one"),
        ("partitions: [{queues: [{name: a}, {name: A}]}]", "another queue"),
        ("partitions: [{queues: [{name: a}, {name: root}]}]", "beside other queues"),
        ("queues: []", "is no field"),
        ("", "empty"),
        ("partitions: {", "queues.yaml"),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_queues(text, "queues.yaml")


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        below_root(
            "{name: a, resources: {max: {memory: x, vcore: y}}}", "{name: b, resources: {max: {memory: -1}}}"
        )

    assert len(refused.value.problems) == 3
    assert all(problem.remedy for problem in refused.value.problems)


def test_an_amount_that_is_not_written_is_refused_as_it_would_be_no_limit() -> None:
    with pytest.raises(ConfigError, match="got `null`"):
        below_root("{name: a, resources: {max: {memory: }}}")


def test_no_partition_that_can_be_read_is_not_told_as_none() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_queues("partitions: [{name: default}]", "queues.yaml")

    assert [problem.path for problem in refused.value.problems] == ["partitions[0].queues"]


def test_a_miss_without_a_delay_is_warned_of() -> None:
    found = below_root("{name: a, resources: {quota.preemption.miss: 5}}")

    told = "quota.preemption.miss of root.a has no effect without quota.preemption.delay"
    assert any(one.startswith(told) for one in found.warnings)


def limited(rest: str = "", unplaced: str = "") -> Queues:
    """A leaf with a max, and more below root."""
    said = f"unplaced: {unplaced}, " if unplaced else ""
    leaf = "{name: a, resources: {max: {vcore: 1}}}"
    return parse_queues(f"partitions: [{{{said}queues: [{leaf}{rest}]}}]", "queues.yaml")


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (limited(), True),
        (limited(unplaced="hold"), True),
        (limited(unplaced="default"), False),
        (parse_queues("partitions: [{queues: [{name: a}]}]", "x"), False),
        (parse_queues("partitions: [{unplaced: hold, queues: [{name: a}]}]", "x"), True),
        (parse_queues("partitions: [{queues: [{name: root, resources: {max: {vcore: 1}}}]}]", "x"), True),
    ],
    ids=["a max", "hold", "default", "no max", "no max but hold", "a max of root"],
)
def test_pods_that_no_queue_takes_are_held_where_one_has_a_max_by_default(found: Queues, held: bool) -> None:
    assert (place(found.tree, "nonsense", "x").queue.path == "root.@unplaced") is held


def test_no_queue_may_be_called_as_the_one_for_pods_that_are_held() -> None:
    with pytest.raises(ConfigError, match="no queue takes"):
        limited(', {name: "@unplaced"}')


def test_an_open_leaf_and_a_default_without_max_are_warned_of_where_any_queue_has_a_max() -> None:
    safe = ", {name: default, resources: {max: {pods: 5}}}"

    assert [one.partition(" ")[0] for one in limited().warnings] == ["root.a:", "root.default"]
    assert [one.partition(" ")[0] for one in limited(safe).warnings] == ["root.a:"]
    assert "any namespace may name it" in limited(unplaced="default").warnings[0]
    assert parse_queues("partitions: [{queues: [{name: a}]}]", "x").warnings == ()
