"""Charts with numbers written at the marks: bars, comparisons, lines, signed effects, sums that build up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labkit.figures.canvas import (
    INK,
    KEY,
    LINE,
    MUTED,
    NEGATIVE,
    QUERY,
    VALUE,
    WEIGHT,
    Canvas,
    plain,
    shade,
    text_width,
)
from labkit.figures.parts import EDGE, show, title_of

SERIES = (WEIGHT, NEGATIVE, QUERY, VALUE, KEY, INK)
DASHES = (False, True)


@dataclass(frozen=True)
class Scale:
    """A straight-line map from numbers to places on the paper."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, number: float) -> float:
        """Give the place of a number."""
        return self.start + (float(number) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Give about five round numbers inside the range."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(k * step, 10) for k in range(first, last + 1)]


def spanning(numbers: ArrayLike, start: float, end: float, *, zero: bool = True) -> Scale:
    """Make a scale that covers the numbers, with zero if wanted and a little air at the ends."""
    seen = np.asarray(numbers, dtype=float).ravel()
    low, high = float(seen.min()), float(seen.max())
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    air = 0.08 * (high - low) or 1.0
    return Scale(low - air * (low < 0 or not zero), high + air, start, end)


def compare(
    before: ArrayLike,
    after: ArrayLike,
    labels: Sequence[str],
    *,
    names: tuple[str, str] = ("before", "after"),
    title: str = "",
    y_label: str = "",
) -> None:
    """Draw two bars for each label, before pale and after full."""
    rows = [np.asarray(numbers, dtype=float).tolist() for numbers in (before, after)]
    canvas, top = Canvas(), 62 if title else 30
    title_of(canvas, title)
    bar = max(30.0, min(46.0, 330.0 / len(labels)))
    group = max(2 * bar + 8, text_width(max(labels, key=len), 13)) + 22
    y, left = spanning(rows, top + 190, top), EDGE + 62
    right = left + group * len(labels) + 10
    _value_axis(canvas, y, left, right, y_label)
    for k, (numbers, colour) in enumerate(zip(rows, (shade(0.4), WEIGHT), strict=True)):
        for i, number in enumerate(numbers):
            x = left + 5 + (i + 0.5) * group + (k - 1) * (bar + 8) + 4
            canvas.rect(x, min(y(0), y(number)), bar, abs(y(number) - y(0)), colour, radius=2)
            canvas.text(x + bar / 2, y(number) + (-11 if number >= 0 else 11), plain(number), size=12)
        _legend(canvas, left + k * max(130, 44 + 7 * len(names[0])), y.start + 46, names[k], colour)
    canvas.line([(left, y(0)), (right, y(0))], INK, thickness=1)
    for i, label in enumerate(labels):
        canvas.text(left + 5 + (i + 0.5) * group, y.start + 18, label, size=13)
    lines = [f"{label}: {plain(b, 3)} → {plain(a, 3)}" for label, b, a in zip(labels, *rows, strict=True)]
    text = "\n".join([f"{title} ({names[0]} → {names[1]})".strip(), *lines])
    show(canvas, f"Bar chart. {text}".replace("\n", "; "), text)


def line(x: ArrayLike, ys: Mapping[str, ArrayLike], *, title: str = "", x_label: str = "", y_label: str = "") -> None:
    """Draw curves over a common x; each has its name at its end."""
    across = np.asarray(x, dtype=float)
    curves = {name: np.asarray(y, dtype=float) for name, y in ys.items()}
    canvas, top = Canvas(), 56 if title else 26
    title_of(canvas, title)
    left = EDGE + 62
    to_x = Scale(float(across.min()), float(across.max()), left, left + 460)
    to_y = spanning(list(curves.values()), top + 250, top, zero=False)
    _value_axis(canvas, to_y, left, to_x.end, y_label)
    for tick in to_x.ticks():
        canvas.line([(to_x(tick), to_y.start), (to_x(tick), to_y.start + 4)], MUTED, thickness=1)
        canvas.text(to_x(tick), to_y.start + 16, plain(tick), size=12, fill=MUTED)
    canvas.text((left + to_x.end) / 2, to_y.start + 38, x_label, size=13)
    for k, (name, numbers) in enumerate(curves.items()):
        points = [(to_x(a), to_y(b)) for a, b in zip(across, numbers, strict=True) if np.isfinite(b)]
        canvas.line(points, SERIES[k % len(SERIES)], thickness=2.2, dashed=DASHES[k % 2])
        canvas.text(points[-1][0] + 8, points[-1][1], name, size=13, fill=SERIES[k % len(SERIES)], anchor="start")
    ends = "; ".join(
        f"{name} from {plain(c[0], 3)} to {plain(c[-1], 3)}, least {plain(c.min(), 3)}, most {plain(c.max(), 3)}"
        for name, c in curves.items()
    )
    show(
        canvas,
        f"Line chart. {title}. Over {x_label or 'x'} from {plain(to_x.low)} to {plain(to_x.high)}: {ends}.",
        f"{title}\n{ends}".strip(),
    )


def waterfall(
    labels: Sequence[str], parts: ArrayLike, *, start: float = 0.0, title: str = "", y_label: str = "", table: str = ""
) -> None:
    """Draw contributions one after another, each beginning where the last ended, and their sum."""
    numbers = [float(x) for x in np.asarray(parts).tolist()]
    levels = np.concatenate([[start], start + np.cumsum(numbers)])
    canvas, top = Canvas(), 62 if title else 30
    title_of(canvas, title)
    left, step = EDGE + 62, max(64.0, 9.0 * max(len(label) for label in labels) + 12)
    y = spanning(levels, top + 220, top)
    right = left + step * (len(labels) + 1) + 16
    _value_axis(canvas, y, left, right, y_label)
    for i, (label, number) in enumerate(zip(labels, numbers, strict=True)):
        x, low, high = left + 12 + i * step, y(levels[i]), y(levels[i + 1])
        canvas.rect(
            x, min(low, high), step - 16, max(abs(high - low), 1), WEIGHT if number >= 0 else NEGATIVE, radius=2
        )
        canvas.line([(x, high), (x + step + 4, high)], MUTED, thickness=1, dashed=True)
        sign = "+" if number > 0 and plain(number) != "0" else ""
        canvas.text(x + step / 2 - 8, min(low, high) - 10, sign + plain(number), size=12)
        canvas.text(x + step / 2 - 8, y.start + 18, label, size=13)
    x = left + 12 + len(labels) * step
    canvas.rect(x, min(y(0), y(levels[-1])), step - 16, abs(y(levels[-1]) - y(0)), INK, radius=2)
    canvas.text(x + step / 2 - 8, min(y(0), y(levels[-1])) - 10, plain(levels[-1]), size=12, bold=True)
    canvas.text(x + step / 2 - 8, y.start + 18, "sum", size=13, bold=True)
    canvas.line([(left, y(0)), (right, y(0))], INK, thickness=1)
    pairs = [f"{label}: {plain(x, 3)}" for label, x in zip(labels, numbers, strict=True)]
    text = "\n".join([f"start: {plain(start, 3)}", *pairs, f"sum: {plain(levels[-1], 3)}"])
    show(canvas, f"Waterfall chart. {title}. {text}".replace("\n", "; "), f"{title}\n{text}".strip(), table)


def _value_axis(canvas: Canvas, y: Scale, left: float, right: float, label: str) -> None:
    """Draw light level lines with their numbers and the axis' name."""
    for tick in y.ticks():
        canvas.line([(left, y(tick)), (right, y(tick))], LINE, thickness=1)
        canvas.text(left - 8, y(tick), plain(tick), size=12, fill=MUTED, anchor="end")
    if label:
        canvas.text(EDGE + 6, (y.start + y.end) / 2, label, size=13, turned=True)


def _legend(canvas: Canvas, x: float, y: float, name: str, colour: str) -> None:
    canvas.rect(x, y - 7, 14, 14, colour)
    canvas.text(x + 21, y, name, size=12, anchor="start")
