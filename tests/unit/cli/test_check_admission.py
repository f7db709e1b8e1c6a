"""What `makeway check` makes of the admission policies that it finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from makeway.cli.check.admission import admission_result
from makeway.runtime.kube import ApiError

if TYPE_CHECKING:
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
    result = await admission_result(cast("Api", Serving(objects)), "makeway-system")

    assert result.state == state
    assert detail in result.detail
    assert (result.remedy == "") == (state == "ok")


async def test_without_the_right_to_read_them_it_is_unknown_and_another_error_is_raised() -> None:
    forbidden = await admission_result(cast("Api", Serving({}, status=403)), "makeway-system")
    assert forbidden.state == "unknown"
    with pytest.raises(ApiError):
        await admission_result(cast("Api", Serving({}, status=500)), "makeway-system")
