"""Several heads read in parallel, are laid side by side, and are written back through `W_O`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labkit.attention import Array, AttentionTrace, EmptyRows, Head, as_floats, attend, project
from labkit.errors import LabkitError, ShapeError


@dataclass(frozen=True)
class MultiHeadTrace:
    """Every head's trace, their concatenation (..., n, H d_v) and the update (..., n, d_model)."""

    heads: tuple[AttentionTrace, ...]
    concatenated: Array
    update: Array


def multi_head(
    inputs: ArrayLike,
    heads: Sequence[Head],
    W_O: ArrayLike,
    allowed: ArrayLike | None = None,
    sources: ArrayLike | None = None,
    empty_rows: EmptyRows = "raise",
) -> MultiHeadTrace:
    """Run all heads on the whole input and write their concatenation back: `Concat(Z_1 … Z_H) W_O`.

    W_O is (H d_v, d_model). Source: Vaswani et al. 2017, section 3.2.2.

    >>> one, two = (Head([[0], [0]], [[0], [0]], W_V) for W_V in ([[2], [0]], [[0], [4]]))
    >>> trace = multi_head([[1, 0], [0, 1]], [one, two], W_O=[[1, 0], [1, -1]])
    >>> trace.concatenated.tolist(), trace.update.tolist()
    ([[1.0, 2.0], [1.0, 2.0]], [[3.0, -2.0], [3.0, -2.0]])
    """
    if isinstance(heads, Head):
        raise LabkitError("heads is one Head; expected a list of them: write [head].")
    heads = tuple(heads)
    if not heads:
        raise ShapeError("heads is empty: give at least one Head.")
    W_O = as_floats(W_O, "W_O", axes=2)
    traces = tuple(attend(inputs, head, allowed, sources, empty_rows) for head in heads)
    batches = [trace.output.shape[:-2] for trace in traces]
    if len(set(batches)) > 1:
        raise ShapeError(
            f"the heads' outputs have batch axes {', '.join(map(str, batches))} (leading axes): give all the same."
        )
    concatenated = np.concatenate([trace.output for trace in traces], axis=-1)
    if concatenated.shape[-1] != W_O.shape[-2]:
        raise ShapeError(
            f"{len(traces)} heads give {concatenated.shape[-1]} features side by side (last axis), "
            f"W_O {W_O.shape} expects {W_O.shape[-2]} (first axis): it must be (H d_v, d_model)."
        )
    return MultiHeadTrace(traces, concatenated, project(concatenated, W_O))


def residual(state: ArrayLike, update: ArrayLike) -> Array:
    """Add the update to the original residual state, not to its normalised copy: (..., n, d_model) twice -> the same.

    >>> residual([[1, 1]], [[1.5, 3]]).tolist()
    [[2.5, 4.0]]
    """
    state, update = as_floats(state, "state"), as_floats(update, "update")
    if state.shape != update.shape:
        raise ShapeError(
            f"state has shape {state.shape} and update {update.shape}; expected equal shapes (..., n, d_model): "
            "W_O must write back d_model features for every destination."
        )
    return state + update
