"""One attention head as five small functions and a record of everything in between.

Axis letters, everywhere: `n` destinations (rows, queries), `m` sources (columns, keys), `d_model`, `d_k`, `d_v`.
Leading axes are batch axes. Formulas: Vaswani et al. 2017, section 3.2.1, written for row vectors.

float32 stays float32, integers and fractions become float64, float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
import numbers
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.errors import EmptyRowError, LabkitError, MaskError, NonFiniteError, ShapeError

Array = NDArray[Any]
EmptyRows = Literal["raise", "zero", "nan"]
Block = tuple[slice, ...]  # a piece of the scores: runs along their leading axes
BLOCK = 1 << 19  # scores handled at a time, so that the five steps of softmax find them in the processor's cache
SAFE_EXPONENT = 30  # exp(30) fits into every float type with room for a long sum


@dataclass(frozen=True)
class Head:
    """The learned matrices of one head: `W_Q` (d_model, d_k), `W_K` (d_model, d_k), `W_V` (d_model, d_v).

    >>> Head(W_Q=[[1, 0]], W_K=[[0, 1, 0]], W_V=[[1]])
    Traceback (most recent call last):
    labkit.errors.ShapeError: W_Q has d_k = 2 and W_K has d_k = 3 (last axis): queries and keys are compared \
coordinate by coordinate, so give both the same width.
    """

    W_Q: Array
    W_K: Array
    W_V: Array

    def __post_init__(self) -> None:
        for name in ("W_Q", "W_K", "W_V"):
            object.__setattr__(self, name, as_floats(getattr(self, name), name, axes=2))
        if self.W_Q.shape[-1] != self.W_K.shape[-1]:
            raise ShapeError(
                f"W_Q has d_k = {self.W_Q.shape[-1]} and W_K has d_k = {self.W_K.shape[-1]} (last axis): "
                "queries and keys are compared coordinate by coordinate, so give both the same width."
            )
        if self.W_K.shape[-2] != self.W_V.shape[-2]:
            raise ShapeError(
                f"W_K reads {self.W_K.shape[-2]} features and W_V {self.W_V.shape[-2]} (first axis): "
                "both project the same sources, so give both d_model rows."
            )


@dataclass(frozen=True)
class AttentionTrace:
    """Every array of one head's computation: inputs, sources, queries, keys, values, scores, allowed, weights, output.

    `scores` are computed again from queries and keys whenever they are asked for: keeping them beside the weights
    would double the memory of a large map.
    """

    inputs: Array  # (..., n, d_model)
    sources: Array  # (..., m, d_model)
    queries: Array  # (..., n, d_k)
    keys: Array  # (..., m, d_k)
    values: Array  # (..., m, d_v)
    allowed: Array  # (..., n, m), True where reading is permitted
    weights: Array  # (..., n, m), rows sum to 1
    output: Array  # (..., n, d_v)

    @property
    def scores(self) -> Array:
        """What the mask and softmax were given: (..., n, m)."""
        return scaled_scores(self.queries, self.keys)


def project(inputs: ArrayLike, weights: ArrayLike) -> Array:
    """Multiply every position's row vector by one learned matrix: `X W`.

    (..., n, d_model), (d_model, d) -> (..., n, d)

    >>> project([[1, 2], [0, 1]], [[1, 0, 3], [0, 1, 1]])
    array([[1., 2., 5.],
           [0., 1., 1.]])
    """
    inputs, weights = as_floats(inputs, "inputs"), as_floats(weights, "weights", axes=2)
    if inputs.shape[-1] != weights.shape[-2]:
        raise ShapeError(
            f"inputs {inputs.shape} have {inputs.shape[-1]} features (last axis), weights {weights.shape} "
            f"expect {weights.shape[-2]} (first axis). Rows are vectors here: check for a missing transpose."
        )
    return _product(inputs, weights, "inputs", "weights")


def scaled_scores(queries: ArrayLike, keys: ArrayLike) -> Array:
    """Score every destination against every source: `Q K^T / sqrt(d_k)`.

    (..., n, d_k), (..., m, d_k) -> (..., n, m)

    >>> scaled_scores([[1, 1, 1, 1]], [[2, 0, 0, 0], [1, 2, 3, 4]])
    array([[1., 5.]])
    """
    queries, keys = as_floats(queries, "queries"), as_floats(keys, "keys", axes=2)
    if queries.shape[-1] != keys.shape[-1]:
        raise ShapeError(
            f"queries {queries.shape} have width {queries.shape[-1]} and keys {keys.shape} have width "
            f"{keys.shape[-1]} (last axis): both must be d_k wide."
        )
    # Dividing the queries gives the same scores with n d_k divisions instead of n m. The root is a Python float,
    # because a NumPy scalar would turn float32 into float64.
    scaled = queries / float(queries.shape[-1]) ** 0.5
    return _product(scaled, keys.swapaxes(-1, -2), "queries", "keys")


def softmax_over_sources(scores: ArrayLike, allowed: ArrayLike | None = None, empty_rows: EmptyRows = "raise") -> Array:
    """Turn each row of scores into weights over its allowed sources; blocked weights are exactly 0.

    (..., n, m) -> (..., n, m); rows sum to 1. A single row (m,) works too. A row without any allowed, finite score
    raises EmptyRowError unless `empty_rows` says "zero" or "nan".

    >>> softmax_over_sources([[1000, 1000, 5000], [0, 0, -np.inf]], [[True, True, False], [True, True, True]])
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ]])
    """
    weights = np.array(as_floats(scores, "scores"), order="C")  # a copy
    mask = None if allowed is None else _without_copies(np.atleast_2d(as_allowed(allowed, weights.shape)))
    _softmax_rows(np.atleast_2d(weights), mask, empty_rows)
    return weights


def mix(weights: ArrayLike, values: ArrayLike) -> Array:
    """Mix the value vectors of the sources with each destination's weights: `A V`.

    (..., n, m), (..., m, d_v) -> (..., n, d_v). A NaN or infinite value of a source with weight 0 is left out; with
    any other weight it is refused.

    >>> mix([[0.25, 0.75, 0]], [[4, 0], [0, 8], [np.nan, 1]])
    array([[1., 6.]])
    """
    weights, values = as_floats(weights, "weights"), as_floats(values, "values", axes=2)
    if weights.shape[-1] != values.shape[-2]:
        raise ShapeError(
            f"weights {weights.shape} cover {weights.shape[-1]} sources (last axis), values {values.shape} "
            f"hold {values.shape[-2]} (axis -2): one value vector per source is needed."
        )
    if not np.isfinite(values).all():
        values = _without_blocked(values, np.atleast_2d(np.abs(weights) > 0))
    return _product(weights, values, "weights", "values")


def attend(
    inputs: ArrayLike,
    head: Head,
    allowed: ArrayLike | None = None,
    sources: ArrayLike | None = None,
    empty_rows: EmptyRows = "raise",
) -> AttentionTrace:
    """Run one head and keep everything it computed; without `sources`, positions read each other.

    (..., n, d_model) and, when given, sources (..., m, d_model)

    >>> trace = attend([[1, 0], [0, 1]], Head([[0], [0]], [[1], [1]], [[2], [4]]))
    >>> trace.weights.tolist(), trace.output.tolist()
    ([[0.5, 0.5], [0.5, 0.5]], [[3.0], [3.0]])
    """
    if not isinstance(head, Head):
        raise LabkitError(f"head is a {type(head).__name__}; expected a Head, such as Head(W_Q, W_K, W_V).")
    inputs = as_floats(inputs, "inputs", axes=2)
    sources = inputs if sources is None else as_floats(sources, "sources", axes=2)
    queries = project(inputs, head.W_Q)
    keys, values = project(sources, head.W_K), project(sources, head.W_V)
    weights = scaled_scores(queries, keys)  # softmax overwrites them in place
    mask = as_allowed(allowed, weights.shape)
    _softmax_rows(weights, None if allowed is None else _without_copies(mask), empty_rows)
    finite = values if np.isfinite(values).all() else _without_blocked(values, mask)
    output = _product(weights, finite, "weights", "values")
    return AttentionTrace(inputs, sources, queries, keys, values, mask, weights, output)


def as_floats(array: ArrayLike, name: str, axes: int = 1) -> Array:
    """Give float32 and float64 back as they are; integers and fractions become float64, half precision float32.

    Anything else is refused, and so is an array with fewer than `axes` axes.
    """
    try:
        array = np.asarray(array)
        if array.dtype == object and not all(isinstance(number, numbers.Real) for number in array.flat):
            raise TypeError("it holds something that is no number")
        array = array.astype(_float_type(array.dtype), copy=False)
    except (TypeError, ValueError, OverflowError) as error:  # overflow: a whole number beyond any float
        raise LabkitError(f"{name} cannot be read as an array of real numbers: {error}.") from error
    if array.ndim < axes:
        raise ShapeError(f"{name} has shape {array.shape}: give {'a matrix' if axes == 2 else 'a vector'} at least.")
    return array


def as_allowed(allowed: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Broadcast a boolean mask to the scores' shape without copying it; None allows everything."""
    try:
        mask = np.asarray(True if allowed is None else allowed)
    except ValueError as error:
        raise MaskError(f"allowed is no table of booleans: {error}.") from error
    if mask.dtype != bool:
        raise MaskError(
            f"allowed has dtype {mask.dtype}; it must be boolean, True where reading is permitted. "
            "A 0/1 mask is ambiguous (True means 'blocked' in some libraries) and a float mask is added to the "
            "scores elsewhere: convert with labkit.masks.from_blocked or labkit.masks.from_additive."
        )
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        raise MaskError(
            f"allowed has shape {mask.shape}, the scores {shape}: rows are destinations, columns are sources. "
            "Give one entry for each score, or shape (1, m) for all destinations."
        ) from error


def _float_type(given: np.dtype[Any]) -> type[np.floating[Any]]:
    if given in (np.float32, np.float64):
        return np.float32 if given == np.float32 else np.float64
    if given.name in ("float16", "bfloat16"):  # their largest exponentials are exp(11) and few digits are left
        return np.float32
    if given.kind in "iuO":  # O: fractions
        return np.float64
    raise TypeError(f"its dtype is {given}, expected float64, float32, float16, integers or fractions")


def _product(left: Array, right: Array, left_name: str, right_name: str) -> Array:
    """Multiply; NaN and overflow are no warnings here, because softmax and mix refuse them where they matter."""
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            product: Array = left @ right
            return product
    except ValueError as error:
        raise ShapeError(
            f"{left_name} and {right_name} have batch axes {left.shape[:-2]} and {right.shape[:-2]} (leading axes): "
            "make them equal, or 1 where all batches share."
        ) from error


def _softmax_rows(scores: Array, allowed: Array | None, empty_rows: EmptyRows) -> None:
    """Turn scores into weights in place, block by block; NumPy frees the interpreter, so threads share the work."""
    if empty_rows not in get_args(EmptyRows):  # a typing error must not turn a refusal into zeros
        raise LabkitError(f'empty_rows is {empty_rows!r}; expected "raise", "zero" or "nan".')
    row_max = np.empty((*scores.shape[:-1], 1), scores.dtype)

    def weigh(block: Block) -> None:
        row_max[block] = _softmax_block(scores[block], None if allowed is None else _part(allowed, block), block)

    if scores.size <= BLOCK:
        weigh(())
    else:
        with ThreadPoolExecutor() as threads:
            deque(threads.map(weigh, _blocks(scores.shape)), maxlen=0)  # the first block's error is the one raised
    empty = np.isneginf(row_max[..., 0])
    if empty.any() and empty_rows == "raise":
        raise EmptyRowError([tuple(int(i) for i in row) for row in np.argwhere(empty)])
    if empty_rows == "nan":
        scores[empty] = np.nan


def _softmax_block(scores: Array, allowed: Array | None, block: Block) -> Array:
    """Subtract each row's largest allowed score, exponentiate, divide by the sum, in place; give the maxima back.

    The subtraction only keeps exp in range: it is left out where every row's largest score lies between 0 and
    SAFE_EXPONENT already.
    Columns before `free` are read by every row here and columns from `end` on by none, so the mask matters only in
    between: for a causal mask that is next to nothing, and half of all exponentials are never taken.
    """
    m = scores.shape[-1]
    free, end = (m, m) if allowed is None else _free_and_end(allowed)
    scores[..., end:] = 0
    scores = scores[..., :end]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if free < end and allowed is not None:
            edge = scores[..., free:]
            limit = (allowed[..., free:end] - scores.dtype.type(0.5)) * np.inf  # inf where allowed, -inf where blocked
            # fmin prefers a number to NaN: a blocked score becomes -inf whatever it was, an allowed NaN becomes +inf.
            np.fmin(edge, limit, out=edge)
        row_max = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        if not (row_max < np.inf).all():  # NaN compares false with everything
            raise _unusable_score(scores, block)
        # Row by row, so that no row's shift depends on another row.
        shift = np.where((row_max >= 0) & (row_max <= SAFE_EXPONENT), 0, row_max)
        if shift.any():
            scores -= np.maximum(shift, np.finfo(scores.dtype).min)  # in an empty row -inf less -inf would be NaN
        np.exp(scores, out=scores)  # exp(-inf) is exactly 0
    total = scores.sum(axis=-1, keepdims=True)
    scores /= np.where(total > 0, total, 1)  # an empty row stays 0
    return np.asarray(row_max)


def _blocks(shape: tuple[int, ...]) -> Iterator[Block]:
    """Cut (..., n, m) into pieces of about BLOCK scores: runs of the first axis, or pieces of each entry in turn."""
    inner = math.prod(shape[1:])
    step = max(1, BLOCK // max(1, inner))
    for start in range(0, shape[0], step):
        run = slice(start, start + step)
        if inner <= BLOCK or len(shape) == 2:  # a row is never cut
            yield (run,)
        else:
            yield from ((run, *rest) for rest in _blocks(shape[1:]))


def _part(allowed: Array, block: Block) -> Array:
    """Take a block out of a mask whose axes may be 1 long where all share one entry."""
    return allowed[tuple(slice(None) if size == 1 else run for size, run in zip(allowed.shape, block, strict=False))]


def _free_and_end(allowed: Array) -> tuple[int, int]:
    """Count the leading columns that every row may read, and the columns up to the last one that any row may read."""
    rows = tuple(range(allowed.ndim - 1))
    somewhere = np.flatnonzero(allowed.any(axis=rows))
    end = int(somewhere[-1]) + 1 if somewhere.size else 0
    return int(np.argmin(np.append(allowed.all(axis=rows), False))), end


def _without_copies(allowed: Array) -> Array:
    """Keep one entry along every axis on which a broadcast mask merely repeats itself."""
    return allowed[tuple(slice(0, 1) if step == 0 else slice(None) for step in allowed.strides[:-1])]


def _unusable_score(scores: Array, block: Block) -> NonFiniteError:
    """Say where the first NaN or infinity stands in the whole; the block's blocked scores are gone already."""
    position = np.argwhere(np.logical_not(scores < np.inf))[0]
    for axis, run in enumerate(block):
        position[axis] += run.start
    *batch, i, j = position.tolist()
    return NonFiniteError(
        f"the score at {(*batch, i, j)} (destination {i}, source {j}) is NaN or infinity and allowed; scores must be "
        "below infinity: repair the query or key it comes from, or block that source."
    )


def _without_blocked(values: Array, read: Array) -> Array:
    """Put 0 where a source that nobody reads holds NaN or infinity, since 0 times NaN is NaN; refuse it where read."""
    broken = np.asarray(~np.isfinite(values).all(axis=-1))  # (..., m)
    refused = np.argwhere(broken & read.any(axis=-2))
    if refused.size:
        source = tuple(refused[0].tolist())
        raise NonFiniteError(
            f"the value of source {source[0] if len(source) == 1 else source} holds NaN or infinity and some "
            "destination reads it; values must be finite: repair it, or block that source for every destination."
        )
    return np.where(broken[..., None], 0, values)
