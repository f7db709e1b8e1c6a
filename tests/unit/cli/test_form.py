"""Which parts an installation has, by what its ConfigMap says of the bridge."""

from typing import Any, cast

import msgspec
import pytest

from makeway.bus.component_status import ComponentStatus
from makeway.cli.check import components as check_components
from makeway.cli.check.minors import judge_api_server, judge_schedulers
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.form import Form, installed_form
from makeway.cli.mode.components import without
from makeway.runtime.kube import Api, ApiError
from unit.cli.test_check import status


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("none", ("planner",)),
        ("external", ("planner", "evictor", "nominator")),
        ("plugin", ("planner", "evictor", "scheduler")),
        ("plugin,external", ("planner", "evictor", "scheduler", "nominator")),
        ("", ("planner", "evictor", "scheduler")),
        ("of a later version", ("planner", "evictor", "scheduler")),
    ],
)
def test_the_bridge_says_which_parts_there_are(said: str, parts: tuple[str, ...]) -> None:
    assert Form.parse(said).parts == parts


async def test_the_installation_names_service_accounts_that_are_not_the_charts() -> None:
    form = await form_of({"data": {"bridge": "none", "serviceAccounts": "evictor=deleter,planner=reader"}})

    assert form.accounts == {"evictor": "deleter", "planner": "reader"}
    assert not Form.parse("external").accounts


async def test_the_installation_says_whether_a_shadow_verifies() -> None:
    form = await form_of({"data": {"bridge": "external", "verify": "shadow"}})

    assert form.shadow
    assert form.parts == ("planner", "evictor", "nominator")
    assert "a shadow scheduler verifies its plans" in form.describe()
    assert not (await form_of({"data": {"bridge": "external"}})).shadow


SHADOW = status("shadow", kubernetes="1.37")


def test_a_shadow_that_has_to_be_there_and_is_not_is_missed() -> None:
    def told(*statuses: ComponentStatus) -> CheckResult:
        parts = ("planner", "shadow")
        found = check_components.judge(
            [*statuses], version="1", cluster_uid="here", namespace="ns", parts=parts
        )
        return next(one for one in found if one.name == "shadow")

    missing = told()
    assert missing.state == "wrong"
    assert "kubectl -n ns get pods" in missing.remedy
    assert told(SHADOW).state == "ok"


def test_a_shadow_goes_by_no_mode_and_signs_nothing() -> None:
    both = [status("planner", mode="observe", signatures="require"), SHADOW]

    found = check_components.judge(both, version="1", cluster_uid="here", namespace="ns")

    states = {one.name: one.state for one in found}
    assert {"control state": "ok", "signatures": "ok"}.items() <= states.items()


def test_a_shadow_of_another_minor_is_told_of() -> None:
    (wrong,) = judge_schedulers([status("shadow", kubernetes="1.35")], 37)

    assert wrong.state == "wrong"
    assert "1.35" in wrong.detail


def test_nothing_evicts_without_a_bridge() -> None:
    assert not Form.parse("none").evicts
    assert not Form.parse("none").plugin
    assert "evicts no pod" in Form.parse("none").describe()


class Stored:
    """An API server that answers so when it is asked for the installation."""

    def __init__(self, answer: dict[str, Any] | ApiError) -> None:
        self.answer = answer

    async def request(self, *_: Any, **__: Any) -> bytes:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return msgspec.json.encode(self.answer)


async def form_of(answer: dict[str, Any] | ApiError) -> Form:
    return await installed_form(cast("Api", Stored(answer)), "makeway-system")


async def test_the_installation_is_asked_and_older_ones_have_the_plugin() -> None:
    assert await form_of({"data": {"bridge": "none"}}) == Form(("none",))
    assert await form_of({"data": {"natsUrl": "nats://n:4222"}}) == Form()
    assert await form_of({"data": {"bridge": 7}}) == Form()
    assert await form_of(ApiError(404, "no", "no")) == Form()
    assert await form_of(ApiError(403, "no", "no")) == Form(denied="no")
    with pytest.raises(ApiError):
        await form_of(ApiError(500, "down", "down"))


def test_parts_that_are_not_wanted_are_not_missed() -> None:
    found = check_components.judge([], version="1", cluster_uid="", namespace="ns", parts=("planner",))

    assert [one.name for one in found if one.state == "wrong"] == ["planner"]
    assert without([], ("planner",)) == ["planner"]


def test_without_the_plugin_another_minor_is_not_tested_but_not_refused() -> None:
    assert judge_api_server("v1.37.2", 37, plugin=False).state == "ok"
    assert judge_api_server("v1.30.0", 30, plugin=False).state == "warning"
    assert judge_api_server("v1.30.0", 30).state == "wrong"
