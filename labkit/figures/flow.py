"""The data-flow figure: one destination through score path and value path to its mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from labkit.figures.canvas import (
    BLOCKED,
    INK,
    KEY,
    LINE,
    MUTED,
    PAPER,
    QUERY,
    VALUE,
    WEIGHT,
    Canvas,
    ink_on,
    plain,
    shade,
    text_width,
)
from labkit.figures.parts import EDGE, cells_of, show, title_of, vector

STAGE = 64  # from one stage of the score path to the next


def data_flow(trace: Any, row: int = 2) -> None:
    """Follow one destination (counted from 0) through the score path and the value path to its mixture.

    `trace` is an AttentionTrace without batch axes, or an exact Trace or Example. Simple fractions and whole
    multiples of ln 2 are shown as such.
    """
    flow = _DataFlow(trace, row)
    show(flow.draw(), f"Data flow of destination {row + 1}. {flow.as_text()}".replace("\n", ". "), flow.as_text())


class _DataFlow:
    """One destination's picture: the score path on the left, the value path on the right, the mixture below both."""

    def __init__(self, trace: Any, row: int) -> None:
        self.row, self.canvas = row, Canvas()
        self.inputs, self.keys, self.values = (
            cells_of(x, fractions=True) for x in (trace.sources, trace.keys, trace.values)
        )
        self.query = cells_of(trace.queries)[row]
        self.weights, self.output = (cells_of(x, fractions=True)[row] for x in (trace.weights, trace.output))
        self.allowed = [bool(ok) for ok in trace.allowed[row]]
        self.self_attention = trace.inputs is trace.sources
        units = [_in_units_of_ln2(score) for score in cells_of(trace.scores)[row]]
        self.scores = [name for name, _ in units]
        self.exponentials = [power for _, power in units]
        self.total = sum(e for e, ok in zip(self.exponentials, self.allowed, strict=True) if ok)
        self._places()

    def _places(self) -> None:
        """Decide where columns and stages stand."""
        widest = max(len(vector(v)) for v in [*self.inputs, *self.keys, *self.values, self.query])
        self.column = max(84.0, 8.0 * widest + 20)
        count = len(self.keys)
        self.first = EDGE + max(178.0, self.column + 60)  # left end of the first source's column in the score path
        self.score_end = self.first + count * self.column + max(66.0, 20 + text_width(f"sum {plain(self.total)}", 12))
        self.value_start = self.score_end + 36
        self.end = self.value_start + count * self.column + 28
        self.top = 206.0  # keys, query and values
        self.bottom = self.top + 4 * STAGE + 46  # where both paths end

    def draw(self) -> Canvas:
        """Draw from top to bottom."""
        title_of(self.canvas, f"Destination {self.row + 1}: where it reads, and what it gets")
        for left, right, colour, name, note in (
            (EDGE, self.score_end, WEIGHT, "Score path", "how much"),
            (self.value_start, self.end, VALUE, "Value path", "of what"),
        ):
            top = self.top - 74
            self.canvas.rect(left, top, right - left, self.bottom - top, shade(0.06, colour), radius=10)
            self.canvas.text(left + 12, top + 17, name, size=14, bold=True, fill=colour, anchor="start")
            self.canvas.text(left + 12, top + 34, note, size=12, fill=MUTED, anchor="start")
        self._inputs(82)
        self._score_path()
        self._value_path()
        self._mixture(self.bottom + 74)
        return self.canvas

    def _inputs(self, y: float) -> None:
        """Draw the rows both paths start from, and the three projections as arrows in their letters' colours."""
        canvas, count = self.canvas, len(self.inputs)
        start = (EDGE + self.end - count * self.column) / 2
        for j, row in enumerate(self.inputs):
            own = j == self.row and self.self_attention
            self._box(start + (j + 0.5) * self.column, y, row, QUERY if own else INK, f"x_{j + 1}")
        canvas.text(start - 14, y, "inputs", size=13, fill=MUTED, anchor="end")
        left, right = start + 8, start + count * self.column - 8
        canvas.line([(left, y + 22), (right, y + 22)], MUTED, thickness=1.2)
        key_x, value_x = (x + count * self.column / 2 for x in (self.first, self.value_start + 14))
        for name, x, begin, colour in (
            ("W_K", key_x, left + 0.35 * (right - left), KEY),
            ("W_V", value_x, right - 24, VALUE),
        ):
            canvas.line(
                [(begin, y + 22), (begin, y + 36), (x, y + 36), (x, self.top - 36)], colour, arrow=True, soft_corners=8
            )
            self._tag(x, self.top - 82, name, colour)
        own_x = start + (self.row + 0.5) * self.column if self.self_attention else left
        self._query(own_x, y)

    def _query(self, own_x: float, y: float) -> None:
        """Lead the destination's own row to its query."""
        x = self.first - self.column / 2 - 14
        self.canvas.line(
            [(own_x, y + 15), (own_x, y + 29), (x, y + 29), (x, self.top - 36)], QUERY, arrow=True, soft_corners=8
        )
        self._tag(x, self.top - 82, "W_Q", QUERY)
        self._box(x, self.top, self.query, QUERY, f"q_{self.row + 1}")

    def _tag(self, x: float, y: float, name: str, colour: str) -> None:
        self.canvas.rect(x - 19, y - 11, 38, 22, PAPER, colour, radius=11)
        self.canvas.text(x, y, name, size=13, fill=colour, bold=True)

    def _score_path(self) -> None:
        canvas, top = self.canvas, self.top
        names = (f"score  q_{self.row + 1} · k_j / √d_k", "mask", "exponential", "weight")
        for k, name in enumerate(names, start=1):
            canvas.text(EDGE + 14, top + k * STAGE, name, size=13, anchor="start")
        for j in range(len(self.keys)):
            self._source(j, self.first + (j + 0.5) * self.column, top)
        x = self.first + len(self.keys) * self.column + 4
        canvas.text(x, top + 3 * STAGE, f"sum {plain(self.total)}", size=12, fill=MUTED, anchor="start")
        canvas.text(x, top + 4 * STAGE - 9, f"÷ {plain(self.total)}", size=12, fill=MUTED, anchor="start")
        canvas.text(x, top + 4 * STAGE + 9, f"sum {plain(sum(self.weights))}", size=12, fill=MUTED, anchor="start")
        middle = self.first + len(self.keys) * self.column / 2
        canvas.line([(middle, self.bottom - 18), (middle, self.bottom + 34)], WEIGHT, thickness=4, arrow=True)
        canvas.text(middle + 14, self.bottom + 12, "weights", size=12, fill=WEIGHT, anchor="start")

    def _source(self, j: int, x: float, top: float) -> None:
        """Draw one source's column; a blocked source ends at the mask."""
        canvas, width, permitted = self.canvas, self.column - 16, self.allowed[j]
        canvas.line([(x, top), (x, top + (4 if permitted else 2) * STAGE)], shade(0.35), thickness=2)
        self._box(x, top, self.keys[j], KEY, f"k_{j + 1}")
        canvas.rect(x - width / 2, top + STAGE - 15, width, 30, PAPER, LINE)
        canvas.text(x, top + STAGE, self.scores[j], size=14)
        canvas.rect(x - width / 2, top + 2 * STAGE - 15, width, 30, PAPER if permitted else BLOCKED, LINE)
        if not permitted:
            canvas.rect(x - 28, top + 2 * STAGE - 9, 56, 18, PAPER, radius=9)
        canvas.text(x, top + 2 * STAGE, "allowed" if permitted else "blocked", size=12)
        if permitted:
            canvas.rect(x - width / 2, top + 3 * STAGE - 15, width, 30, PAPER, LINE)
            canvas.number(x, top + 3 * STAGE, self.exponentials[j], size=14, decimal=False)
            share = float(self.weights[j])
            canvas.rect(x - width / 2, top + 4 * STAGE - 27, width, 54, shade(share), LINE)
            canvas.number(x, top + 4 * STAGE, self.weights[j], size=15, fill=ink_on(share))

    def _value_path(self) -> None:
        canvas, count = self.canvas, len(self.values)
        xs = [self.value_start + 14 + (j + 0.5) * self.column for j in range(count)]
        middle, join = (xs[0] + xs[-1]) / 2, self.bottom - 26
        for j, x in enumerate(xs):
            canvas.line([(x, self.top), (x, join)], shade(0.5, VALUE), thickness=2)
            self._box(x, self.top, self.values[j], VALUE, f"v_{j + 1}")
        canvas.line([(xs[0], join), (xs[-1], join)], shade(0.5, VALUE), thickness=2)
        canvas.line([(middle, join), (middle, self.bottom + 34)], VALUE, thickness=4, arrow=True)
        canvas.text(middle + 14, self.bottom + 12, "values", size=12, fill=VALUE, anchor="start")
        y = self.top + 2 * STAGE
        canvas.rect(middle - 92, y - 13, 184, 26, PAPER, shade(0.4, VALUE), radius=13)
        canvas.text(middle, y, "never pass score or mask", size=12, fill=VALUE)

    def _mixture(self, y: float) -> None:
        """Write the weighted sum out, term by term, each weight in front of its value."""
        canvas, box = self.canvas, self.column - 12
        canvas.rect(EDGE, y - 38, self.end - EDGE, 92, "none", LINE, radius=10, thickness=1.5)
        canvas.text(EDGE + 14, y + 8, "mixture", size=14, bold=True, anchor="start")
        x = EDGE + 100.0
        for j, (weight, value) in enumerate(zip(self.weights, self.values, strict=True)):
            if j:
                canvas.text(x + 14, y + 8, "+", size=17)
                x += 28
            slot = max(28.0, 9.0 * len(plain(weight))) if not isinstance(weight, Fraction) else 28.0
            canvas.number(x + slot / 2, y + 8, weight, size=15, fill=WEIGHT, decimal=False)
            x += slot
            canvas.text(x + 6, y + 8, "·", size=17)
            canvas.rect(x + 16, y - 7, box, 30, shade(0.1, VALUE) if self.allowed[j] else BLOCKED, VALUE, radius=5)
            canvas.text(x + 16 + box / 2, y + 8, vector(value), size=14, fill=INK if self.allowed[j] else MUTED)
            canvas.text(x + 16 + box / 2, y - 18, f"v_{j + 1}", size=12, fill=VALUE)
            x += 16 + box
        canvas.text(x + 15, y + 8, "=", size=17)
        wide = max(box, 8.4 * len(vector(self.output)) + 24)
        canvas.rect(x + 30, y - 9, wide, 34, VALUE, radius=6)
        canvas.text(x + 30 + wide / 2, y + 8, vector(self.output), size=15, fill=PAPER, bold=True)
        canvas.text(x + 30 + wide / 2, y - 20, f"z_{self.row + 1}", size=13, fill=VALUE, bold=True)
        decimals = [float(number) for number in self.output]
        if vector(decimals) != vector(self.output):
            canvas.text(x + 30 + wide / 2, y + 38, vector(decimals), size=12, fill=MUTED)

    def _box(self, x: float, y: float, row: Sequence[Any], colour: str, name: str) -> None:
        width = self.column - 12
        self.canvas.rect(x - width / 2, y - 15, width, 30, PAPER)
        self.canvas.rect(x - width / 2, y - 15, width, 30, shade(0.1, colour), colour, radius=5)
        self.canvas.text(x, y, vector(row), size=14)
        self.canvas.text(x - width / 2 + 2, y - 25, name, size=13, fill=colour, bold=True, anchor="start")

    def as_text(self) -> str:
        """Write the numbers of every stage, a dot for what the mask removed."""

        def listed(items: Sequence[Any]) -> str:
            texts = [x if isinstance(x, str) else plain(x) for x in items]
            return ", ".join(text if ok else "·" for text, ok in zip(texts, self.allowed, strict=True))

        terms = [f"{plain(a)} {vector(v)}" for a, v in zip(self.weights, self.values, strict=True) if a]
        return "\n".join(
            [
                f"query: {vector(self.query)}",
                f"scores: {', '.join(self.scores)}",
                f"exponentials: {listed(self.exponentials)}",
                f"weights: {listed(self.weights)}",
                f"mixture: {' + '.join(terms)} = {vector(self.output)}",
            ]
        )


def _in_units_of_ln2(score: float) -> tuple[str, Fraction | float]:
    """Name a score and give its exponential: exact where the score is a whole multiple of ln 2."""
    units = round(score / math.log(2))
    if abs(score - units * math.log(2)) < 1e-9 and abs(units) < 64:
        return {0: "0", 1: "ln 2", -1: "−ln 2"}.get(units, f"{plain(units)} ln 2"), Fraction(2) ** units
    return plain(score), math.exp(min(score, 700))
