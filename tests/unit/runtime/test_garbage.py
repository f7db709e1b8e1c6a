"""What the collector no longer looks at."""

import gc
from collections.abc import Iterator

import pytest

from makeway.runtime import garbage


@pytest.fixture
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class Knot:
    """A cycle by itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("as_before")
def test_what_is_there_at_the_start_is_set_aside_and_later_cycles_are_still_freed() -> None:
    garbage.set_aside()
    standing = gc.get_freeze_count()
    for _ in range(3):
        Knot()

    assert standing > 10_000
    assert gc.collect() >= 3
