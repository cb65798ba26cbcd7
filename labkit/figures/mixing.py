"""A row through softmax, and value vectors into a mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.errors import ShapeError
from labkit.figures.canvas import BLOCKED, KEY, LINE, MUTED, PAPER, VALUE, WEIGHT, Canvas, plain, shade, text_width
from labkit.figures.charts import Scale
from labkit.figures.parts import EDGE, Cells, cells_of, positions, show, title_of, vector

Label = tuple[float, float, str]  # where a line of text starts, and the text


def row_softmax(
    scores: ArrayLike,
    allowed: ArrayLike | None = None,
    *,
    exp_scores: Sequence[Any] | None = None,
    labels: Sequence[str] | None = None,
    title: str = "One row of scores becomes weights",
) -> None:
    """Draw one row's softmax as three stages side by side: score, exponential, share of the sum.

    With `exp_scores` (integers or fractions) the exponentials and shares are shown exactly. Scores above 20 are
    shown less the largest of them.
    """
    row = np.asarray(scores, dtype=float).tolist()
    permitted = [True] * len(row) if allowed is None else np.asarray(allowed, dtype=bool).tolist()
    names = list(labels) if labels is not None else [f"source {j}" for j in positions(len(row))]
    highest = max(score for score, ok in zip(row, permitted, strict=True) if ok)
    shift = highest if highest > 20 else 0.0
    exponentials = [math.exp(min(s - shift, 700)) for s in row] if exp_scores is None else list(exp_scores)
    total = sum(e for e, ok in zip(exponentials, permitted, strict=True) if ok)
    exact = total if isinstance(total, float) else Fraction(total)
    weights = [e / exact if ok else 0 for e, ok in zip(exponentials, permitted, strict=True)]
    canvas = Canvas()
    title_of(canvas, title)
    left = EDGE + 9 * max(len(name) for name in names) + 16
    for j, name in enumerate(names):
        canvas.text(left - 8, 104 + 48 * j, name, size=13, fill=KEY, anchor="end")
    _stage(canvas, left, "score", row, permitted, 0.45)
    _stage(canvas, left + 216, "exp(score − largest)" if shift else "exp(score)", exponentials, permitted, 0.7)
    _stage(canvas, left + 432, f"share of the sum {plain(total)}", weights, permitted, 1.0, full=1.0)
    lines = [
        f"{name}: " + (f"{plain(s)} → {plain(e)} → {plain(w)}" if ok else "blocked")
        for name, s, e, w, ok in zip(names, row, exponentials, weights, permitted, strict=True)
    ]
    text = "\n".join([title, "score → exponential → weight", *lines])
    show(canvas, text.replace("\n", ". "), text)


def _stage(
    canvas: Canvas,
    x: float,
    heading: str,
    numbers: Sequence[Any],
    permitted: Sequence[bool],
    depth: float,
    full: float = 1e-9,
) -> None:
    """Draw one stage as bars; `full` is the least number that a whole bar stands for."""
    canvas.text(x, 68, heading, size=13, bold=True, anchor="start")
    seen = [float(n) for n, ok in zip(numbers, permitted, strict=True) if ok and math.isfinite(n)]
    to_x = Scale(min(0.0, *seen, 0.0), max(full, *seen, 0.0), x, x + 130)
    for j, (number, ok) in enumerate(zip(numbers, permitted, strict=True)):
        y = 104 + 48 * j
        if not ok:
            canvas.rect(x, y - 15, 130, 30, BLOCKED, LINE)
            canvas.rect(x + 36, y - 9, 58, 18, PAPER, radius=9)
            canvas.text(x + 65, y, "blocked", size=12)
            continue
        end = to_x(number) if math.isfinite(number) else to_x(0)
        canvas.rect(min(to_x(0), end), y - 15, max(abs(end - to_x(0)), 2), 30, shade(depth), radius=2)
        canvas.number(max(to_x(0), end) + 26, y, number, size=13)


def arrow_mixture(
    weights: ArrayLike,
    values: ArrayLike,
    *,
    title: str = "The mixture lies among the values it is made of",
    labels: Sequence[str] | None = None,
) -> None:
    """Draw value vectors in the plane and the point their weights mix them to, inside the shaded hull."""
    row, vectors = cells_of(weights, fractions=True)[0], cells_of(values, fractions=True)
    if len(vectors[0]) != 2:
        raise ShapeError(f"values have d_v = {len(vectors[0])}: a picture in the plane needs d_v = 2.")
    names = list(labels) if labels is not None else [f"v_{j}" for j in positions(len(row))]
    mixture = [sum(w * v[c] for w, v in zip(row, vectors, strict=True)) for c in (0, 1)]
    canvas = Canvas()
    title_of(canvas, title)
    x, y = _plane(canvas, [*vectors, mixture, [0, 0]], EDGE + 40, 60, 340)
    used = [(x(v[0]), y(v[1])) for v, w in zip(vectors, row, strict=True) if w != 0]
    hull = _hull(used)
    canvas.polygon(hull, shade(0.2, VALUE), opacity=0.7)
    canvas.line([*hull, hull[0]], shade(0.35, VALUE), thickness=5)  # two values have a line between them, no area
    for w, v in zip(row, vectors, strict=True):
        if any(v):
            tip = (x(v[0]), y(v[1]))
            canvas.line([(x(0), y(0)), tip], VALUE, thickness=1.2 + 4 * float(w), arrow=True, dashed=w == 0)
    canvas.dot(x(mixture[0]), y(mixture[1]), 7, WEIGHT)
    z = (x(mixture[0]) + 13, y(mixture[1]) + 13, f"z = {vector(mixture)}")
    canvas.text(*z, size=14, fill=WEIGHT, bold=True, halo=True, anchor="start")
    written = [z]
    for w, v, name in zip(row, vectors, names, strict=True):
        label = _beside(written, x(v[0]) + 10, y(v[1]) - 12, f"{name}, weight {plain(w)}")
        canvas.text(*label, size=13, fill=VALUE, halo=True, anchor="start")
        written.append(label)
    terms = " + ".join(f"{plain(w)} {vector(v)}" for w, v in zip(row, vectors, strict=True))
    show(canvas, f"{title}. {terms} = {vector(mixture)}.", f"{title}\n{terms} = {vector(mixture)}")


def _beside(written: list[Label], x: float, y: float, text: str) -> Label:
    """Give a label the lowest place at or above (x, y) where it covers none of those written."""

    def covers(other: Label) -> bool:
        apart = text_width(text if x < other[0] else other[2], 15)
        return abs(other[1] - y) < 16 and abs(other[0] - x) < apart

    while in_the_way := [other for other in written if covers(other)]:
        y = min(other[1] for other in in_the_way) - 16
    return x, y, text


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
