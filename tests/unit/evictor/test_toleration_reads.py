"""What the evictor takes the record of tolerations for, as the API server answers."""

import msgspec
import pytest

from makeway.core.policy.toleration_record import TolerationRecord
from makeway.evictor.act.toleration_reads import TolerationReads
from makeway.evictor.retry import TemporaryError
from makeway.runtime.kube import ApiError, ApiUnavailable


class Api:
    def __init__(self, *answers: bytes | Exception) -> None:
        self._answers = list(answers)

    async def request(self, method: str, path: str, **_: object) -> bytes:
        assert (method, path) == ("GET", "/api/v1/namespaces/mw/configmaps/makeway-tolerations")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def stored(**entries: str) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "makeway-tolerations"}, "data": entries})


STEADY = stored(steady='{"metadata":{},"value":7}')

NOT_USABLE = [
    ApiError(404, "NotFound", "not found"),
    ApiError(403, "Forbidden", "no right"),
    b"{",
    stored(steady="{"),
]


async def read(*answers: bytes | Exception) -> TolerationRecord:
    """Return what the last of several reads gives."""
    reads = TolerationReads(Api(*answers), namespace="mw")
    for _ in answers:
        found = await reads.read()
    return found


async def test_the_record_is_what_the_configmap_has_now() -> None:
    assert (await read(STEADY)).classes["steady"].value == 7
    assert not (await read(STEADY, stored())).classes


@pytest.mark.parametrize("answer", NOT_USABLE)
async def test_what_was_never_read_is_not_known(answer: bytes | Exception) -> None:
    assert not (await read(answer)).known


@pytest.mark.parametrize("answer", NOT_USABLE)
async def test_what_cannot_be_used_any_more_leaves_the_last_one(answer: bytes | Exception) -> None:
    assert "steady" in (await read(STEADY, answer)).classes


@pytest.mark.parametrize("answer", [ApiUnavailable("away"), ApiError(503, "ServiceUnavailable", "busy")])
async def test_what_cannot_be_read_for_now_is_to_be_read_again(answer: Exception) -> None:
    with pytest.raises(TemporaryError):
        await read(STEADY, answer)
