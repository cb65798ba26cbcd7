"""Panels of one head: a row's softmax, the two paths of scores and values, and masks built from rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from labkit.attention import Array, as_allowed, mix, softmax_over_sources
from labkit.errors import LabkitError, ShapeError
from labkit.masks import causal as causal_mask
from labkit.masks import combine, padding
from labkit.panels.panel import Numbers, Panel, finite, names
from labkit.panels.still import Grid, Plane, Still, number


class Source(Protocol):
    """Whatever holds one head's arrays: an AttentionTrace or an exact Example."""

    scores: Any
    allowed: Any
    values: Any


def span(array: Array, low: float, high: float) -> tuple[float, float]:
    """Return a range of controls around the numbers, in whole steps, and at least from `low` to `high`.

    >>> span(np.array([0.5, 6.2]), -2, 3)
    (-2.0, 8.0)
    """
    around = float(np.floor(array.min() - 1)), float(np.ceil(array.max() + 1))
    if array.min() > 20:  # far from zero, a range that includes zero would leave no room to move
        return around
    return min(float(low), around[0]), max(float(high), around[1])


class SoftmaxRow(Panel):
    """One row: scores, mask, exponentials, weights, and the weights as shares of one bar."""

    moves = ("scores", "allowed")
    scores = Numbers()
    allowed = Numbers(dtype=bool)
    weights = Numbers(undefined=True)
    score_range = traitlets.List(traitlets.Float()).tag(sync=True)

    def derive(self) -> Mapping[str, ArrayLike]:
        """Compute the weights; NaN where nothing is allowed."""
        return {"weights": softmax_over_sources(self.scores, self.allowed, empty_rows="nan")}

    def still(self) -> Still:
        """Show scores and weights in two rows."""
        marks = ["allowed" if ok else "blocked" for ok in self.allowed]
        weights = ["?"] * len(marks) if self.locked else [number(w) for w in self.weights]
        texts = [[number(s) for s in self.scores], marks, weights]
        shades = np.zeros((3, len(marks)))
        if not self.locked:
            shades[2] = np.nan_to_num(self.weights)
        sentence = locked_sentence(self) or f"Weights: {', '.join(weights)}."
        return Still(self.title, sentence, [Grid("one row", ["s", "mask", "a"], self.labels, texts, shades)])


def softmax_row(
    scores: ArrayLike,
    allowed: ArrayLike | None = None,
    *,
    labels: Sequence[object] | None = None,
    score_range: tuple[float, float] | None = None,
    locked_by: str | None = None,
    title: str = "Softmax over the sources of one row",
) -> SoftmaxRow:
    """Move the scores of one row and watch every weight: scores (m,), allowed (m,).

    >>> panel = softmax_row([0.0, 0.0])
    >>> panel.allowed = [True, False]
    >>> panel.weights.tolist()
    [1.0, 0.0]
    """
    scores = finite(scores, "scores", 1)
    return SoftmaxRow(
        kind="softmax_row",
        title=title,
        labels=names(labels, len(scores), "source "),
        scores=scores,
        allowed=as_allowed(allowed, scores.shape),
        score_range=list(score_range or span(scores, -2, 3)),
        locked_by=locked_by,
    )


class ScoresAndValues(Panel):
    """One head: scores to weights, and weights with values to mixtures, one destination row in focus."""

    moves = ("scores", "allowed", "values")
    scores = Numbers()
    allowed = Numbers(dtype=bool)
    values = Numbers()
    weights = Numbers(undefined=True)
    output = Numbers(undefined=True)
    row = traitlets.Int(0).tag(sync=True)
    destinations = traitlets.List(traitlets.Unicode()).tag(sync=True)
    score_range = traitlets.List(traitlets.Float()).tag(sync=True)
    value_range = traitlets.List(traitlets.Float()).tag(sync=True)

    @traitlets.validate("row")
    def _existing_row(self, proposal: Any) -> int:
        return existing(proposal["value"], len(self.scores))

    def derive(self) -> Mapping[str, ArrayLike]:
        """Compute weights and mixtures; NaN in rows where nothing is allowed."""
        weights = softmax_over_sources(self.scores, self.allowed, empty_rows="nan")
        return {"weights": weights, "output": mix(weights, self.values)}

    def still(self) -> Still:
        """Show scores, weights and values as maps, and the mixture of the row in focus."""
        grids = [
            score_grid("S scores", self.scores, self.destinations, self.labels),
            weight_grid("A weights", self.weights, self.allowed, self.destinations, self.labels, self.locked),
            value_grid("V values", self.values, self.labels),
        ]
        mixture = f"z{self.row + 1} = ({', '.join(number(z) for z in self.output[self.row])})"
        sentence = locked_sentence(self) or f"Row {self.destinations[self.row]}: mixture {mixture}."
        return Still(self.title, sentence, grids, self._plane())

    def _plane(self) -> Plane | None:
        if self.values.shape[-1] != 2:
            return None
        row = self.allowed[self.row]
        vectors = [(f"v{j + 1}", value.tolist(), bool(row[j])) for j, value in enumerate(self.values)]
        output = self.output[self.row]
        shown = not self.locked and np.isfinite(output).all()
        mixtures = [(f"z{self.row + 1}", output.tolist())] if shown else []
        return Plane(vectors, mixtures, hull([v for _, v, ok in vectors if ok]), *self.value_range)


def scores_and_values(
    source: Source | None = None,
    *,
    scores: ArrayLike | None = None,
    allowed: ArrayLike | None = None,
    values: ArrayLike | None = None,
    row: int = -1,
    labels: Sequence[object] | None = None,
    destinations: Sequence[object] | None = None,
    score_range: tuple[float, float] | None = None,
    value_range: tuple[float, float] | None = None,
    locked_by: str | None = None,
    title: str = "Two paths: scores decide the weights, values are what is mixed",
) -> ScoresAndValues:
    """Move scores, mask and values of one head; give a trace, an example, or the arrays.

    scores (n, m), allowed (n, m), values (m, d_v); `row` is the destination followed at first.

    >>> panel = scores_and_values(scores=[[0.0, 0.0]], values=[[2.0, 0.0], [0.0, 4.0]])
    >>> panel.output.tolist()
    [[1.0, 2.0]]
    >>> panel.allowed = [[True, False]]
    >>> panel.output.tolist()
    [[2.0, 0.0]]
    """
    if source is not None:
        scores, allowed, values = (
            given if given is not None else getattr(source, name)
            for name, given in (("scores", scores), ("allowed", allowed), ("values", values))
        )
    if scores is None or values is None:
        raise LabkitError("scores_and_values needs a trace or an example, or scores (n, m) and values (m, d_v).")
    S, V = finite(scores, "scores", 2), finite(values, "values", 2)
    if S.shape[1] != len(V):
        raise ShapeError(f"scores {S.shape} have {S.shape[1]} sources (last axis), values {V.shape} hold {len(V)}.")
    column_names = names(labels, S.shape[1])
    same_positions = destinations is None and labels is not None and len(S) == S.shape[1]
    return ScoresAndValues(
        kind="scores_and_values",
        title=title,
        labels=column_names,
        destinations=column_names if same_positions else names(destinations, len(S)),
        scores=S,
        allowed=as_allowed(allowed, S.shape),
        values=V,
        row=existing(row, len(S)),
        score_range=list(score_range or span(S, -2, 3)),
        value_range=list(value_range or span(V, -1, 5)),
        locked_by=locked_by,
    )


class MaskBuilder(Panel):
    """A mask as the AND of three rules, and the weights that follow; an empty row shows the error, not numbers."""

    moves = ("causal", "align", "is_real", "by_hand")
    causal = traitlets.Bool(True).tag(sync=True)
    align: Any = traitlets.Enum(("top-left", "bottom-right"), "top-left").tag(sync=True)
    is_real = Numbers(dtype=bool)
    by_hand = Numbers(dtype=bool)
    scores = Numbers()
    form = traitlets.Enum(("allowed", "blocked", "additive"), "allowed").tag(sync=True)
    destinations = traitlets.List(traitlets.Unicode()).tag(sync=True)
    allowed = Numbers(dtype=bool)
    weights = Numbers(undefined=True)

    def derive(self) -> Mapping[str, ArrayLike]:
        """Combine the rules, then compute the weights; NaN in rows where nothing is allowed."""
        n, m = self.by_hand.shape
        triangle = [causal_mask(n, m, self.align)] if self.causal else []
        allowed = combine(self.by_hand, padding(self.is_real), *triangle)
        return {"allowed": allowed, "weights": softmax_over_sources(self.scores, allowed, empty_rows="nan")}

    def still(self) -> Still:
        """Show the mask and the weights."""
        marks = [["True" if ok else "False" for ok in row] for row in self.allowed]
        grids = [
            Grid("allowed", self.destinations, self.labels, marks, 0.3 * self.allowed),
            weight_grid("A weights", self.weights, self.allowed, self.destinations, self.labels, self.locked),
        ]
        empty = [name for name, row in zip(self.destinations, self.allowed, strict=True) if not row.any()]
        refused = f"EmptyRowError: destination {', '.join(empty)} may read no source."
        sentence = locked_sentence(self) or (refused if empty else "Every destination may read at least one source.")
        return Still(self.title, sentence, grids)


def mask_builder(
    n: int = 4,
    m: int | None = None,
    *,
    scores: ArrayLike | None = None,
    causal: bool = True,
    align: Literal["top-left", "bottom-right"] = "top-left",
    is_real: Sequence[bool] | None = None,
    allowed: ArrayLike | None = None,
    labels: Sequence[object] | None = None,
    locked_by: str | None = None,
    title: str = "Build a mask: a source may be read when every rule allows it",
) -> MaskBuilder:
    """Combine the causal rule, padding and cells blocked by hand, for n destinations and m sources.

    scores (n, m) are 0 unless given; `allowed` (n, m) sets the cells blocked by hand at the start.

    >>> mask_builder(2).weights.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    S = np.zeros((n, n if m is None else m)) if scores is None else finite(scores, "scores", 2)
    n, m = S.shape
    return MaskBuilder(
        kind="mask_builder",
        title=title,
        labels=names(labels, m),
        destinations=names(labels if n == m else None, n),
        scores=S,
        causal=causal,
        align=align,
        is_real=np.ones(m, dtype=bool) if is_real is None else np.asarray(is_real, dtype=bool),
        by_hand=as_allowed(allowed, S.shape),
        locked_by=locked_by,
    )


def existing(row: int, count: int) -> int:
    """Turn a row number, perhaps counted from the end, into one between 0 and count - 1."""
    if not -count <= row < count:
        raise ShapeError(f"row {row} of {count} rows: count from 0, or from the end with negative numbers.")
    return row % count


def locked_sentence(panel: Panel) -> str:
    """Say what opens a locked panel; empty once it is open."""
    return f"Predict first: answer {panel.locked_by} and run its check." if panel.locked else ""


def score_grid(name: str, scores: Array, rows: Sequence[str], columns: Sequence[str]) -> Grid:
    """Show scores, darker where higher."""
    shades = (scores - scores.min()) / (float(np.ptp(scores)) or 1.0) * 0.5
    return Grid(name, rows, columns, [[number(s) for s in row] for row in scores], shades)


def weight_grid(
    name: str, weights: Array, allowed: Array, rows: Sequence[str], columns: Sequence[str], hidden: bool = False
) -> Grid:
    """Show weights, darker where larger; blocked cells say so, and a locked panel says nothing."""
    texts = [
        ["?" if hidden else number(w) if ok or np.isnan(w) else "blocked" for w, ok in zip(*pair, strict=True)]
        for pair in zip(weights, allowed, strict=True)
    ]
    return Grid(name, rows, columns, texts, np.zeros_like(weights) if hidden else np.nan_to_num(weights))


def value_grid(name: str, values: Array, rows: Sequence[str]) -> Grid:
    """Show value vectors, one a row."""
    columns = [f"v[{c + 1}]" for c in range(values.shape[1])]
    texts = [[number(v) for v in row] for row in values]
    return Grid(name, rows, columns, texts, np.full(values.shape, 0.15), "value")


def hull(points: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Return the corners of the convex hull, counter-clockwise (Andrew's monotone chain).

    >>> hull([(0, 0), (2, 0), (1, 1), (2, 2), (0, 2)])
    [(0, 0), (2, 0), (2, 2), (0, 2)]
    """

    def half(ordered: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        chain: list[tuple[float, ...]] = []
        for p in ordered:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], p) <= 0:
                chain.pop()
            chain.append(p)
        return chain[:-1]

    ordered = sorted(tuple(p) for p in points)
    return ordered if len(ordered) < 3 else [*half(ordered), *half(ordered[::-1])]


def _turn(o: Sequence[float], a: Sequence[float], b: Sequence[float]) -> float:
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])
