"""Still figures for reading maps and models: maps to judge, all heads, effects, parts of a logit, routes of inputs.

Every picture has its numbers as a table under it. Heads are named `L0H2`: layer index 0, head index 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from labkit import figures
from labkit.attention import Array
from labkit.errors import LabkitError
from labkit.figures.canvas import INK, LINE, MUTED, NEGATIVE, PAPER, WEIGHT, Canvas, ink_on, plain, shade
from labkit.figures.charts import spanning
from labkit.figures.parts import EDGE, Cells, axes, cells_of, in_line, positions, title_of
from labkit.maps import entropy
from labkit.masks import causal
from labkit.transformer import (
    LETTERS,
    Effect,
    ModelTrace,
    attribution,
    brightness,
    previous_token_score,
    two_layer_paths,
)

STEP = 34.0  # from one position of a sequence to the next


def letters(trace: ModelTrace, sequence: int = 0) -> list[str]:
    """Name the positions of one sequence by their letters."""
    return [LETTERS[token] for token in np.atleast_2d(trace.tokens)[sequence]]


def one_map(trace: ModelTrace, layer: int, head: int, sequence: int = 0) -> None:
    """Draw one head's map on one sequence, the letters at both axes."""
    weights = _of_sequence(trace, sequence)[layer, head]
    names = letters(trace, sequence)
    figures.heat_map(weights, causal(len(names)), title=f"L{layer}H{head}", row_labels=names, column_labels=names)


def all_maps(trace: ModelTrace, sequence: int = 0) -> None:
    """Draw every head's map on one sequence, on one scale; a row of the grid is a layer."""
    weights = _of_sequence(trace, sequence)
    depth, width, n, _ = weights.shape
    bright, previous, spread = brightness(weights), previous_token_score(weights), entropy(weights).mean(axis=-1)
    rows = [
        [f"L{layer}H{head}", *(f"{score[layer, head]:.2f}" for score in (bright, previous, spread))]
        for layer, head in np.ndindex(depth, width)
    ]
    figures.head_grid(
        list(weights.reshape(-1, n, n)),
        titles=[f"L{layer}H{head}" for layer in range(depth) for head in range(width)],
        columns=width,
        title=f"Every head on {''.join(letters(trace, sequence))}",
        allowed=causal(n),
        table=_table(
            ["", "mean of the largest weights", "mean on the previous position", "mean entropy in bits"], rows
        ),
    )


def gallery(maps: Sequence[ArrayLike], only: int | None = None) -> None:
    """Draw small square maps to be judged, with exact fractions and the outline of the causal mask, without sums.

    Maps count from 1; `only` draws one of them.
    """
    canvas, cell = Canvas(), 46.0
    numbered = [(k, cells_of(weights, fractions=True)) for k, weights in enumerate(maps, start=1) if only in (None, k)]
    side = cell * len(numbered[0][1])
    for place, (k, cells) in enumerate(numbered):
        x, y = EDGE + 34 + place % 4 * (side + 50), 84 + place // 4 * (side + 96)
        canvas.text(x, y - 60, f"map {k}", size=15, bold=True, anchor="start")
        axes(canvas, x, y, cell, *[positions(len(cells))] * 2)
        _judged_cells(canvas, x, y, cell, cells)
    words = [f"map {k}: {in_line(cells)}" for k, cells in numbered]
    description = "Maps to judge, rows destinations, columns sources, with the causal outline."
    figures.show(canvas, f"{description} {'; '.join(words)}", "\n".join(words))


def _judged_cells(canvas: Canvas, x: float, y: float, cell: float, numbers: Cells) -> None:
    n = len(numbers)
    for i, j in np.ndindex(n, n):
        left, top, share = x + j * cell, y + i * cell, float(numbers[i][j])
        canvas.rect(left + 1, top + 1, cell - 2, cell - 2, shade(0.85 * share), LINE)
        canvas.number(left + cell / 2, top + cell / 2, numbers[i][j], size=14, decimal=False, fill=ink_on(share))
    stairs = [(x + (i + down) * cell, y + i * cell) for i in range(n + 1) for down in (0, 1)][1:-1]
    canvas.line(stairs, INK, thickness=2.2, dashed=True)


def effects(measured: Mapping[str, Effect], *, title: str, unit: str) -> None:
    """Draw measured effects as bars from zero, each with the 95 % interval of its mean, and the numbers as a table."""
    canvas, top, step = Canvas(), 62.0, 30.0
    title_of(canvas, title)
    left = EDGE + 9 * max(map(len, measured)) + 20
    ends = [end for effect in measured.values() for end in (effect.effect, effect.low, effect.high) if np.isfinite(end)]
    x = spanning(ends, left + 40, left + 480)
    bottom = top + step * len(measured)
    for tick in x.ticks():
        canvas.line([(x(tick), top - 6), (x(tick), bottom)], LINE, thickness=1)
        canvas.text(x(tick), bottom + 14, plain(tick), size=12, fill=MUTED)
    for i, (name, effect) in enumerate(measured.items()):
        y, colour = top + i * step, WEIGHT if effect.effect >= 0 else NEGATIVE
        canvas.text(left - 6, y + 11, name, size=13, anchor="end")
        canvas.rect(min(x(0), x(effect.effect)), y, abs(x(effect.effect) - x(0)), step - 8, colour, radius=2)
        _whisker(canvas, x(max(effect.low, x.low)), x(min(effect.high, x.high)), y + 11)
    canvas.line([(x(0), top - 6), (x(0), bottom)], INK, thickness=1.2)
    canvas.text((x.start + x.end) / 2, bottom + 36, f"{unit}; the whisker is the 95 % interval of the mean", size=13)
    rows = [
        [name, f"{e.baseline:.3f}", f"{e.changed:.3f}", f"{e.effect:+.3f}", f"{e.low:+.3f} to {e.high:+.3f}"]
        for name, e in measured.items()
    ]
    _show(canvas, title, ["", "before", "after", "effect", "95 % interval"], rows)


def _whisker(canvas: Canvas, low: float, high: float, y: float) -> None:
    for start, end in (((low, y), (high, y)), ((low, y - 5), (low, y + 5)), ((high, y - 5), (high, y + 5))):
        canvas.line([start, end], INK, thickness=1.3)


def logit_parts(trace: ModelTrace, token: int, position: int = -1, sequence: int = 0) -> None:
    """Draw how the embedding and every head's contribution add up to one logit."""
    parts = {name: float(np.atleast_1d(part)[sequence]) for name, part in attribution(trace, token, position).items()}
    names = letters(trace, sequence)
    title = f"Logit of {LETTERS[token]} after {''.join(names[: position % len(names) + 1])}"
    rows = [[name, f"{part:+.3f}"] for name, part in [*parts.items(), ("sum", sum(parts.values()))]]
    table = _table(["", "part of the logit"], rows)
    figures.waterfall(list(parts), list(parts.values()), title=title, y_label="logit", table=table)


def routes(
    first: ArrayLike,
    second: ArrayLike,
    row: int,
    names: Sequence[str],
    *,
    residual: bool = False,
    strongest: int = 8,
    title: str = "Routes through two layers",
) -> None:
    """Draw the strongest routes by which inputs reach one row: first map (n, n), then the row of the second.

    With `residual`, a position also keeps itself at each layer. Weights only: see `two_layer_paths`.
    """
    paths = two_layer_paths(first, second, row, residual)
    if len(names) != len(paths):
        raise LabkitError(f"{len(names)} names were given for {len(paths)} positions.")
    chosen = _strongest(paths, strongest)
    canvas = Canvas()
    title_of(canvas, title)
    levels = {"input": 250.0, "after layer 0": 170.0, "after layer 1": 90.0}
    for label, y in levels.items():
        canvas.text(EDGE + 96, y, label, size=12, fill=MUTED, anchor="end")
    x = [EDGE + 124 + STEP * i for i in range(len(names))]
    for j, k in reversed(chosen):  # the strongest last, on top
        width = 0.8 + 6 * float(paths[j, k])
        canvas.line([(x[k], 250), (x[j], 170)], WEIGHT, thickness=width, opacity=0.75)
        canvas.line([(x[j], 170), (x[row], 90)], WEIGHT, thickness=width, opacity=0.75)
    _stations(canvas, x, names, chosen, row)
    rows = [
        [f"{names[k]} (position {k + 1})", f"{names[j]} (position {j + 1})", f"{paths[j, k]:.3f}"] for j, k in chosen
    ]
    _show(canvas, f"{title}, to {names[row]} at position {row + 1}", ["input", "read there by", "share"], rows)


def _strongest(paths: Array, count: int) -> list[tuple[int, int]]:
    """List the places of the largest shares, the largest first; shares that would print as 0.00 are left out."""
    order = np.argsort(-paths, axis=None, kind="stable")[:count]
    places = zip(*np.unravel_index(order, paths.shape), strict=True)
    return [(int(j), int(k)) for j, k in places if paths[j, k] >= 0.005]


def _stations(
    canvas: Canvas, x: Sequence[float], names: Sequence[str], chosen: Sequence[tuple[int, int]], row: int
) -> None:
    for y, used in ((250, {k for _, k in chosen}), (170, {j for j, _ in chosen}), (90, {row})):
        for i, name in enumerate(names):
            on = i in used
            canvas.dot(x[i], y, 12, PAPER, INK if on else LINE)
            canvas.text(x[i], y, name, size=12, fill=INK if on else MUTED, bold=on)
    for i in range(len(names)):
        canvas.text(x[i], 278, str(i + 1), size=10, fill=MUTED)


def _of_sequence(trace: ModelTrace, sequence: int) -> Array:
    weights = trace.weights
    return weights if weights.ndim == 4 else weights[:, :, sequence]


def _show(canvas: Canvas, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Display a picture with its numbers as a table under it, and as text."""
    lines = ["  ".join(cell for cell in line if cell) for line in [heads, *rows]]
    figures.show(canvas, f"{title}. {'; '.join(lines)}.", "\n".join([title, *lines]), table=_table(heads, rows))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<details><summary>the numbers</summary><table>{line(heads, 'th')}{body}</table></details>"
