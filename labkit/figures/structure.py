"""The shapes of one head, to scale."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.figures.canvas import MUTED, Canvas, shade
from labkit.figures.parts import EDGE, colour_of, show, title_of


def shapes(n: int, d_model: int, d_k: int, d_v: int, m: int | None = None) -> None:
    """Draw every array of one head as a box to scale, with its shape; `m` sources if they are not the destinations."""
    m = n if m is None else m
    canvas = Canvas()
    title_of(
        canvas,
        f"Shapes of one head: n = {n}, {'' if m == n else f'm = {m}, '}d_model = {d_model}, d_k = {d_k}, d_v = {d_v}",
    )
    unit = min(10.0, 120.0 / max(n, m, d_model))
    own = "X" if m == n else "X (sources)"
    rows = (
        (("X", n, d_model), ("W_Q", d_model, d_k), ("Q", n, d_k)),
        ((own, m, d_model), ("W_K", d_model, d_k), ("K", m, d_k)),
        ((own, m, d_model), ("W_V", d_model, d_v), ("V", m, d_v)),
        (("Q", n, d_k), ("Kᵀ", d_k, m), ("S", n, m)),
        (("A", n, m), ("V", m, d_v), ("Z", n, d_v)),
    )
    y, heights = 78.0, []
    for row in rows[:3]:
        heights.append(y)
        y += _product(canvas, EDGE, y, unit, row) + 42
    aside = EDGE + 2 * max(unit * d_model, 86.0) + 150
    for row, y in zip(rows[3:], heights, strict=False):
        _product(canvas, aside, y, unit, row)
    canvas.text(aside, heights[2] + 10, "Softmax turns each row of S", size=13, fill=MUTED, anchor="start")
    canvas.text(aside, heights[2] + 30, "into a row of A: same shape.", size=13, fill=MUTED, anchor="start")
    text = "\n".join(
        " ".join(
            f"{name} {tall}×{wide} {sign}".strip() for (name, tall, wide), sign in zip(row, ("·", "=", ""), strict=True)
        )
        for row in rows
    )
    show(canvas, f"Shapes of one head. {text}".replace("\n", "; "), text)


def _product(canvas: Canvas, x: float, y: float, unit: float, row: Sequence[tuple[str, int, int]]) -> float:
    """Draw `left · right = result` as boxes to scale and give the height taken."""
    tallest = unit * max(tall for _, tall, _ in row)
    for (name, tall, wide), sign in zip(row, ("·", "=", ""), strict=True):
        colour, space, upper = colour_of(name), max(unit * wide, 86.0), y + (tallest - unit * tall) / 2
        canvas.rect(x + (space - unit * wide) / 2, upper, unit * wide, unit * tall, shade(0.18, colour), colour)
        canvas.text(x + space / 2, upper - 12, f"{name}  {tall}×{wide}", size=13, fill=colour, bold=True)
        canvas.text(x + space + 16, y + tallest / 2, sign, size=18)
        x += space + 34
    return tallest
