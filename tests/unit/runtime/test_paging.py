"""A page that is too long is asked for again with fewer objects, and one after a short page with more."""

from collections.abc import Mapping

import pytest

from makeway.runtime.kube import AnswerTooLong
from makeway.runtime.paging import PAGE_BYTES, Paging

MIB = 1024 * 1024


class Server:
    """Has objects of so many MiB, and answers by the place where the next page begins."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.asked: list[int] = []

    async def ask(self, query: Mapping[str, str]) -> bytes:
        """Return the end of the page, as long as its objects."""
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        self.asked.append(limit)
        end = min(begin + limit, len(self.sizes))
        if (taken := sum(self.sizes[begin:end]) * MIB) > PAGE_BYTES:
            raise AnswerTooLong("too long")
        return str(end).encode().ljust(taken)

    async def pages(self, objects: int) -> list[int]:
        """Return where each page of a list ends."""
        paging, ends = Paging(self.ask, objects), [0]
        while ends[-1] < len(self.sizes):
            ends.append(int(await paging.page(str(ends[-1] or ""))))
        return ends[1:]


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        ([3] * 10, [8, 8]),
        ([0] * 20, [8, 8, 8]),
        ([20] * 3, [8, 4, 2, 1, 1, 1]),
        ([3] * 8 + [10] * 4, [8, 8, 4, 2, 2]),
        ([20] * 2 + [1] * 20, [8, 4, 2, 1, 1, 1, 2, 4, 8, 8]),
        ([20] * 2 + [8] * 3, [8, 4, 2, 1, 1, 1, 1, 1]),
        ([20] * 2 + [7] * 5, [8, 4, 2, 1, 1, 1, 2, 2]),
    ],
    ids=[
        "short",
        "never more than at first",
        "one at a time",
        "long ones come later",
        "long ones come first",
        "a fourth of a page each",
        "less than a fourth of a page each",
    ],
)
async def test_all_objects_come_in_pages_that_are_not_too_long(sizes: list[int], asked: list[int]) -> None:
    server = Server(*sizes)

    assert (await server.pages(8))[-1] == len(sizes)
    assert server.asked == asked


async def test_one_object_that_is_too_long_is_an_error() -> None:
    with pytest.raises(AnswerTooLong):
        await Server(33).pages(4)
