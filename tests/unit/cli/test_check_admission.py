"""What `makeway check` makes of the admission policies that it finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from makeway.bus.errors import BusUnavailable
from makeway.cli.check.cluster import admission_result
from makeway.cli.check.place import CheckedBus, CheckedCluster
from makeway.cli.check.table import LOOKS, NATS_LOOKS, Look
from makeway.cli.connect.form import Form
from makeway.runtime.kube import ApiError

if TYPE_CHECKING:
    from makeway.bus.client import Bus
    from makeway.runtime.kube import Api

POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/makeway-evictor-delete"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/makeway-evictor-delete"
CONFIGMAP = "/api/v1/namespaces/makeway-system/configmaps/makeway-admission"


def bound(*actions: str) -> dict[str, object]:
    return {"spec": {"validationActions": list(actions)}}


class Serving:
    """An API server that has these objects, or answers every request with a status."""

    def __init__(self, objects: dict[str, dict[str, object]], status: int = 404) -> None:
        self._objects = objects
        self._status = status

    async def request(self, _method: str, path: str) -> bytes:
        if path not in self._objects:
            raise ApiError(self._status, "Status", f"status {self._status}")
        return json.dumps(self._objects[path]).encode()


ALL: dict[str, dict[str, object]] = {POLICY: {"spec": {}}, BINDING: bound("Deny"), CONFIGMAP: {"data": {}}}


@pytest.mark.parametrize(
    ("objects", "state", "detail"),
    [
        (ALL, "ok", "holds evictor and scheduler to them"),
        ({}, "warning", "whoever has the evictor's token may delete any pod"),
        ({path: ALL[path] for path in (POLICY, CONFIGMAP)}, "wrong", "not bound with action Deny"),
        ({**ALL, BINDING: bound("Audit", "Warn")}, "wrong", "not bound with action Deny"),
        ({path: ALL[path] for path in (POLICY, BINDING)}, "wrong", "refuses every delete"),
    ],
)
async def test_what_does_not_bound_the_evictors_token_is_told(
    objects: dict[str, dict[str, object]], state: str, detail: str
) -> None:
    at = CheckedCluster(cast("Api", Serving(objects)), "makeway-system", Form(), replaced=False)
    result = await admission_result(at)

    assert result.state == state
    assert detail in result.detail
    assert (result.remedy == "") == (state == "ok")


class Refusing:
    """An API server that refuses every request with a status."""

    authorization = core = None

    def __init__(self, status: int) -> None:
        self._status = status

    async def request(self, *_: object, **__: object) -> bytes:
        raise ApiError(self._status, "X", "you may not")

    async def call(self, *_: object, **__: object) -> bytes:
        raise ApiError(self._status, "X", "you may not")


class Reviews:
    """The typed APIs of which only the methods' names count."""

    def __getattr__(self, name: str) -> str:
        return name


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.what)
async def test_what_the_user_may_not_see_is_unknown_other_errors_raise(look: Look[CheckedCluster]) -> None:
    for status in (403, 500):
        api = Refusing(status)
        api.authorization = api.core = Reviews()  # type: ignore[assignment] # stands for the typed APIs
        at = CheckedCluster(cast("Api", api), "makeway-system", Form(("external",)), replaced=False)
        if status == 500:
            with pytest.raises(ApiError):
                await look.results(at)
        else:
            (result,) = await look.results(at)
            assert (result.name, result.state, result.detail) == (look.what, "unknown", "you may not")
            assert result.remedy.startswith("ask ")


class Silent:
    """A bus on a NATS that answers nothing, since it does not let the user ask."""

    def healthy(self) -> str:
        return "permissions violation"

    def __getattr__(self, name: str) -> object:
        raise BusUnavailable(f"{name}: no answer in time")


@pytest.mark.parametrize("look", NATS_LOOKS, ids=lambda look: look.what)
async def test_a_look_without_an_answer_is_wrong_and_names_what_was_refused(look: Look[CheckedBus]) -> None:
    at = CheckedBus(cast("Bus", Silent()), "makeway-system", Form(), "uid", minor=37)

    (result,) = await look.results(at)

    assert (result.name, result.state) == (look.what, "wrong")
    assert result.detail.endswith("no answer in time; permissions violation")
    assert result.remedy
    assert not at.readings


async def test_the_evictors_consumer_is_looked_at_only_where_there_are_evictors() -> None:
    (look,) = (one for one in NATS_LOOKS if one.what == "evictors' consumer")
    observing = Form(("none",))
    at = CheckedBus(cast("Bus", Silent()), "makeway-system", observing, "uid", minor=37)

    assert not observing.evicts
    assert await look.results(at) == ()
