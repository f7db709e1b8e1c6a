"""The members of a namespace are listed in pages; what cannot be listed is for a later attempt."""

from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from makeway.evictor.act.cluster import Cluster
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import TemporaryError
from makeway.runtime.kube import AnswerTooLong, Api
from makeway.runtime.paging import PAGE_BYTES

EMPTY = msgspec.json.encode({"metadata": {}, "items": []})


class PodsApi:
    """Answers a list of at most so many pods; a longer one is too long."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.asked: list[int] = []

    async def request(self, method: str, path: str, **arguments: Any) -> bytes:
        assert (method, arguments["most_bytes"]) == ("GET", PAGE_BYTES)
        limit = int(path.partition("limit=")[2])
        self.asked.append(limit)
        if limit > self.fits:
            raise AnswerTooLong("too long")
        return EMPTY


def cluster_of(api: PodsApi) -> Cluster:
    async def brake() -> Any:
        raise NotImplementedError

    return Cluster(cast("Api", api), EvictorMetrics(CollectorRegistry()), brake)


async def test_pods_that_are_too_long_together_are_listed_by_fewer_at_a_time() -> None:
    api = PodsApi(fits=100)

    assert await cluster_of(api).members("team-a") == {}

    assert api.asked == [500, 250, 125, 62]


async def test_a_pod_that_is_too_long_by_itself_is_for_a_later_attempt() -> None:
    api = PodsApi(fits=0)

    with pytest.raises(TemporaryError, match="too long"):
        await cluster_of(api).members("team-a")

    assert api.asked == [500, 250, 125, 62, 31, 15, 7, 3, 1]
