"""Say what is wrong with an attention map, and where nobody can tell.

Rows are destinations, columns sources; leading axes (layers, heads, sequences) are batch axes. Sentences name cells the
way code does: `weights[2, 0]` is destination index 2 reading source index 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from labkit.attention import Array, as_allowed, as_floats
from labkit.errors import ShapeError
from labkit.masks import causal

Severity = Literal["fault", "warning", "note", "cannot tell"]
ROUNDING = 1e-3  # row sums of maps exported with three decimals, or in half precision
LEAK = 1e-6  # weight on a blocked source: a correct mask leaves exactly 0


# ── findings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Finding:
    """One thing that is so about a map: how bad, which kind, in a sentence, at which rows, in which map of a batch."""

    severity: Severity
    kind: str
    sentence: str
    rows: tuple[int, ...] = ()
    where: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"map {list(self.where)}: " if self.where else ""
        return f"{self.severity}: {place}{self.sentence}"


class Findings(list[Finding]):
    """A list of findings that prints one line for each."""

    def of(self, severity: Severity) -> Findings:
        """Keep the findings of one severity."""
        return Findings(finding for finding in self if finding.severity == severity)

    @property
    def kinds(self) -> set[str]:
        """Name the kinds that were found."""
        return {finding.kind for finding in self}

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "nothing found"


@dataclass(frozen=True)
class _Map:
    """One map (n, m) with what is known about it."""

    weights: Array
    allowed: Array | None = None
    values: Array | None = None

    @property
    def mask(self) -> Array:
        """The mask that was given, else the causal one if the zeros draw it, else everything."""
        if self.allowed is not None:
            return self.allowed
        n, m = self.weights.shape
        return causal(n) if _draws_causal(self.weights) else np.ones((n, m), dtype=bool)


def _draws_causal(weights: Array) -> bool:
    n, m = weights.shape
    return n == m >= 3 and not np.triu(weights, 1).any() and bool(np.tril(weights, -1).any())


@dataclass(frozen=True)
class DerivedMap:
    """Numbers made from several maps: no head computed them, and they say so."""

    numbers: Array
    made: str
    caveat: str

    def __str__(self) -> str:
        return f"{self.made}.\n{self.caveat}"


# ── the checks: each looks at one map and returns what it found ──────────────────────────────────────────────────────


def _broken_rows(it: _Map) -> list[Finding]:
    rows = _indices(~np.isfinite(it.weights).all(axis=1))
    if not rows:
        return []
    return [
        Finding(
            "fault",
            "not finite",
            f"{_rows(rows, 'hold')} NaN or infinity, as 0/0 does in a row whose every source is blocked.",
            rows,
        )
    ]


def _not_weights(it: _Map) -> list[Finding]:
    outside = (it.weights < -ROUNDING) | (it.weights > 1 + ROUNDING)
    if not outside.any():
        return []
    i, j = (int(k) for k in np.argwhere(outside)[0])
    negative = bool((it.weights < -ROUNDING).any())
    sign = "scores, taken before softmax" if negative else "scores or exponentials, not normalised"
    return [
        Finding(
            "fault",
            "not weights",
            f"weights[{i}, {j}] is {it.weights[i, j]:.3g}, and a weight lies between 0 and 1: these are {sign}.",
            _indices(outside.any(axis=1)),
        )
    ]


def _sums(it: _Map) -> list[Finding]:
    rows, columns = it.weights.sum(axis=1), it.weights.sum(axis=0)
    off = np.abs(rows - 1) > ROUNDING
    columns_fit = bool(np.all(np.abs(columns - 1) <= ROUNDING))
    if not off.any():
        return [_either_axis()] if columns_fit and len(columns) > 1 else []
    where = _indices(off)
    if columns_fit:
        return [Finding("fault", *_which_swap(it), where)]
    text = f"{_rows(where, 'sum')} to {rows[off].min():.3g}" + (f" … {rows[off].max():.3g}" if len(where) > 1 else "")
    if rows[off].max() < 1:
        reason = "weights were zeroed after softmax without renormalising, or columns were cut off, or dropout was on"
    else:
        reason = "no softmax over the sources ends like this; dropout that was left on can"
    return [Finding("fault", "row sums", f"{text}, not 1: {reason}.", where)]


def _either_axis() -> Finding:
    return Finding(
        "cannot tell",
        "axis",
        "rows and columns both sum to 1: the sums tell neither which axis was normalised nor a map from its transpose.",
    )


def _which_swap(it: _Map) -> tuple[str, str]:
    """Tell a transposed map from one normalised down its columns, where the mask can: kind and sentence."""
    start = "the columns sum to 1 and the rows do not: "
    square = it.allowed is not None and it.allowed.shape[0] == it.allowed.shape[1]
    as_it_is, turned = (square and _obeys(weights, it.mask) for weights in (it.weights, it.weights.T))
    if turned and not as_it_is:
        return "transposed", start + "the map is transposed (turned round, it obeys the mask)."
    if as_it_is and not turned:
        return "columns normalised", start + "softmax ran down the columns, over the destinations."
    return "axis swapped", start + "softmax ran over the destinations, or the map is transposed; which, it cannot tell."


def _blocked(it: _Map) -> list[Finding]:
    """Weight where the mask allows none; without a mask, zeros that draw a causal mask upside down."""
    if it.allowed is None:
        return _looks_turned(it)
    leak = np.where(it.allowed, 0, np.abs(it.weights)).sum(axis=1)
    rows = _indices(leak > LEAK)
    transposed = np.allclose(it.weights.sum(axis=0), 1, atol=ROUNDING) and _obeys(it.weights.T, it.allowed)
    if not rows or transposed:  # the transposed map was named by its sums
        return []
    turned = _turn_that_fits(it.weights, it.allowed)
    if turned:
        return [Finding("fault", "flipped", f"the map breaks its mask, and obeys it with {turned}.", rows)]
    row = int(np.argmax(leak))
    kind, pattern = _leak_pattern(it.weights, it.allowed)
    text = f"{_rows(rows, 'put')} weight on blocked sources (row {row}: {leak[row]:.3g} of 1){pattern}."
    return [Finding("fault", kind, text, rows)]


def _leak_pattern(weights: Array, allowed: Array) -> tuple[str, str]:
    leaking = ~allowed & (np.abs(weights) > LEAK)
    beside = np.zeros_like(allowed)
    beside[:, 1:] = allowed[:, :-1]
    if (leaking <= beside).all():
        return "mask off by one", ": always one step right of the allowed ones, so the mask is off by one"
    if leaking.sum() == (~allowed).sum():
        return "no mask", ": on every one of them, so no mask worked, as when a blocked score is set to 0"
    return "blocked sources", ""


def _looks_turned(it: _Map) -> list[Finding]:
    n, m = it.weights.shape
    if n != m or n < 3 or _draws_causal(it.weights):
        return []
    turned = _turn_that_fits(it.weights, causal(n))
    if not turned:
        return _almost_causal(it)
    return [
        Finding("warning", "flipped", f"the zeros draw a causal mask with {turned}: was the origin or an axis flipped?")
    ]


def _almost_causal(it: _Map) -> list[Finding]:
    above = np.triu(it.weights, 1).sum() / len(it.weights)
    if not LEAK < above < 0.01:
        return []
    text = f"only {above:.2g} of the weight lies above the diagonal: a causal mask with too small a fill, or a head"
    return [Finding("cannot tell", "nearly causal", f"{text} that looks back by itself; the mask would tell.")]


def _turn_that_fits(weights: Array, allowed: Array) -> str:
    turns: dict[str, Callable[[Array], Array]] = {
        "its rows in reverse order": lambda a: a[::-1],
        "its columns in reverse order": lambda a: a[:, ::-1],
        "both axes in reverse order": lambda a: a[::-1, ::-1],
    }
    for name, turn in turns.items():
        if _obeys(turn(weights), allowed) and not np.isclose(weights, 0).all():
            return name
    return ""


def _obeys(weights: Array, allowed: Array) -> bool:
    return weights.shape == allowed.shape and not np.any(np.abs(weights[~allowed]) > LEAK)


def _exact_zeros(it: _Map) -> list[Finding]:
    if it.allowed is None:
        return []
    zero = it.allowed & (it.weights == 0)
    if not zero.any():
        return []
    i, j = (int(k) for k in np.argwhere(zero)[0])
    text = (
        f"weights[{i}, {j}] is exactly 0 although allowed: softmax gives that only by underflow, so a stricter mask "
        "was used or weights were cut afterwards."
    )
    return [Finding("warning", "exact zeros", text, _indices(zero.any(axis=1)))]


def _forced(it: _Map) -> list[Finding]:
    rows = _indices((it.mask.sum(axis=1) == 1) & (it.weights.max(axis=1) > 1 - ROUNDING))
    if not rows or it.weights.shape[1] == 1:
        return []
    text = f"{_rows(rows, 'have')} one allowed source, so the weight is 1 whatever was learned: it shows no importance."
    return [Finding("note", "forced one", text, rows)]


def _uniform(it: _Map) -> list[Finding]:
    count = it.mask.sum(axis=1)
    spread = np.where(it.mask, np.abs(it.weights - 1 / np.maximum(count, 1)[:, None]), 0).max(axis=1)
    rows = _indices((count > 1) & (spread <= ROUNDING))
    if not rows:
        return []
    text = f"{_rows(rows, 'spread')} evenly over every source: equal scores, none preferred"
    return [Finding("note", "uniform", text + ".", rows)]


def _sink(it: _Map) -> list[Finding]:
    contested = it.mask & (it.mask.sum(axis=1) >= 3)[:, None]  # with one or two sources, half the weight is no wonder
    readers = contested.sum(axis=0)
    share = np.where(contested, it.weights, 0).sum(axis=0) / np.maximum(readers, 1)
    share[readers < 3] = 0
    column = int(np.argmax(share))
    if share[column] < 0.5:
        return []
    text = f"column {column} takes {share[column]:.2f} of its {readers[column]} readers' weight: an attention sink"
    return [Finding("note", "sink", f"{text}{_sink_values(it, column)}.")]


def _sink_values(it: _Map, column: int) -> str:
    if it.values is None:
        return "; without values nobody can tell whether anything is moved from there"
    norms = np.linalg.norm(it.values, axis=-1)
    others = float(np.delete(norms, column).mean())
    return f"; its value has {norms[column] / others:.2f} times the length of the others" if others else ""


CHECKS: tuple[Callable[[_Map], list[Finding]], ...] = (_sums, _blocked)
READINGS: tuple[Callable[[_Map], list[Finding]], ...] = (_exact_zeros, _forced, _uniform, _sink)


# ── the audit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def audit(
    weights: ArrayLike | DerivedMap, allowed: ArrayLike | None = None, values: ArrayLike | None = None
) -> Findings:
    """Say what is wrong with a map, or with every map of a batch, and what cannot be told.

    weights (..., n, m), allowed boolean (..., n, m), values (..., m, d_v).

    >>> audit([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.25, 0.25]], causal(3)).of("note")
    note: weights[0] has one allowed source, so the weight is 1 whatever was learned: it shows no importance.
    note: weights[1] spreads evenly over every source: equal scores, none preferred.
    """
    if isinstance(weights, DerivedMap):
        return Findings([Finding("warning", "derived", f"{weights.made}. {weights.caveat}")])
    array, mask, moved = _checked(weights, allowed, values)
    findings = Findings(_shape_findings(array, moved))
    for place in np.ndindex(array.shape[:-2]):
        one = _Map(
            array[place],
            None if mask is None else mask[place],
            None if moved is None or moved.ndim > array.ndim else moved[place],
        )
        findings += [replace(found, where=place) for found in _audit_one(one)]
    return findings


def _checked(
    weights: ArrayLike, allowed: ArrayLike | None, values: ArrayLike | None
) -> tuple[Array, Array | None, Array | None]:
    array = as_floats(weights, "weights")
    if array.ndim < 2 or not array.size:
        raise ShapeError(f"weights {array.shape}: a map needs destinations and sources, (..., n, m).")
    mask = None if allowed is None else as_allowed(allowed, array.shape)
    if values is None:
        return array, mask, None
    moved = as_floats(values, "values")
    if moved.ndim < 2 or moved.shape[-2] != array.shape[-1]:
        raise ShapeError(
            f"weights {array.shape} cover {array.shape[-1]} sources (last axis), values {moved.shape} hold "
            f"{moved.shape[-2] if moved.ndim > 1 else 0} (axis -2): one value vector per source is needed."
        )
    if moved.ndim <= array.ndim:
        moved = np.broadcast_to(moved, (*array.shape[:-2], *moved.shape[-2:]))
    return array, mask, moved


def _audit_one(it: _Map) -> list[Finding]:
    broken = _broken_rows(it)
    if broken:
        return broken
    found = _not_weights(it) or [finding for check in CHECKS for finding in check(it)]
    if not any(finding.severity == "fault" for finding in found):
        found += [finding for reading in READINGS for finding in reading(it)]
    return found


def _shape_findings(array: Array, values: Array | None) -> list[Finding]:
    """What the shapes say about averaging, before any number is looked at."""
    if values is not None and values.ndim > array.ndim:
        heads = values.shape[-3]
        text = f"the values have {heads} heads, the weights no axis for them: probably an average of heads."
        return [Finding("warning", "average", text)]
    found = []
    if array.ndim == 2:
        text = "the numbers cannot tell one head from an average of several: ask where the map was taken."
        found.append(Finding("cannot tell", "one head?", text))
    elif array.ndim == 3:
        text = (
            f"the leading axis of {len(array)} may count heads, layers or sequences, and averaged heads leave no trace."
        )
        found.append(Finding("cannot tell", "leading axis", text))
    if values is None:
        text = "no values were given, so nothing here says how much is moved: equal maps can give different outputs."
        found.append(Finding("cannot tell", "effect", text))
    return found


def _indices(mask: ArrayLike) -> tuple[int, ...]:
    return tuple(int(i) for i in np.flatnonzero(mask))


def _rows(rows: Sequence[int], verb: str) -> str:
    """Name the rows and what they do: "weights[2] holds", "weights[[1, 2]] hold"."""
    if len(rows) == 1:
        return f"weights[{rows[0]}] {'has' if verb == 'have' else verb + 's'}"
    shown = ", ".join(map(str, rows[:6])) + (", …" if len(rows) > 6 else "")
    return f"weights[[{shown}]] {verb}"
