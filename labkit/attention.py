"""One attention head as five small functions and a record of everything in between.

Axis letters, everywhere: `n` destinations (rows, queries), `m` sources (columns, keys), `d_model`, `d_k`, `d_v`.
Leading axes are batch axes. Formula: Vaswani et al. 2017, section 3.2.1, written for row vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.errors import EmptyRowError, LabkitError, MaskError, NonFiniteError, ShapeError

Array = NDArray[Any]
EmptyRows = Literal["raise", "zero", "nan"]


@dataclass(frozen=True)
class Head:
    """The learned matrices of one head: `W_Q` (d_model, d_k), `W_K` (d_model, d_k), `W_V` (d_model, d_v)."""

    W_Q: Array
    W_K: Array
    W_V: Array

    def __post_init__(self) -> None:
        for name in ("W_Q", "W_K", "W_V"):
            object.__setattr__(self, name, as_floats(getattr(self, name), name))
        if self.W_Q.shape[-1] != self.W_K.shape[-1]:
            raise ShapeError(
                f"W_Q has d_k = {self.W_Q.shape[-1]} and W_K has d_k = {self.W_K.shape[-1]} (last axis): "
                "queries and keys are compared coordinate by coordinate, so give both the same width."
            )


@dataclass(frozen=True)
class AttentionTrace:
    """Every array of one head's computation, in the order it was made."""

    inputs: Array  # (..., n, d_model)
    sources: Array  # (..., m, d_model)
    queries: Array  # (..., n, d_k)
    keys: Array  # (..., m, d_k)
    values: Array  # (..., m, d_v)
    scores: Array  # (..., n, m), before the mask
    allowed: Array  # (..., n, m), True where reading is permitted
    weights: Array  # (..., n, m), rows sum to 1
    output: Array  # (..., n, d_v)


def project(inputs: ArrayLike, weights: ArrayLike) -> Array:
    """Multiply every position's row vector by one learned matrix.

    (..., n, d_model) @ (d_model, d) -> (..., n, d)
    """
    inputs, weights = as_floats(inputs, "inputs"), as_floats(weights, "weights")
    if inputs.shape[-1] != weights.shape[-2]:
        raise ShapeError(
            f"inputs {inputs.shape} have {inputs.shape[-1]} features (last axis), weights {weights.shape} "
            f"expect {weights.shape[-2]} (first axis). Rows are vectors here: check for a missing transpose."
        )
    return inputs @ weights


def scaled_scores(queries: ArrayLike, keys: ArrayLike) -> Array:
    """Score every destination against every source: `Q K^T / sqrt(d_k)`.

    (..., n, d_k), (..., m, d_k) -> (..., n, m)
    """
    queries, keys = as_floats(queries, "queries"), as_floats(keys, "keys")
    if queries.shape[-1] != keys.shape[-1]:
        raise ShapeError(
            f"queries {queries.shape} have width {queries.shape[-1]} and keys {keys.shape} have width "
            f"{keys.shape[-1]} (last axis): both must be d_k wide."
        )
    # A Python float, because dividing by a NumPy scalar would turn float32 into float64.
    return (queries @ keys.swapaxes(-1, -2)) / float(queries.shape[-1]) ** 0.5


def softmax_over_sources(
    scores: ArrayLike, allowed: ArrayLike | None = None, empty_rows: EmptyRows = "raise"
) -> Array:
    """Turn each row of scores into weights over its allowed sources; blocked weights are exactly 0.

    (..., n, m) -> (..., n, m); rows sum to 1.
    """
    scores = as_floats(scores, "scores")
    mask = as_allowed(allowed, scores.shape)
    wrong = mask & ~(scores < np.inf)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise NonFiniteError(f"scores[{where}] is {scores[where]} and allowed: block it or repair it.")
    row_max = np.max(scores, axis=-1, keepdims=True, where=mask, initial=-np.inf)
    empty = np.isneginf(row_max)
    if empty.any() and empty_rows == "raise":
        raise EmptyRowError([tuple(int(i) for i in row) for row in np.argwhere(empty[..., 0])])
    weights = np.zeros_like(scores)
    np.subtract(scores, row_max, out=weights, where=mask & ~empty)
    np.exp(weights, out=weights, where=mask & ~empty)
    total = weights.sum(axis=-1, keepdims=True)
    np.divide(weights, total, out=weights, where=~empty)
    if empty_rows == "nan":
        weights[empty[..., 0]] = np.nan
    return weights


def mix(weights: ArrayLike, values: ArrayLike) -> Array:
    """Mix the value vectors of the sources with each destination's weights.

    (..., n, m), (..., m, d_v) -> (..., n, d_v)
    """
    weights, values = as_floats(weights, "weights"), as_floats(values, "values")
    if weights.shape[-1] != values.shape[-2]:
        raise ShapeError(
            f"weights {weights.shape} cover {weights.shape[-1]} sources (last axis), values {values.shape} "
            f"hold {values.shape[-2]} (axis -2): one value vector per source is needed."
        )
    broken = ~np.isfinite(values).all(axis=-1)  # (..., m)
    if broken.any():
        if (weights.swapaxes(-1, -2)[broken] != 0).any():
            raise NonFiniteError("a value vector with weight above 0 holds NaN or inf: repair it or block its source.")
        values = np.where(broken[..., None], 0, values)  # 0 * NaN would be NaN
    return weights @ values


def attend(
    inputs: ArrayLike,
    head: Head,
    allowed: ArrayLike | None = None,
    sources: ArrayLike | None = None,
    empty_rows: EmptyRows = "raise",
) -> AttentionTrace:
    """Run one head and keep everything it computed; without `sources`, positions read each other."""
    inputs = as_floats(inputs, "inputs")
    sources = inputs if sources is None else as_floats(sources, "sources")
    queries = project(inputs, head.W_Q)
    keys, values = project(sources, head.W_K), project(sources, head.W_V)
    scores = scaled_scores(queries, keys)
    mask = as_allowed(allowed, scores.shape)
    weights = softmax_over_sources(scores, mask, empty_rows)
    return AttentionTrace(
        inputs, sources, queries, keys, values, scores, mask, weights, mix(weights, values)
    )


def as_floats(array: ArrayLike, name: str) -> Array:
    """Give float32 and float64 back as they are; integers become float64 and half precision float32."""
    array = np.asarray(array)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.itemsize == 2:  # float16, bfloat16: their exponentials overflow at 11
        return array.astype(np.float32)
    if array.dtype.kind == "O":  # fractions
        return array.astype(np.float64)
    raise LabkitError(f"{name} has dtype {array.dtype}; give numbers (float64, float32 or integers).")


def as_allowed(allowed: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Broadcast a boolean mask to the scores' shape; None allows everything."""
    if allowed is None:
        return np.ones(shape, dtype=bool)
    mask = np.asarray(allowed)
    if mask.dtype != bool:
        raise MaskError(
            f"allowed has dtype {mask.dtype}; it must be boolean, True where reading is permitted. "
            "A 0/1 integer mask is ambiguous (some libraries mean 'blocked' by 1) and a float mask is added to "
            "scores elsewhere: convert with labkit.masks.from_blocked or labkit.masks.from_additive."
        )
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        raise MaskError(
            f"allowed {mask.shape} does not fit scores {shape}: rows are destinations, columns sources."
        ) from error
