"""What `makeway check` makes of what it finds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from makeway.bus.comparison import Comparison
from makeway.bus.component_status import ComponentStatus
from makeway.bus.streams.configs import stream_configs
from makeway.bus.subjects import Subjects
from makeway.cli.check import clocks as check_clocks
from makeway.cli.check import components as check_components
from makeway.cli.check import scheduler as check_scheduler
from makeway.cli.check import table
from makeway.cli.check.bus import stream_result
from makeway.cli.check.clocks import Reading
from makeway.cli.check.cluster import configuration_results
from makeway.cli.check.command import form_result, screen
from makeway.cli.check.minors import MINORS, judge_api_server, judge_schedulers
from makeway.cli.check.place import CheckedBus, CheckedCluster
from makeway.cli.check.presence import not_installed
from makeway.cli.check.result import CheckResult, lines, report_of, verdict
from makeway.cli.check.rights import Right, judge, needed
from makeway.cli.connect.form import PARTS, Form
from makeway.dev.paths import PLUGIN_MODULE
from makeway.dev.rights import granted
from makeway.dev.samples import MESSAGES
from makeway.runtime.kube import ApiError

if TYPE_CHECKING:
    from makeway.bus.client import Bus
    from makeway.runtime.kube import Api

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


# --------------------------------------------------------------------------------------- scheduler


def profile(multi: list[str], post: list[str], off: list[str] | None = None) -> dict[str, Any]:
    def named(names: list[str]) -> list[dict[str, str]]:
        return [{"name": name} for name in names]

    plugins = {
        "multiPoint": {"enabled": named(multi), "disabled": named(off or [])},
        "postFilter": {"enabled": named(post)},
    }
    return {"profiles": [{"schedulerName": "s", "plugins": plugins}]}


_BOTH = ["MakeWay", "DefaultPreemption"]


@pytest.mark.parametrize(
    ("multi", "post", "off", "state", "said"),
    [
        (_BOTH, ["DynamicResources", *_BOTH], ["DefaultPreemption"], "ok", "where nothing restricts"),
        (_BOTH, ["DynamicResources", "MakeWay"], ["DefaultPreemption"], "ok", "where nothing restricts"),
        (_BOTH[::-1], ["DynamicResources", *_BOTH], ["DefaultPreemption"], "warning", "for pod groups"),
        (
            _BOTH,
            ["DynamicResources", *_BOTH],
            [],
            "warning",
            "before MakeWay where room is made for pod groups",
        ),
        (["MakeWay"], ["DynamicResources", *_BOTH], ["DefaultPreemption"], "wrong", "in postFilter alone"),
        (_BOTH, ["DefaultPreemption", "MakeWay"], ["DefaultPreemption"], "wrong", "is before"),
        (["MakeWay"], ["DynamicResources", "MakeWay", "DefaultPreemption"], [], "warning", "for pod groups"),
        (["MakeWay"], ["DynamicResources", "MakeWay"], [], "warning", "for pod groups"),
        (["MakeWay"], ["DynamicResources", "MakeWay"], ["DefaultPreemption"], "ok", "nothing is evicted"),
        (["MakeWay"], [], [], "wrong", "after DefaultPreemption"),
        (["MakeWay"], ["DynamicResources", "DefaultPreemption", "MakeWay"], [], "wrong", "is before"),
        ([], ["DynamicResources", "MakeWay", "DefaultPreemption"], [], "wrong", "postFilter alone"),
        (["MakeWay"], ["MakeWay", "DefaultPreemption"], [], "warning", "idle claims"),
        (
            ["MakeWayQueues", *_BOTH],
            ["DynamicResources", "MakeWayQueues", *_BOTH],
            ["DefaultPreemption"],
            "ok",
            "MakeWayQueues → MakeWay → DefaultPreemption",
        ),
        (
            ["MakeWayQueues", *_BOTH],
            ["DynamicResources", *_BOTH],
            ["DefaultPreemption"],
            "warning",
            "ends nothing",
        ),
        ([], ["DefaultPreemption"], [], "wrong", "no profile has MakeWay"),
    ],
)
def test_makeway_stands_in_its_place_in_a_profile_or_it_is_said_where(
    multi: list[str], post: list[str], off: list[str], state: str, said: str
) -> None:
    (result,) = check_scheduler.judge("cm", profile(multi, post, off))

    assert result.state == state
    assert said in result.detail
    assert (result.remedy == "") == (state == "ok")


def test_only_a_scheduler_configuration_is_taken_for_one() -> None:
    data = {"a": "kind: Policy", "b": "}{", "c": "kind: KubeSchedulerConfiguration\nprofiles: []"}

    assert [key for key, _ in check_scheduler.configurations(data)] == ["c"]


# -------------------------------------------------------------------------------------- components


def status(component: Any, **changes: Any) -> ComponentStatus:
    one = ComponentStatus(
        api_version="makeway.dev/v1",
        component=component,
        identity=f"{component}-1",
        version="1",
        at=NOW,
        mode="enforce",
        own_mode="enforce",
        cluster_uid="here",
        revision=7,
        leading=component == "planner",
    )
    return replace(one, **changes)


ALL = [status("planner"), status("evictor"), status("scheduler")]


def test_without_a_planner_it_promises_no_preemption_that_the_policy_may_hold_back() -> None:
    found = check_components.judge([], version="1", cluster_uid="here", namespace="ns")

    (planner,) = [one for one in found if one.name == "planner"]
    assert "whenUnplanned" in planner.detail
    assert "preempt as kube-scheduler does" not in planner.detail


def test_without_a_planner_and_without_the_plugin_kube_scheduler_preempts_by_itself() -> None:
    parts = PARTS["external"]

    found = check_components.judge([], version="1", cluster_uid="here", namespace="ns", parts=parts)

    (planner,) = [one for one in found if one.name == "planner"]
    assert "kube-scheduler preempts by itself" in planner.detail
    assert "profile" not in planner.detail


@pytest.mark.parametrize(
    ("planner", "told"),
    [
        (status("planner"), False),
        (status("planner", mode="observe"), True),
        (status("planner", namespace_modes={"team-a": "observe"}), True),
    ],
)
async def test_what_mode_observe_found_is_summed_up_where_something_observes(
    planner: ComponentStatus, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answering:
        async def ask(self, _seconds: float) -> list[ComponentStatus]:
            return [planner]

    async def comparisons(*_: object) -> list[Comparison]:
        return [one for one in MESSAGES.values() if isinstance(one, Comparison)]

    monkeypatch.setattr(table, "comparisons", comparisons)
    bus = SimpleNamespace(components=Answering(), healthy=str)
    at = CheckedBus(cast("Bus", bus), "ns", Form(), cluster_uid="here", minor=37)

    (look,) = [one for one in table.NATS_LOOKS if one.what == "components"]
    found = [one for one in await look.results(at) if one.name == "observed in a day"]

    assert [" compared" in one.detail for one in found] == [True] * told


def judged(statuses: list[ComponentStatus]) -> dict[str, CheckResult]:
    found = check_components.judge(statuses, version="1", cluster_uid="here", namespace="ns")
    return {result.name: result for result in found if result.state != "ok"}


def test_an_installation_that_is_in_order_is_all_ticks() -> None:
    assert judged(ALL) == {}


@pytest.mark.parametrize(
    ("statuses", "name", "state"),
    [
        ([], "planner", "wrong"),
        (ALL[:2], "scheduler", "wrong"),
        ([replace(ALL[0], leading=False), *ALL[1:]], "planner in sync", "wrong"),
        ([*ALL, status("planner", identity="planner-2")], "planner in sync", "warning"),
        ([ALL[0], status("evictor", version="2"), ALL[2]], "versions", "warning"),
        ([ALL[0], status("evictor", revision=6), ALL[2]], "control state", "wrong"),
        ([*ALL[:2], status("scheduler", trouble="no answer")], "scheduler scheduler-1", "wrong"),
        ([status("planner", loops="pods like a"), *ALL[1:]], "preemption loops", "warning"),
        ([*ALL[:2], status("scheduler", cluster_uid="there")], "scheduler scheduler-1", "wrong"),
        ([ALL[0], status("evictor", own_mode="off", mode="off"), ALL[2]], "evictor evictor-1", "warning"),
    ],
)
def test_what_components_say_is_judged(statuses: list[ComponentStatus], name: str, state: str) -> None:
    result = judged(statuses)[name]

    assert result.state == state
    assert result.remedy


def test_a_planner_that_stands_by_is_in_order() -> None:
    standby = status("planner", identity="planner-2", leading=False, revision=0)

    assert judged([*ALL, standby]) == {}


# ------------------------------------------------------------------------------------------ clocks


@pytest.mark.parametrize(
    ("offsets", "state"),
    [
        ((0.0, 0.0), "ok"),
        ((1.5, 0.0), "ok"),
        ((9.0, 9.0), "warning"),
        ((-3.0, 0.0), "wrong"),
        ((1.5, -1.5), "wrong"),
    ],
)
def test_clocks_apart_are_wrong_and_a_local_one_alone_is_not(offsets: tuple[float, ...], state: str) -> None:
    readings = [Reading(str(n), NOW + seconds(offset), NOW, NOW) for n, offset in enumerate(offsets)]

    (result,) = check_clocks.judge(readings)

    assert result.state == state


def test_a_clock_is_not_ahead_or_behind_by_what_is_only_unknown() -> None:
    assert Reading("a", NOW, NOW - seconds(3), NOW + seconds(3)).ahead_seconds() == 0
    assert Reading("a", NOW, NOW + seconds(0.9), NOW + seconds(0.9), 1.0).ahead_seconds() == 0
    assert Reading("a", NOW, NOW + seconds(5), NOW + seconds(6), 1.0).ahead_seconds() == -4


# ----------------------------------------------------------------------------------------- streams


def info(*, cluster: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    config = {**stream_configs(Subjects())[0], **changes}
    return {"config": config, "state": {"messages": 3}, **({"cluster": cluster} if cluster else {})}


@pytest.mark.parametrize(
    ("found", "state", "said"),
    [
        (info(), "ok", "1 copy, 3 messages"),
        (info(num_replicas=3, cluster={"name": "c", "leader": "a"}), "ok", "3 copies"),
        (info(cluster={"name": "c", "leader": "a"}), "warning", "several servers"),
        (info(num_replicas=3, cluster={"name": "c"}), "wrong", "no server leads"),
        (
            info(num_replicas=3, cluster={"name": "c", "leader": "a", "replicas": [{"name": "b"}]}),
            "warning",
            "not up to date: b",
        ),
        (info(max_bytes=1), "wrong", "max_bytes is 1"),
    ],
)
def test_a_stream_is_judged_by_its_settings_and_copies(found: dict[str, Any], state: str, said: str) -> None:
    result = stream_result(stream_configs(Subjects())[0], found)

    assert result.state == state
    assert said in result.detail


# ------------------------------------------------------------------------------- rights, versions


def test_the_rights_asked_for_are_those_that_the_manifests_grant() -> None:
    parts = ("planner", "evictor", "nominator", "scheduler")

    asked = {right for right in needed() if right.wanted}

    assert {right.account for right in asked} == set(parts)
    assert asked <= {msgspec.convert(right, Right) for part in parts for right in granted(part)}


def place(form: Form, api: object = None) -> CheckedCluster:
    return CheckedCluster(cast("Api", api), "ns", form, replaced=False)


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    delete, read = Right("planner", "delete", "", "pods", wanted=False), Right("planner", "list", "", "nodes")

    (missing,) = judge({delete: False, read: False}, place(Form()).user)
    (beyond,) = judge({delete: True, read: True}, place(Form(accounts={"planner": "reader"})).user)

    assert (missing.state, beyond.state) == ("wrong", "warning")
    assert "system:serviceaccount:ns:makeway-planner may not: list nodes" in missing.detail
    assert "system:serviceaccount:ns:reader may: delete pods" in beyond.detail


def test_the_supported_minors_are_those_that_the_scheduler_is_built_from() -> None:
    modules = "".join(path.read_text() for path in PLUGIN_MODULE.glob("go*.mod"))

    built = {int(minor) for minor in re.findall(r"k8s\.io/kubernetes v1\.(\d+)\.", modules)}

    assert built == set(MINORS)


def test_an_api_server_may_be_of_any_minor_that_is_built_or_one_ahead() -> None:
    states = {minor: judge_api_server("v", minor).state for minor in range(MINORS[0] - 1, MINORS[-1] + 3)}

    assert {minor for minor, state in states.items() if state == "ok"} == set(MINORS)
    assert [states[MINORS[0] - 1], states[MINORS[-1] + 1], states[MINORS[-1] + 2]] == [
        "wrong",
        "warning",
        "wrong",
    ]
    assert f"kube-scheduler 1.{MINORS[-1] + 1} changes" in judge_api_server("v", MINORS[-1] + 1).detail


def running(*kubernetes: str) -> list[ComponentStatus]:
    schedulers = (status("scheduler", identity=f"s{n}", kubernetes=k) for n, k in enumerate(kubernetes))
    return [status("planner"), status("evictor"), *schedulers]


def test_schedulers_of_the_api_servers_minor_are_in_order() -> None:
    (result,) = judge_schedulers(running("1.36", "1.36"), 36)

    assert (result.state, result.detail) == ("ok", "every scheduler is 1.36, as the API server")
    assert list(judge_schedulers(running(), 36)) == []


@pytest.mark.parametrize(
    ("kubernetes", "minor", "state", "said", "remedy"),
    [
        (
            "1.36",
            37,
            "warning",
            "1.36, the API server is 1.37: Kubernetes allows it",
            "run makeway-scheduler of 1.37",
        ),
        (
            "1.36",
            37,
            "warning",
            "with the gates of pod groups on it schedules nothing",
            "run makeway-scheduler of 1.37",
        ),
        ("1.37", 38, "warning", "1.37, the API server is 1.38: Kubernetes allows it", "docs/versions.md"),
        ("1.37", 36, "wrong", "1.37, newer than the API server, 1.36", "run makeway-scheduler of 1.36"),
        (
            "1.35",
            37,
            "wrong",
            "1.35, 2 minor versions older than the API server",
            "run makeway-scheduler of 1.37",
        ),
        ("", 37, "unknown", "does not say which kube-scheduler it is", "upgrade makeway-scheduler"),
        (
            "1." + "9" * 5000,
            37,
            "unknown",
            "does not say which kube-scheduler it is",
            "upgrade makeway-scheduler",
        ),
    ],
)
def test_a_scheduler_of_another_minor_than_the_api_server_is_named(
    kubernetes: str, minor: int, state: str, said: str, remedy: str
) -> None:
    (result,) = judge_schedulers(running(f"1.{minor}", kubernetes), minor)

    assert (result.name, result.state) == ("kube-scheduler of s1", state)
    assert said in result.detail
    assert remedy in result.remedy


def test_a_remedy_stands_below_its_result_and_wrong_is_not_healthy() -> None:
    wrong = CheckResult("NATS", "wrong", "no answer", "start it")
    report = report_of([CheckResult("a", "ok", "fine"), wrong])

    assert [line.plain for line in lines(wrong)] == ["  ✗ NATS: no answer", "      start it"]
    assert not report.healthy
    assert verdict(report).plain == "1 wrong: NATS; 1 in order"


def test_the_answer_begins_with_a_verdict_and_goes_by_parts() -> None:
    fine = [
        CheckResult(name, "ok", "fine") for name in ("Kubernetes", "caps of e1", "planner", "what is new")
    ]
    looked = CheckResult("control state", "warning", "mode off", "makeway mode observe")
    wrong = [CheckResult(f"stream S{number}", "wrong", "gone", "make it") for number in range(5)]

    shown = [line.plain for line in screen(report_of([*fine, looked, *wrong]))]

    assert (
        shown[0]
        == "5 wrong: stream S0, stream S1, stream S2 and 2 more; 1 to look at: control state; 4 in order"
    )
    assert [line for line in shown if line[0] != " "][1:] == [
        "makeway",
        "Kubernetes",
        "NATS",
        "planner",
        "evictor",
    ]
    assert shown[2:5] == [
        "  ✓ what is new: fine",
        "  ! control state: mode off",
        "      makeway mode observe",
    ]
    assert verdict(report_of(fine)).plain == "all well: 4 in order"
    assert verdict(report_of([*fine, looked])).plain == (
        "nothing is wrong; 1 to look at: control state; 4 in order"
    )


def test_a_user_who_may_not_read_where_nats_is_is_not_told_that_nothing_is_wrong() -> None:
    report = report_of(
        [CheckResult("Kubernetes", "ok", "v"), CheckResult("NATS", "unknown", "you may not", "ask")]
    )

    assert verdict(report).plain == "not known whether all is well; 1 not known: NATS; 1 in order"
    assert (report.healthy, report.blind) == (True, True)


@pytest.mark.parametrize("name", ["pods", "configuration"])
def test_who_may_not_see_how_the_parts_do_is_not_told_that_nothing_is_wrong(name: str) -> None:
    assert report_of([CheckResult("NATS", "ok", "v"), CheckResult(name, "unknown", "you may not")]).blind


@pytest.mark.parametrize("name", ["signing keys", "secrets"])
def test_who_may_not_see_secrets_is_told_of_all_else(name: str) -> None:
    report = report_of([CheckResult("NATS", "ok", "v"), CheckResult(name, "unknown", "you may not")])

    assert not report.blind
    assert verdict(report).plain == f"nothing is wrong; 1 not known: {name}; 1 in order"


def test_a_form_that_could_not_be_read_is_not_told_as_a_fact() -> None:
    result = form_result(Form(denied="you may not"))

    assert (result.name, result.state, result.detail) == ("bridge", "unknown", "you may not")
    assert form_result(Form()).state == "ok"


def test_mode_off_is_warned_of_unless_the_brake_is_what_says_it() -> None:
    def off(**changes: Any) -> dict[str, CheckResult]:
        return judged([status(one, mode="off", **changes) for one in ("planner", "evictor", "scheduler")])

    assert off()["control state"].state == "warning"
    assert "makeway mode observe" in off()["control state"].remedy
    assert "control state" not in off(brake="everywhere")


class Cluster:
    """An API server that has some objects, and forbids to look at others."""

    def __init__(self, *paths: str, forbidden: str = "", elsewhere: tuple[str, ...] = ()) -> None:
        self._paths, self._forbidden = paths, forbidden
        self._elsewhere = [{"metadata": {"namespace": one}} for one in elsewhere]

    async def request(self, _method: str, path: str, *, query: Any = None) -> bytes:
        if query is not None:
            return msgspec.json.encode({"items": self._elsewhere})
        if path.endswith(self._paths):
            return b"{}"
        status = 403 if self._forbidden and path.endswith(self._forbidden) else 404
        raise ApiError(status, "", "no")


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (Cluster("/configmaps/makeway-installation"), None),
        (Cluster("/serviceaccounts/makeway-planner"), None),
        (Cluster(forbidden="/makeway-planner"), None),
        (Cluster("/namespaces/ns"), "makeway is not installed in ns"),
        (Cluster(), "makeway is not installed in ns, which does not exist"),
        (Cluster("/namespaces/ns", elsewhere=("b", "a")), "makeway is not installed in ns; it is in a, b"),
    ],
)
async def test_a_namespace_without_makeway_is_said_to_be_one(cluster: Cluster, said: str | None) -> None:
    found = await not_installed(cast("Api", cluster), "ns")

    assert (found.detail if found else None) == said


async def test_queues_that_do_not_bind_are_warned_of() -> None:
    class Stored:
        """An API server with a queues' file in which any tenant may fill another's queue."""

        async def request(self, *_: Any, **__: Any) -> bytes:
            text = "partitions: [{queues: [{name: a, resources: {max: {vcore: 1}}}]}]"
            metadata = {"name": "makeway-queues", "namespace": "makeway-system"}
            return msgspec.json.encode({"items": [{"metadata": metadata, "data": {"queues.yaml": text}}]})

    found = {one.name: one for one in await configuration_results(place(Form(), Stored()))}

    assert found["queues"].state == "warning"
    assert "root.a: open" in found["queues"].detail
    assert "root.default has no max" in found["queues"].detail


# -------------------------------------------------------------------------------------- signatures


def signature_results(*said: str) -> list[tuple[str, str, str]]:
    parts = ("planner", "evictor", "scheduler")
    statuses = [status(part, signatures=text) for part, text in zip(parts, said, strict=True)]
    found = check_components.judge(statuses, version="1", cluster_uid="here", namespace="ns")
    return [(one.name, one.state, one.detail) for one in found if one.name.startswith("signatures")]


SIGNS = "require; messages failed: 0"
SIGNS_NOTHING = "require; signs nothing; messages failed: 0"


def test_a_part_that_does_not_sign_where_another_requires_it_is_named() -> None:
    assert signature_results("off", "off", "") == [("signatures", "ok", "off in every part")]
    assert signature_results(SIGNS, SIGNS, SIGNS) == [("signatures", "ok", "require in every part")]
    assert signature_results(SIGNS, SIGNS, "") == [
        ("signatures", "wrong", "planner-1 require, evictor-1 require, scheduler-1 off")
    ]


def test_messages_that_failed_and_keys_that_do_not_count_are_told() -> None:
    failed = "require; signs outcome by 0123456789abcdef; messages failed: 7; ConfigMap a/b is missing"

    found = signature_results(SIGNS_NOTHING, failed, SIGNS)

    assert found[1:] == [
        ("signatures of planner-1", "warning", "signs nothing"),
        ("signatures of evictor-1", "warning", "messages failed: 7; ConfigMap a/b is missing"),
    ]


def test_keys_that_are_a_parts_trouble_are_told_once() -> None:
    missing, failed = "ConfigMap a/b is missing", "messages failed: 7"
    evictor = status("evictor", signatures=f"require; {failed}; {missing}", trouble=f"slow; {missing}")

    found = check_components.judge([evictor], version="1", cluster_uid="here", namespace="ns", parts=())

    keys = "see docs/operating.md, keys of signatures"
    assert [(one.detail, one.remedy) for one in found if missing in one.detail or failed in one.detail] == [
        (f"slow; {missing}", keys),
        (failed, keys),
    ]


def test_a_nominator_that_signs_nothing_is_as_it_must_be() -> None:
    nominator = status("nominator", signatures=SIGNS_NOTHING)

    found = check_components.judge([nominator], version="1", cluster_uid="here", namespace="ns", parts=())

    assert [(one.name, one.state) for one in found if one.name.startswith("signatures")] == [
        ("signatures", "ok")
    ]
