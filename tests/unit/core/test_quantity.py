"""Quantities: the form, the value to the last billionth, and the rounding."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.quantity import MAX_INT64, QuantityError, milli_value, parse, value

SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
    "e+1": Fraction(10),
}


@given(
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**12),
    st.one_of(st.none(), st.text("0123456789", max_size=12)),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_every_text_of_the_grammar_has_its_exact_value_rounded_away_from_zero(
    sign: str, whole: int, part: str | None, suffix: str
) -> None:
    text = f"{sign}{whole}{'' if part is None else '.' + part}{suffix}"
    exact = Fraction(f"{whole}.{part or '0'}") * SUFFIXES[suffix]

    magnitude = ceil(exact * 10**9)

    assert parse(text) == (-magnitude if sign == "-" else magnitude)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "inf",
        "nan",
        "1_000",
        "1K",
        "1 Gi",
        "Gi",
        ".",
        "-",
        "+",
        "1e",
        "0x10",
        "1mi",
        "1.2.3",
        "--1",
        "1Gi ",
        "\u0661",
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


@given(st.text(max_size=12))
def test_any_text_gives_a_number_or_the_one_error(text: str) -> None:
    try:
        number = parse(text)
    except QuantityError:
        return
    assert isinstance(number, int)


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("1", 1000, 1),
        ("100m", 100, 1),
        ("1.5", 1500, 2),
        ("0.1m", 1, 1),
        ("1n", 1, 1),
        ("128Mi", 128 * 2**20 * 1000, 128 * 2**20),
        ("0", 0, 0),
        (".5", 500, 1),
        ("2.", 2000, 2),
        ("1e3", 10**6, 1000),
    ],
)
def test_columns_are_rounded_up(text: str, milli: int, whole: int) -> None:
    assert (milli_value(parse(text)), value(parse(text))) == (milli, whole)


def test_a_bare_number_means_its_text() -> None:
    assert parse(2) == parse("2")
    assert parse(0.5) == parse("500m")


def test_what_int64_cannot_hold_is_cut() -> None:
    assert value(parse("1e40")) == MAX_INT64
    assert value(parse("16Ei")) == MAX_INT64


def test_a_text_of_absurd_length_is_refused_before_it_is_computed() -> None:
    with pytest.raises(QuantityError):
        parse("9" * 5000)
    assert value(parse("1e999999999")) == MAX_INT64
