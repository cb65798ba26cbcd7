"""Reading what learners write, and comparing it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.answers import (
    UnreadableError,
    differing,
    in_words,
    is_blank,
    is_rounded,
    read_booleans,
    read_numbers,
    same,
    shape_of,
    where,
)


@pytest.mark.parametrize("answer", [..., None, "", "  ", [..., ...], (1, ...), [[1], [None]], np.array([1, ...])])
def test_blank(answer: Any) -> None:
    assert is_blank(answer)


@pytest.mark.parametrize("answer", [0, 0.0, False, [], [0], "no", np.zeros(2), float("nan")])
def test_not_blank(answer: Any) -> None:
    assert not is_blank(answer)


@pytest.mark.parametrize(
    "answer",
    [
        [0.25, 0.75],
        (0.25, 0.75),
        [Fraction(1, 4), Fraction(3, 4)],
        [Decimal("0.25"), Decimal("0.75")],
        np.array([0.25, 0.75], dtype=np.float32),
        np.array([0.25, 0.75], dtype=np.float16),
        np.array([Fraction(1, 4), Fraction(3, 4)]),
        [np.float32(0.25), np.float64(0.75)],
        [np.array(0.25), 0.75],
        np.array([[0.25, 0.75]])[0],
    ],
)
def test_numbers_in_any_dress(answer: Any) -> None:
    numbers = read_numbers(answer)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [0.25, 0.75]


def test_whatever_offers_itself_as_an_array_is_read() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1.0, 2.0])

    assert read_numbers(Tensor()).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, "a boolean is not a number"),
        ([0.5, np.True_], "entry 2 is True"),
        (np.array([True, False]), "a boolean is not a number"),
        ("1/3", "without quotes"),
        ([[1, "x"]], "row 1, entry 2 is the text 'x'"),
        ([1, 2j], "entry 2 is 2j"),
        ({"a": 1}, "a dict"),
        ({1, 2}, "a set"),
        (zip([1], [2], strict=True), "wrap it in list"),
        ([[1, 2], [3]], "part 2 has shape (1,) and part 1 has shape (2,)"),
        (10**400, "too large"),
        ([np.zeros((1, 1, 1, 1)).tolist()] * 2, None),
    ],
)
def test_a_reason_for_what_cannot_be_read(answer: Any, reason: str | None) -> None:
    if reason is None:
        assert read_numbers(answer).shape == (2, 1, 1, 1, 1)
        return
    with pytest.raises(UnreadableError) as caught:
        read_numbers(answer)
    assert reason in str(caught.value)


def test_an_object_that_breaks_when_read_is_a_reason_too() -> None:
    class Rude:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise RuntimeError("no")

    with pytest.raises(UnreadableError, match="RuntimeError: no"):
        read_numbers(Rude())


def test_endless_and_huge_answers_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UnreadableError, match="nested"):
        is_blank(endless)
    with pytest.raises(UnreadableError, match="holds 1000001 numbers"):
        read_numbers(np.zeros(1_000_001))


def test_masks_are_booleans_or_zero_and_one() -> None:
    assert read_booleans([[True, False], [1, 0.0]]).tolist() == [[True, False], [True, False]]
    for wrong in ([True, 2], ["True"], [True, float("nan")]):
        with pytest.raises(UnreadableError, match="only True and False"):
            read_booleans(wrong)


def test_long_texts_are_cut_when_shown() -> None:
    with pytest.raises(UnreadableError, match=r"^your answer is the text 'a{36}…: write the number"):
        read_numbers("a" * 100)
    with pytest.raises(UnreadableError, match=r"the text 'a{38}': write"):
        read_numbers("a" * 38)


def test_shapes() -> None:
    assert shape_of(3) == ()
    assert shape_of([]) == (0,)
    assert shape_of([(1, 2, 3), [4, 5, 6]]) == (2, 3)
    assert shape_of([[[1]], [[2]]]) == (2, 1, 1)


def test_places_count_from_one() -> None:
    assert where(()) == "your answer"
    assert where((0,)) == "entry 1"
    assert where((1, 2)) == "row 2, entry 3"
    assert where((0, 1, 2)) == "entry (1, 2, 3)"


def test_tolerance_is_relative_to_the_largest_expected_number() -> None:
    expected = np.array([1000.0, 0.0])
    assert same(np.array([1000.0009, 0.0009]), expected)
    assert not same(np.array([1000.0, 0.0011]), expected)
    assert same(np.array([9e-7]), np.array([0.0]))  # never finer than 1e-6
    assert not same(np.array([1.1e-6]), np.array([0.0]))


def test_shape_counts_before_numbers() -> None:
    for shape in ((1, 3), (3, 1), (), (6,), (0,)):
        assert not same(np.ones(shape), np.ones(3))
    assert not same(np.array([]), np.ones(1))


def test_infinities_and_nan_must_stand_in_the_same_place() -> None:
    mask = np.array([0.0, -np.inf])
    assert same(mask, mask)
    for wrong in ([0.0, -1e9], [0.0, np.inf], [0.0, np.nan], [-np.inf, 0.0]):
        assert not same(np.array(wrong), mask)
    assert same(np.array([np.nan]), np.array([np.nan]))
    assert not same(np.array([np.nan]), np.array([0.0]))
    assert differing(np.array([1.0, 2.0]), np.array([1.0, np.nan])).tolist() == [False, True]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_float32_work_is_never_refused(numbers: list[float]) -> None:
    exact = np.array(numbers)
    assert same(exact.astype(np.float32).astype(np.float64), exact)


@given(st.floats(-1e6, 1e6), st.sampled_from([-1, 1]))
def test_a_visible_difference_is_always_seen(number: float, sign: int) -> None:
    off = number + sign * 3e-6 * max(1.0, abs(number))
    assert not same(np.array(off), np.array(number))


@pytest.mark.parametrize(
    ("given_number", "exact", "rounded"),
    [
        (0.33, 1 / 3, True),
        (0.67, 2 / 3, True),
        (0.66, 2 / 3, True),  # cut, not rounded
        (0.66667, 2 / 3, True),
        (0.3, 1 / 3, False),
        (0.32, 1 / 3, False),
        (0.35, 1 / 3, False),
        (0.334, 1 / 3, False),  # neither rounded nor cut
        (0.335, 1 / 3, False),
        (1 / 3, 0.33, False),
        (math.nan, 1 / 3, False),
        (math.inf, 1 / 3, False),
        (5.0, math.nan, True),
    ],
)
def test_rounding(given_number: float, exact: float, rounded: bool) -> None:
    assert is_rounded(np.array([given_number]), np.array([exact])) is rounded
    assert not is_rounded(np.array([given_number]), np.array(exact))


def test_in_words_is_the_same_for_the_same_numbers() -> None:
    third = [Fraction(1, 3), 2]
    assert in_words(third) == in_words(np.array([1 / 3, 2], dtype=np.float32)) == "[0.3333, 2]"
    assert in_words([[1, 0.5]]) == "[[1, 0.5]]"
    assert in_words("B") == "B"
    assert in_words(["a", "b"]) == "['a', 'b']"


class Hostile:
    """An object that raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")


class Leaves:
    def __array__(self, *_: object, **__: object) -> Any:
        raise SystemExit


class Weird(float):
    def __float__(self) -> float:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "answer",
    [Hostile(), [Hostile(), 1], Leaves(), Weird(1), [Weird(1)], Decimal("sNaN"), np.rec.array([(1, 2)])],
    ids=lambda answer: type(answer).__name__,
)
def test_an_object_that_raises_is_unreadable(answer: Any) -> None:
    with pytest.raises(UnreadableError):
        read_numbers(answer)


@pytest.mark.parametrize("text", ["nan", "NaN", " nan "])
def test_the_text_nan_is_no_number_however_it_is_written(text: str) -> None:
    with pytest.raises(UnreadableError, match=r"^entry 2 is NaN, which is not a number \(0/0 gives it\)"):
        read_numbers([1, text])
    with pytest.raises(UnreadableError, match="write the number without quotes"):
        read_numbers([1, "banana"])


def test_a_huge_mask_is_refused_before_it_is_walked() -> None:
    with pytest.raises(UnreadableError, match="holds 3000000 numbers"):
        read_booleans(np.zeros(3_000_000))
