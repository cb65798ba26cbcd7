"""Read what a learner gave, and compare it with what was expected."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from labkit.attention import Array

TOLERANCE = 1e-6  # relative to the largest expected magnitude, so that honest float32 work passes
DEEPEST = 8
NOT_FINITE = {
    "nan": "is NaN, which is not a number (0/0 gives it): a finite number is expected.",
    "inf": "is infinite: a finite number is expected.",
    "-inf": "is infinite: a finite number is expected.",
}
MOST = 1_000_000

Result = TypeVar("Result")


class UnreadableError(ValueError):
    """An answer that cannot be compared; the message tells the learner why."""


def _reading(read: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Make whatever a learner's own object raises while it is read a reason, not a crash."""

    @wraps(read)
    def reading(answer: Any) -> Result:
        try:
            return read(answer)
        except UnreadableError:
            raise
        except (Exception, SystemExit) as error:
            raise UnreadableError(f"it cannot be read ({type(error).__name__}).") from error

    return reading


@_reading
def is_blank(answer: Any) -> bool:
    """Say whether an answer, or any part of it, has not been given yet: `...`, None or empty text.

    >>> is_blank([1, ..., 2]), is_blank(""), is_blank(0), is_blank([])
    (True, True, False, False)
    """
    if isinstance(answer, str):
        return not answer.strip()
    if isinstance(answer, np.ndarray) and answer.dtype != object:
        return False
    return any(leaf is None or leaf is ... for _, leaf in leaves(answer))


def leaves(answer: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Walk nested lists, tuples and arrays: every entry with its place."""
    if isinstance(answer, np.ndarray):
        answer = answer.tolist()
    if not isinstance(answer, (list, tuple)):
        yield place, answer
    elif len(place) == DEEPEST:
        raise UnreadableError(f"the lists are nested more than {DEEPEST} deep.")
    else:
        for i, part in enumerate(answer):
            yield from leaves(part, (*place, i))


@_reading
def shape_of(answer: Any) -> tuple[int, ...]:
    """Give the shape of nested lists, tuples or arrays; rows of different lengths are refused.

    >>> shape_of([[1, 2, 3], (4, 5, 6)])
    (2, 3)
    """
    if isinstance(answer, np.ndarray):
        return tuple(answer.shape)
    if not isinstance(answer, (list, tuple)):
        return ()
    inner = [shape_of(part) for part in answer]
    for i, shape in enumerate(inner):
        if shape != inner[0]:
            raise UnreadableError(
                f"part {i + 1} has shape {shape} and part 1 has shape {inner[0]}: all rows need the same length."
            )
    return (len(answer), *(inner[0] if inner else ()))


def shape_in_words(shape: tuple[int, ...]) -> str:
    """Say what shape an answer should have.

    >>> shape_in_words(()), shape_in_words((3,)), shape_in_words((1, 2))
    ('one number', 'one row of 3, shape (3,)', 'shape (1, 2): 1 row of 2')
    """
    if shape == ():
        return "one number"
    if len(shape) == 1:
        return f"one row of {shape[0]}, shape {shape}"
    return f"shape {shape}: {shape[-2]} {'row' if shape[-2] == 1 else 'rows'} of {shape[-1]}"


@_reading
def read_numbers(answer: Any) -> Array:
    """Read lists, tuples, arrays, tensors, fractions and floats of any width as a float64 array.

    >>> from fractions import Fraction
    >>> read_numbers((Fraction(1, 4), 0.75)).tolist()
    [0.25, 0.75]
    """
    answer, shape = _measured(answer)
    return np.array([_number(leaf, place) for place, leaf in leaves(answer)], dtype=np.float64).reshape(shape)


@_reading
def floats_only(answer: Any) -> Array:
    """Read the floats of an answer and 0 for everything else, to find out whether they are finite."""
    numbers = [float(leaf) if isinstance(leaf, (float, np.floating)) else 0.0 for _, leaf in leaves(answer)]
    return np.array(numbers).reshape(shape_of(answer))


@_reading
def read_booleans(answer: Any) -> Array:
    """Read a mask: booleans, or the numbers 0 and 1 where the question itself says what True means."""
    answer, shape = _measured(answer)
    for place, leaf in leaves(answer):
        if not isinstance(leaf, (bool, np.bool_)) and not (isinstance(leaf, numbers.Real) and leaf in (0, 1)):
            raise UnreadableError(f"{where(place)} is {_shown(leaf)}; only True and False can be read here.")
    return np.array([bool(leaf) for _, leaf in leaves(answer)], dtype=bool).reshape(shape)


def _measured(answer: Any) -> tuple[Any, tuple[int, ...]]:
    answer = _plain(answer)
    shape = shape_of(answer)
    if math.prod(shape) > MOST:
        raise UnreadableError(f"it holds {math.prod(shape)} numbers.")
    return answer, shape


def _plain(answer: Any) -> Any:
    """Turn anything that offers itself as an array (a tensor, a table) into an array."""
    if not isinstance(answer, (np.ndarray, np.generic)) and hasattr(answer, "__array__"):
        try:
            return np.asarray(answer)
        except Exception as error:  # the learner's own object: whatever it raises is a reason, not a crash
            raise UnreadableError(f"it cannot be turned into numbers ({type(error).__name__}: {error}).") from error
    if isinstance(answer, Iterator):
        raise UnreadableError(f"it is a {type(answer).__name__}, not a list: wrap it in list(...).")
    return answer


def _number(leaf: Any, place: tuple[int, ...]) -> float:
    if isinstance(leaf, (bool, np.bool_)):
        raise UnreadableError(f"{where(place)} is {leaf}; a boolean is not a number here: write a number.")
    if isinstance(leaf, str) and leaf.strip().casefold() == "nan":
        raise UnreadableError(f"{where(place)} {NOT_FINITE['nan']}")
    if isinstance(leaf, str):
        raise UnreadableError(f"{where(place)} is the text {_shown(leaf)}: write the number without quotes.")
    if not isinstance(leaf, (numbers.Real, Decimal)):
        raise UnreadableError(f"{where(place)} is {_shown(leaf)} (a {type(leaf).__name__}), not a number.")
    try:
        return float(leaf)
    except OverflowError:
        raise UnreadableError(f"{where(place)} is too large for a floating-point number.") from None


def where(place: tuple[int, ...]) -> str:
    """Name an entry as prose does, counting from 1."""
    if not place:
        return "your answer"
    if len(place) == 1:
        return f"entry {place[0] + 1}"
    if len(place) == 2:
        return f"row {place[0] + 1}, entry {place[1] + 1}"
    return f"entry {tuple(i + 1 for i in place)}"


def _shown(leaf: Any) -> str:
    text = repr(leaf)
    return text if len(text) <= 40 else text[:37] + "…"


def differing(given: Array, expected: Array) -> Array:
    """Mark the entries that differ: `|given - expected| > 1e-6 max(1, max|expected|)`; inf and NaN must agree."""
    finite = np.isfinite(expected)
    scale = max(1.0, float(np.abs(expected[finite]).max(initial=0)))
    with np.errstate(invalid="ignore"):
        apart = ~(np.abs(given - expected) <= TOLERANCE * scale)
    if finite.all():
        return np.asarray(apart)
    alike = (given == expected) | (np.isnan(given) & np.isnan(expected))
    return np.asarray(np.where(finite, apart, ~alike))


def is_rounded(given: Array, exact: Array) -> bool:
    """Say whether these are the exact numbers cut or rounded to two to five decimals; NaN matches anything.

    >>> is_rounded(np.array([0.33, 0.67]), np.array([1 / 3, 2 / 3])), is_rounded(np.array([0.3]), np.array([1 / 3]))
    (True, False)
    >>> is_rounded(np.array([4.33]), np.array([13 / 3])), is_rounded(np.array([4.34]), np.array([13 / 3]))
    (True, False)
    """
    if given.shape != exact.shape or not np.isfinite(given).all():
        return False
    if (np.abs(given - exact) > 0.01 + 1e-9).any():  # too far off for two decimals, and so for more
        return False
    return any(_has_decimals(given, d) and _is_near(given, exact, 10.0**-d) for d in (2, 3, 4, 5))


def _is_near(given: Array, exact: Array, unit: float) -> bool:
    """Say whether each number is at most half a unit off, or less than one and nearer to 0."""
    off, nearer = np.abs(given - exact), np.abs(given) <= np.abs(exact) + 1e-9
    return bool(((off <= unit / 2 + 1e-9) | ((off < unit) & nearer) | np.isnan(exact)).all())


def _has_decimals(numbers: Array, decimals: int) -> bool:
    scaled = numbers * 10.0**decimals
    return bool((np.abs(scaled - np.round(scaled)) < 1e-6).all())


def in_words(answer: Any) -> str:
    """Show an answer shortly, the same for every way of writing the same numbers.

    >>> in_words(np.array([1 / 3, 2.0])), in_words("B")
    ('[0.3333, 2]', 'B')
    """
    try:
        return _joined(read_numbers(answer).tolist())
    except UnreadableError:
        return str(answer)


def _joined(numbers: Any) -> str:
    return f"[{', '.join(map(_joined, numbers))}]" if isinstance(numbers, list) else f"{numbers:.4g}"


def same(given: Array, expected: Array) -> bool:
    """Compare shape first, then every entry.

    >>> same(np.array([0.3333333]), np.array([1 / 3])), same(np.ones(3), np.ones((1, 3)))
    (True, False)
    """
    return given.shape == expected.shape and not bool(differing(given, expected).any())
