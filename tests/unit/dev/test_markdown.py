"""The pages written by hand stay within 120 columns, and wrapping one changes nothing else of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.dev.markdown import pages, wrapped

pytestmark = pytest.mark.tools


def test_every_page_is_within_its_columns() -> None:
    assert [page for page in pages() if wrapped(page.read_text()) != page.read_text()] == []


@given(
    st.lists(st.sampled_from(["word", "-", "12.", "#", "`a b`", "[a", "b](c)", "=", "x" * 70]), max_size=80)
)
def test_wrapping_keeps_every_word_and_begins_no_new_block(words: list[str]) -> None:
    page = " ".join(["begin", *words]) + "\n"
    once = wrapped(page)

    assert once.split() == page.split()
    assert wrapped(once) == once
    assert not any(line.startswith(("- ", "12. ", "# ")) for line in once.splitlines()[1:])
