"""How numbers travel: one destination through a head, a row through softmax, value vectors into a mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.errors import ShapeError
from labkit.figures.canvas import (
    BLOCKED,
    INK,
    KEY,
    LINE,
    MUTED,
    PAPER,
    VALUE,
    WEIGHT,
    Canvas,
    ink_on,
    plain,
    shade,
)  # fmt: skip
from labkit.figures.charts import Scale
from labkit.figures.parts import EDGE, Cells, cells_of, colour_of, positions, show, title_of

STAGE = 64  # from one stage of the score path to the next


def data_flow(trace: Any, row: int = 2) -> None:
    """Follow one destination (counted from 0) through the score path and the value path to its mixture.

    `trace` is an AttentionTrace without batch axes, or an exact Trace or Example; an Example shows fractions and
    multiples of ln 2.
    """
    flow = _DataFlow(trace, row)
    show(flow.draw(), f"Data flow of destination {row + 1}. {flow.as_text()}".replace("\n", ". "), flow.as_text())


class _DataFlow:
    """One destination's picture: the score path on the left, the value path on the right, the mixture below both."""

    def __init__(self, trace: Any, row: int) -> None:
        self.row, self.canvas = row, Canvas()
        self.inputs, self.keys, self.values = (cells_of(x) for x in (trace.sources, trace.keys, trace.values))
        self.input, self.query = cells_of(trace.inputs)[row], cells_of(trace.queries)[row]
        self.weights, self.output = cells_of(trace.weights)[row], cells_of(trace.output)[row]
        self.allowed = [bool(ok) for ok in trace.allowed[row]]
        exact = hasattr(trace, "dots")
        self.scores = [
            _times_ln2(d) if exact else plain(s)
            for d, s in zip(getattr(trace, "dots", trace.scores)[row], trace.scores[row], strict=True)
        ]
        self.exponentials = list(trace.exp_scores[row]) if exact else np.exp(trace.scores[row]).tolist()
        widest = max(len(vector(v)) for rows in (self.inputs, self.keys, self.values) for v in rows)
        self.column = max(84.0, 8.0 * widest + 20)
        self.first = EDGE + 190.0  # x of the first source's column in the score path
        self.score_end = self.first + len(self.keys) * self.column + 62
        self.value_start = self.score_end + 40
        self.end = self.value_start + len(self.keys) * self.column + 28

    def draw(self) -> Canvas:
        """Draw from top to bottom."""
        title_of(self.canvas, f"Destination {self.row + 1}: where it reads, and what it gets")
        top = 172.0
        bottom = top + 4 * STAGE + 50
        for left, right, colour, name, note in (
            (EDGE, self.score_end, WEIGHT, "Score path", "decides how much"),
            (self.value_start, self.end, VALUE, "Value path", "decides what"),
        ):
            self.canvas.rect(left, top - 62, right - left, bottom - top + 62, shade(0.05, colour), radius=10)
            self.canvas.text(left + 14, top - 44, name, size=14, bold=True, fill=colour, anchor="start")
            self.canvas.text(left + 104, top - 44, note, size=12, fill=MUTED, anchor="start")
        self._inputs(66, top)
        self._score_path(top)
        self._value_path(top, bottom)
        self._mixture(bottom + 46)
        return self.canvas

    def _inputs(self, y: float, top: float) -> None:
        """Draw the residual rows that both paths start from, and the three projections as arrows."""
        canvas, count = self.canvas, len(self.inputs)
        start = (EDGE + self.end - count * self.column) / 2
        for j, row in enumerate(self.inputs):
            self._box(start + (j + 0.5) * self.column, y, row, INK, f"x_{j + 1}")
        canvas.text(start - 12, y, "inputs", size=13, fill=MUTED, anchor="end")

    def _score_path(self, top: float) -> None:
        canvas = self.canvas
        names = (
            "key of each source",
            f"score q_{self.row + 1} · k / √d_k",
            "mask",
            "exponential",
            "weight = share of sum",
        )
        for k, name in enumerate(names):
            canvas.text(EDGE + 14, top + k * STAGE, name, size=13, anchor="start", fill=KEY if k == 0 else INK)
        for j in range(len(self.keys)):
            self._source(j, self.first + (j + 0.5) * self.column, top)
        x = self.first + len(self.keys) * self.column + 26
        total = sum(e for e, ok in zip(self.exponentials, self.allowed, strict=True) if ok)
        for k, number in ((3, total), (4, sum(self.weights))):
            canvas.text(x, top + k * STAGE, f"sum {plain(number)}", size=12, fill=MUTED)

    def _source(self, j: int, x: float, top: float) -> None:
        """Draw one source's column; a blocked source ends at the mask."""
        canvas, width, permitted = self.canvas, self.column - 16, self.allowed[j]
        last = 4 if permitted else 2
        canvas.line([(x, top), (x, top + last * STAGE)], shade(0.35), thickness=2)
        self._box(x, top, self.keys[j], KEY, f"k_{j + 1}")
        for k, text in ((1, self.scores[j]), (2, "allowed" if permitted else "blocked")):
            canvas.rect(x - width / 2, top + k * STAGE - 15, width, 30, PAPER if permitted or k == 1 else BLOCKED, LINE)
            if not permitted and k == 2:
                canvas.rect(x - 30, top + k * STAGE - 9, 60, 18, PAPER, radius=9)
            canvas.text(x, top + k * STAGE, text, size=14 if k == 1 else 12)
        if permitted:
            canvas.rect(x - width / 2, top + 3 * STAGE - 15, width, 30, PAPER, LINE)
            canvas.number(x, top + 3 * STAGE, self.exponentials[j], size=14, decimal=False)
            share = float(self.weights[j])
            canvas.rect(x - width / 2, top + 4 * STAGE - 26, width, 52, shade(share), LINE)
            canvas.number(x, top + 4 * STAGE, self.weights[j], size=15, fill=ink_on(share))

    def _value_path(self, top: float, bottom: float) -> None:
        for j, value in enumerate(self.values):
            x = self.value_start + 14 + (j + 0.5) * self.column
            end = bottom + 20 if self.allowed[j] else top + 2 * STAGE
            self.canvas.line([(x, top), (x, end)], VALUE, thickness=2, dashed=not self.allowed[j])
            self._box(x, top, value, VALUE, f"v_{j + 1}")

    def _mixture(self, y: float) -> None:
        canvas = self.canvas
        canvas.text(EDGE + 14, y, "mixture", size=13, anchor="start")

    def _box(self, x: float, y: float, row: Sequence[Any], colour: str, name: str) -> None:
        width = self.column - 12
        self.canvas.rect(x - width / 2, y - 15, width, 30, shade(0.1, colour), colour, radius=5)
        self.canvas.text(x, y, vector(row), size=14)
        self.canvas.text(x, y - 26, name, size=13, fill=colour, bold=True)

    def as_text(self) -> str:
        """Write the numbers of every stage, a dot for what the mask removed."""

        def listed(items: Sequence[Any]) -> str:
            texts = [x if isinstance(x, str) else plain(x) for x in items]
            return ", ".join(text if ok else "·" for text, ok in zip(texts, self.allowed, strict=True))

        terms = [
            f"{plain(a)} {vector(v)}" for a, v, ok in zip(self.weights, self.values, self.allowed, strict=True) if ok
        ]
        return "\n".join(
            [
                f"query: {vector(self.query)}",
                f"scores: {listed(self.scores)}",
                f"exponentials: {listed(self.exponentials)}",
                f"weights: {listed(self.weights)}",
                f"mixture: {' + '.join(terms)} = {vector(self.output)}",
            ]
        )


def vector(row: Sequence[Any]) -> str:
    """Write a vector in brackets."""
    return "[" + ", ".join(plain(x) for x in row) + "]"


def _times_ln2(units: int) -> str:
    return {0: "0", 1: "ln 2", -1: "−ln 2"}.get(units, f"{plain(units)} ln 2")


def row_softmax(
    scores: ArrayLike,
    allowed: ArrayLike | None = None,
    *,
    exp_scores: Sequence[Any] | None = None,
    labels: Sequence[str] | None = None,
    title: str = "One row of scores becomes weights",
) -> None:
    """Draw one row's softmax as three stages side by side: score, exponential, share of the sum.

    With `exp_scores` (integers or fractions) the exponentials and shares are shown exactly.
    """
    row = [float(x) for x in np.asarray(scores, dtype=float).tolist()]
    permitted = [True] * len(row) if allowed is None else [bool(x) for x in np.asarray(allowed).tolist()]
    names = list(labels) if labels is not None else [f"source {j}" for j in positions(len(row))]
    highest = max(x for x, ok in zip(row, permitted, strict=True) if ok)
    shift = highest if highest > 20 else 0.0
    exponentials: list[Any] = (
        list(exp_scores) if exp_scores is not None else [math.exp(min(x - shift, 700)) for x in row]
    )
    total = sum(e for e, ok in zip(exponentials, permitted, strict=True) if ok)
    weights = [
        (Fraction(e) / total if exp_scores is not None else e / total) if ok else 0
        for e, ok in zip(exponentials, permitted, strict=True)
    ]
    canvas = Canvas()
    title_of(canvas, title)
    left = EDGE + 9 * max(len(name) for name in names) + 16
    stages = (
        ("score", row),
        ("exp(score − largest)" if shift else "exp(score)", exponentials),
        (f"share of the sum {plain(total)}", weights),
    )
    for k, (heading, numbers) in enumerate(stages):
        _stage(canvas, left + k * 216, heading, numbers, permitted, fade=0.45 + 0.275 * k)
    for j, name in enumerate(names):
        canvas.text(left - 8, 104 + 48 * j, name, size=13, fill=KEY, anchor="end")
    lines = [
        f"{name}: " + (f"{plain(s)} → {plain(e)} → {plain(w)}" if ok else "blocked")
        for name, s, e, w, ok in zip(names, row, exponentials, weights, permitted, strict=True)
    ]
    text = "\n".join([title, "score → exponential → weight", *lines])
    show(canvas, text.replace("\n", ". "), text)


def _stage(
    canvas: Canvas, x: float, heading: str, numbers: Sequence[Any], permitted: Sequence[bool], fade: float
) -> None:
    canvas.text(x, 68, heading, size=13, bold=True, anchor="start")
    seen = [float(n) for n, ok in zip(numbers, permitted, strict=True) if ok and math.isfinite(n)]
    to_x = Scale(min(0.0, *seen, 0.0), max(1e-9, *seen, 0.0), x, x + 130)
    for j, (number, ok) in enumerate(zip(numbers, permitted, strict=True)):
        y = 104 + 48 * j
        if not ok:
            canvas.rect(x, y - 15, 130, 30, BLOCKED, LINE)
            canvas.rect(x + 36, y - 9, 58, 18, PAPER, radius=9)
            canvas.text(x + 65, y, "blocked", size=12)
            continue
        end = to_x(number) if math.isfinite(number) else to_x(0)
        canvas.rect(min(to_x(0), end), y - 15, max(abs(end - to_x(0)), 2), 30, shade(fade), radius=2)
        canvas.number(max(to_x(0), end) + 26, y, number, size=13)


def arrow_mixture(
    weights: ArrayLike,
    values: ArrayLike,
    *,
    title: str = "The mixture lies among the values it is made of",
    labels: Sequence[str] | None = None,
) -> None:
    """Draw value vectors in the plane and the point their weights mix them to, inside the shaded hull."""
    row, vectors = cells_of(weights)[0], cells_of(values)
    if len(vectors[0]) != 2:
        raise ShapeError(f"values have d_v = {len(vectors[0])}: a picture in the plane needs d_v = 2.")
    names = list(labels) if labels is not None else [f"v_{j}" for j in positions(len(row))]
    mixture = [sum(w * v[c] for w, v in zip(row, vectors, strict=True)) for c in (0, 1)]
    canvas = Canvas()
    title_of(canvas, title)
    x, y = _plane(canvas, [*vectors, mixture, [0, 0]], EDGE + 40, 60, 340)
    used = [(x(v[0]), y(v[1])) for v, w in zip(vectors, row, strict=True) if w != 0]
    canvas.polygon(_hull(used), shade(0.2, VALUE), opacity=0.7)
    for w, v, name in zip(row, vectors, names, strict=True):
        tip = (x(v[0]), y(v[1]))
        if any(v):
            canvas.line([(x(0), y(0)), tip], VALUE, thickness=1.2 + 4 * float(w), arrow=True, dashed=w == 0)
        canvas.text(tip[0] + 10, tip[1] - 12, f"{name}, weight {plain(w)}", size=13, fill=VALUE, anchor="start")
    canvas.dot(x(mixture[0]), y(mixture[1]), 7, WEIGHT)
    canvas.text(
        x(mixture[0]) + 13,
        y(mixture[1]) + 13,
        f"z = {vector(mixture)}",
        size=14,
        fill=WEIGHT,
        bold=True,
        anchor="start",
    )
    terms = " + ".join(f"{plain(w)} {vector(v)}" for w, v in zip(row, vectors, strict=True))
    show(canvas, f"{title}. {terms} = {vector(mixture)}.", f"{title}\n{terms} = {vector(mixture)}")


def _plane(canvas: Canvas, points: Cells, left: float, top: float, size: float) -> tuple[Scale, Scale]:
    """Draw a square grid with equal units on both axes that covers the points."""
    spans = []
    for c in (0, 1):
        numbers = [float(p[c]) for p in points]
        spans.append((math.floor(min(numbers)) - 1, math.ceil(max(numbers)) + 1))
    unit = size / max(high - low for low, high in spans)
    x = Scale(*spans[0], left, left + unit * (spans[0][1] - spans[0][0]))
    y = Scale(*spans[1], top + unit * (spans[1][1] - spans[1][0]), top)
    for tick in x.ticks():
        canvas.line([(x(tick), y.start), (x(tick), y.end)], LINE if tick else MUTED, thickness=1)
        canvas.text(x(tick), y.start + 14, plain(tick), size=12, fill=MUTED)
    for tick in y.ticks():
        canvas.line([(x.start, y(tick)), (x.end, y(tick))], LINE if tick else MUTED, thickness=1)
        canvas.text(x.start - 8, y(tick), plain(tick), size=12, fill=MUTED, anchor="end")
    return x, y


def _hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Convex hull by Andrew's monotone chain."""

    def half(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for point in ordered:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        return chain[:-1]

    ordered = sorted(set(points))
    return ordered if len(ordered) < 3 else half(ordered) + half(ordered[::-1])


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def paths(
    first: ArrayLike,
    second: ArrayLike,
    destination: int,
    *,
    labels: Sequence[str] | None = None,
    title: str = "Two layers of reading",
) -> None:
    """Draw the routes by which inputs reach one destination (counted from 0) through two layers of weights."""
    one, two = np.asarray(first, dtype=float), np.asarray(second, dtype=float)[destination]
    count = one.shape[1]
    names = list(labels) if labels is not None else positions(count)
    canvas = Canvas()
    title_of(canvas, title)
    xs = [EDGE + 70.0, EDGE + 290.0, EDGE + 510.0]
    place = [104.0 + 46 * j for j in range(count)]
    for heading, x in zip(("inputs", "after layer 1", "after layer 2"), xs, strict=True):
        canvas.text(x, 66, heading, size=13, bold=True)
    for k in range(count):
        for j in range(count):
            share = one[k, j] * two[k]
            if share > 1e-9:
                canvas.line([(xs[0], place[j]), (xs[1], place[k])], WEIGHT, thickness=0.6 + 7 * share, opacity=0.75)
        if two[k] > 1e-9:
            canvas.line(
                [(xs[1], place[k]), (xs[2], place[destination])], WEIGHT, thickness=0.6 + 7 * two[k], opacity=0.75
            )
    for x, shown in zip(xs, (range(count), range(count), [destination]), strict=True):
        for j in shown:
            canvas.dot(x, place[j], 15, PAPER, INK)
            canvas.text(x, place[j], names[j], size=13)
    reached = two @ one
    canvas.text(xs[2] + 120, 66, "share by all routes", size=13, bold=True)
    for j in range(count):
        canvas.text(xs[2] + 120, place[j], f"from {names[j]}: {plain(reached[j])}", size=13)
    text = "\n".join(f"from {names[j]}: {plain(reached[j])}" for j in range(count))
    show(
        canvas,
        f"{title}. Share of each input in destination {names[destination]} by all routes: {text}".replace("\n", "; "),
        f"{title}\n{text}",
    )


def shapes(n: int, d_model: int, d_k: int, d_v: int, m: int | None = None) -> None:
    """Draw every array of one head as a box to scale, with its shape; `m` sources if they are not the destinations."""
    m = n if m is None else m
    canvas = Canvas()
    title_of(
        canvas,
        f"Shapes of one head: n = {n}, {'' if m == n else f'm = {m}, '}d_model = {d_model}, d_k = {d_k}, d_v = {d_v}",
    )
    unit = min(14.0, 330.0 / max(d_model + d_k, n + m, 1), 150.0 / max(n, m, d_model))
    own = "X" if m == n else "X (sources)"
    rows = (
        (("X", n, d_model), ("W_Q", d_model, d_k), ("Q", n, d_k)),
        ((own, m, d_model), ("W_K", d_model, d_k), ("K", m, d_k)),
        ((own, m, d_model), ("W_V", d_model, d_v), ("V", m, d_v)),
        (("Q", n, d_k), ("Kᵀ", d_k, m), ("S", n, m)),
        (("A", n, m), ("V", m, d_v), ("Z", n, d_v)),
    )
    y = 78.0
    for row in rows:
        tallest = unit * max(tall for _, tall, _ in row)
        x = float(EDGE)
        for (name, tall, wide), sign in zip(row, ("·", "=", ""), strict=True):
            colour = colour_of(name)
            space = max(unit * wide, 86.0)
            canvas.rect(
                x + (space - unit * wide) / 2,
                y + (tallest - unit * tall) / 2,
                unit * wide,
                unit * tall,
                shade(0.18, colour),
                colour,
            )
            canvas.text(
                x + space / 2,
                y + (tallest - unit * tall) / 2 - 12,
                f"{name}  {tall}×{wide}",
                size=13,
                fill=colour,
                bold=True,
            )
            canvas.text(x + space + 16, y + tallest / 2, sign, size=18)
            x += space + 34
        y += tallest + 42
    text = "\n".join(
        " ".join(
            f"{name} {tall}×{wide} {sign}".strip() for (name, tall, wide), sign in zip(row, ("·", "=", ""), strict=True)
        )
        for row in rows
    )
    show(canvas, f"Shapes of one head. {text}".replace("\n", "; "), text)
