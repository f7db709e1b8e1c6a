"""A page of a list gives the same objects however it is written, and each bad one costs only itself."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.objects import Namespace
from makeway.runtime.pages import DECODE_ERRORS, Page, UnreadableObject

decode = msgspec.json.Decoder(Namespace).decode

# What looks like a boundary between objects, as text and as structure.
tricky = st.sampled_from(['},{"metadata":{"name":"', '"items":[{"metadata":{"name":"', "]}", '"', "\\", "é"])
values: st.SearchStrategy[Any] = st.recursive(
    tricky | st.text(max_size=5) | st.integers() | st.none(),
    lambda inner: (
        st.lists(
            inner | st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"name": inner})}), max_size=3
        )
        | st.dictionaries(st.sampled_from(["items", "metadata", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)
metadata = st.fixed_dictionaries(
    {"name": tricky | st.text(max_size=5)}, optional={"uid": st.text(max_size=3)}
)
objects = st.fixed_dictionaries({"metadata": metadata}, optional={"spec": values, "status": values})
bad = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"name": st.integers()})}) | st.integers()


def body_of(items: list[Any], *, spaced: bool = False, sorted_keys: bool = False) -> bytes:
    listed = {"kind": "List", "metadata": {"resourceVersion": "7", "continue": "next"}, "items": items}
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(listed, separators=separators, sort_keys=sorted_keys).encode() + b"\n"


def read(body: bytes) -> list[Namespace | bytes]:
    items = Page(body).objects(decode)
    return [bytes(one.text) if isinstance(one, UnreadableObject) else one for one in items]


@given(st.lists(objects | bad, max_size=6), st.booleans(), st.booleans())
def test_a_page_gives_what_its_json_holds(items: list[Any], spaced: bool, sorted_keys: bool) -> None:
    body = body_of(items, spaced=spaced, sorted_keys=sorted_keys)
    expected: list[Namespace | bytes] = []
    for raw in msgspec.json.decode(msgspec.json.encode(items), type=list[msgspec.Raw]):
        try:
            expected.append(decode(raw))
        except DECODE_ERRORS:
            expected.append(json.dumps(json.loads(bytes(raw))).encode())
    given_back = [
        json.dumps(json.loads(one)).encode() if isinstance(one, bytes) else one for one in read(body)
    ]
    assert given_back == expected
    assert Page(body).metadata.continue_ == "next"


def test_no_cut_is_taken_for_the_end() -> None:
    body = body_of([{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]).rstrip()
    for length in range(len(body)):
        with pytest.raises(DECODE_ERRORS):
            read(body[:length])


@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_a_page_that_was_cut_off_is_never_taken_for_whole(items: list[Any], data: st.DataObject) -> None:
    body = body_of(items).rstrip()
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(DECODE_ERRORS):
        read(cut)


@pytest.mark.parametrize("items", [b"[]", b"null"])
def test_a_page_without_objects_is_one(items: bytes) -> None:
    page = Page(b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":' + items + b"}")
    assert page.metadata.resource_version == "7"
    assert list(page.objects(decode)) == []
