"""Masks as one boolean array, `allowed[i, j]` True where destination i may read source j, and its translations."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from labkit.attention import Array
from labkit.errors import MaskError


def causal(n: int, m: int | None = None, align: Literal["top-left", "bottom-right"] | None = None) -> Array:
    """Let each destination read sources up to its own position: (n, m)."""
    if m is not None and m != n and align is None:
        raise MaskError(
            f"n = {n} destinations and m = {m} sources: say which corners coincide, "
            'align="bottom-right" (last query sees every key, as with a cache) or align="top-left".'
        )
    m = n if m is None else m
    return np.tri(n, m, m - n if align == "bottom-right" else 0, dtype=bool)


def padding(is_real: ArrayLike) -> Array:
    """Let every destination read the real sources only: (..., m) -> (..., 1, m)."""
    return np.asarray(is_real, dtype=bool)[..., None, :]


def combine(*allowed: ArrayLike) -> Array:
    """Permit what every mask permits (logical AND)."""
    return np.logical_and.reduce(np.broadcast_arrays(*allowed))
