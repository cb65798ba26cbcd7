"""Masks as one boolean array, `allowed[i, j]` True where destination i may read source j, and its translations.

The same array means opposite things in different libraries; CONVENTIONS says which. Everything here takes and gives
`allowed` unless its name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from labkit.attention import Array
from labkit.errors import MaskError

Align = Literal["top-left", "bottom-right"]


def causal(n: int, m: int | None = None, align: Align | None = None) -> Array:
    """Let each destination read sources up to its own position: (n, m).

    With more sources than destinations the corner that coincides must be named: "bottom-right" when the last query
    stands at the last key, as with a cache; "top-left" when both start together.

    >>> causal(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> causal(1, 3, align="bottom-right").tolist()
    [[True, True, True]]
    """
    for name, size in (("n", n), ("m", m)):
        if name == "m" and size is None:
            continue
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            raise MaskError(f"{name} is {size!r}; expected a whole number of positions.")
    if align not in (None, "top-left", "bottom-right"):
        raise MaskError(f'align is {align!r}; expected "top-left" or "bottom-right".')
    if m is not None and m != n and align is None:
        raise MaskError(
            f"n = {n} destinations and m = {m} sources: say which corners coincide, "
            'align="bottom-right" (the last query sees every key, as with a cache) or align="top-left".'
        )
    m = n if m is None else m
    return np.tri(n, m, m - n if align == "bottom-right" else 0, dtype=bool)


def padding(is_real: ArrayLike) -> Array:
    """Let every destination read the real sources only: (..., m) -> (..., 1, m).

    >>> padding([True, True, False]).tolist()
    [[True, True, False]]
    """
    real = _boolean(is_real, "is_real")
    if real.ndim == 0:
        raise MaskError("is_real is a single truth value; expected one for each source, shape (..., m).")
    return real[..., None, :]


def from_lengths(lengths: ArrayLike, m: int) -> Array:
    """Let every destination read the first `length` of m sources: (...,) -> (..., 1, m).

    >>> from_lengths([1, 3], m=3).astype(int).tolist()
    [[[1, 0, 0]], [[1, 1, 1]]]
    """
    counts = _array(lengths, "lengths")
    if not isinstance(m, int | np.integer):
        raise MaskError(f"m is {m!r}; expected a whole number of sources.")
    if counts.dtype.kind not in "iu" or (counts < 0).any() or (counts > m).any():
        raise MaskError(f"lengths are {counts.tolist()}; expected whole numbers from 0 to m = {m}.")
    return padding(np.arange(m) < counts[..., None])


def to_lengths(allowed: ArrayLike) -> Array:
    """Count the real sources of a padding mask whose filler stands at the end: (..., 1, m) -> (...,).

    >>> to_lengths([[[True, False, False]], [[True, True, True]]]).tolist()
    [1, 3]
    """
    mask = _boolean(allowed, "allowed")
    if mask.ndim < 2 or mask.shape[-2] != 1 or (mask[..., 1:] & ~mask[..., :-1]).any():
        raise MaskError(
            f"allowed {mask.shape} is no run of real sources followed by filler, the same for all destinations "
            "(shape (..., 1, m)): only such a mask has lengths."
        )
    return np.asarray(mask.sum(axis=-1)[..., 0])


def combine(*allowed: ArrayLike) -> Array:
    """Permit what every mask permits (logical AND); shapes broadcast.

    >>> combine(causal(2), padding([False, True])).astype(int).tolist()
    [[0, 0], [0, 1]]
    """
    masks = [_boolean(mask, "allowed") for mask in allowed]
    try:
        return np.asarray(np.all(np.broadcast_arrays(*masks), axis=0))
    except ValueError as error:
        raise MaskError(
            f"masks of shapes {', '.join(str(mask.shape) for mask in masks)} do not combine: rows are destinations, "
            "columns are sources."
        ) from error


def to_additive(allowed: ArrayLike, dtype: DTypeLike = np.float64) -> Array:
    """Write the mask as what is added to the scores before softmax: 0 where allowed, -inf where blocked.

    >>> to_additive([[True, False]]).tolist()
    [[0.0, -inf]]
    """
    mask = _boolean(allowed, "allowed")
    if np.dtype(dtype).kind in "biu":  # -inf cast to a whole number blocks nothing
        raise MaskError(f"dtype is {np.dtype(dtype)}, which cannot hold -inf; expected a float.")
    return np.where(mask, 0, -np.inf).astype(dtype)


def from_additive(additive: ArrayLike) -> Array:
    """Read an additive mask of 0 and -inf; anything else, such as a 0/1 mask or a finite fill, is refused.

    >>> from_additive([[0.0, -np.inf]]).tolist()
    [[True, False]]
    """
    mask = _array(additive, "additive")
    if mask.dtype.kind != "f" or not ((mask == 0) | np.isneginf(mask)).all():
        held = list(dict.fromkeys(mask.ravel().tolist()))[:4]
        raise MaskError(
            f"an additive mask of dtype {mask.dtype} holds {held}; expected floats, 0 where "
            "allowed and -inf where blocked. A 0/1 mask that is added blocks nothing, and a finite fill only damps."
        )
    return np.asarray(mask == 0)


def to_blocked(allowed: ArrayLike) -> Array:
    """Write the mask the other way round, True where reading is forbidden.

    >>> to_blocked([True, False]).tolist()
    [False, True]
    """
    return ~_boolean(allowed, "allowed")


def from_blocked(blocked: ArrayLike) -> Array:
    """Read a mask that is True where reading is forbidden.

    >>> from_blocked([False, True]).tolist()
    [True, False]
    """
    return ~_boolean(blocked, "blocked")


@dataclass(frozen=True)
class Convention:
    """How one library writes its mask, with converters from and to `allowed`."""

    api: str
    argument: str
    true_means: str
    floats: str
    empty_row: str
    from_allowed: Callable[[ArrayLike], Array]
    to_allowed: Callable[[ArrayLike], Array]


CONVENTIONS = {
    "torch.sdpa": Convention(
        "PyTorch scaled_dot_product_attention", "attn_mask", "may attend", "added to the scores", "zeros",
        combine, combine,
    ),
    "torch.mha": Convention(
        "PyTorch MultiheadAttention", "attn_mask, key_padding_mask", "blocked", "added to the scores", "NaN",
        to_blocked, from_blocked,
    ),
    "keras": Convention(
        "Keras MultiHeadAttention", "attention_mask", "may attend", "converted to boolean", "uniform",
        combine, combine,
    ),
}  # fmt: skip


def conventions() -> str:
    """Lay the conventions out as one table in Markdown."""
    columns = ("api", "argument", "true_means", "floats", "empty_row")
    header = "| API | argument | True means | a float mask is | a row with nothing allowed |"
    rows = ["| " + " | ".join(getattr(each, name) for name in columns) + " |" for each in CONVENTIONS.values()]
    return "\n".join([header, "|" + "---|" * len(columns), *rows])


def _array(given: ArrayLike, name: str) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise MaskError(f"{name} is no table: {error}.") from error


def _boolean(mask: ArrayLike, name: str) -> Array:
    array = _array(mask, name)
    if array.dtype != bool:
        raise MaskError(
            f"{name} has dtype {array.dtype}; expected booleans. A 0/1 mask does not say whether 1 means allowed or "
            "blocked: write mask == 1 or mask == 0, whichever is meant."
        )
    return array
