"""The pages written by hand stay within 120 columns, and wrapping one changes nothing else of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.dev.markdown import WIDTH, pages, wrapped

pytestmark = pytest.mark.tools

LONG = " ".join(["word"] * 40)


def test_every_page_is_within_its_columns() -> None:
    assert [page for page in pages() if wrapped(page.read_text()) != page.read_text()] == []


@pytest.mark.parametrize(
    "page",
    [
        f"| {LONG} |\n",
        f"# {LONG}\n",
        f"```\n{LONG}\n```\n",
        f"[text]: https://example.org/{'x' * 200}\n",
        f"https://example.org/{'x' * 200}\n",
        "short\nand short again\n",
    ],
    ids=["table", "heading", "code", "link target", "no space", "narrow"],
)
def test_what_cannot_or_need_not_be_wrapped_stays(page: str) -> None:
    assert wrapped(page) == page


def test_an_item_keeps_its_indentation() -> None:
    lines = wrapped(f"* {LONG}\n* next\n").splitlines()

    assert lines[0].startswith("* word")
    assert lines[1].startswith("  word")
    assert lines[-1] == "* next"
    assert max(map(len, lines)) <= WIDTH


def test_code_in_a_sentence_is_not_broken() -> None:
    code = "`kubectl get pods --all-namespaces --output json`"

    assert code in wrapped(f"{LONG[:90]} {code} {LONG}\n")


@given(
    st.lists(st.sampled_from(["word", "-", "12.", "#", "`a b`", "[a", "b](c)", "=", "x" * 70]), max_size=80)
)
def test_wrapping_keeps_every_word_and_begins_no_new_block(words: list[str]) -> None:
    page = " ".join(["begin", *words]) + "\n"
    once = wrapped(page)

    assert once.split() == page.split()
    assert wrapped(once) == once
    assert not any(line.startswith(("- ", "12. ", "# ")) for line in once.splitlines()[1:])
