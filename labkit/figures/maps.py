"""Maps and matrices: weights, scores, masks, projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from labkit.attention import Array
from labkit.figures.canvas import (
    BLOCKED,
    KEY,
    LINE,
    MUTED,
    NEGATIVE,
    PAPER,
    QUERY,
    WEIGHT,
    Canvas,
    ink_on,
    plain,
    shade,
)
from labkit.figures.parts import (
    EDGE,
    axes,
    cells_of,
    draw_matrix,
    in_line,
    label_room,
    positions,
    sentence,
    show,
    title_of,
)

Kind = Literal["weights", "scores"]


def heat_map(
    weights: Any,
    allowed: ArrayLike | None = None,
    *,
    title: str = "Attention weights",
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    fractions: bool = False,
    highlight_row: int | None = None,
    kind: Kind = "weights",
    note: str = "",
) -> None:
    """Draw one map with its numbers in the cells: rows are destinations, columns are sources."""
    canvas = Canvas()
    title_of(canvas, title)
    grid = _Map(weights, allowed, kind, fractions, row_labels, column_labels)
    bottom = grid.draw(canvas, EDGE, 52, highlight_row=highlight_row)
    if note:
        canvas.text(EDGE, bottom + 16, note, size=12, fill=MUTED, anchor="start")
    show(canvas, f"{title}. {grid.in_words()} {note}".strip(), f"{title}\n{grid.as_text()}")


def heat_maps(
    maps: Sequence[Any],
    titles: Sequence[str],
    *,
    allowed: ArrayLike | None = None,
    title: str = "",
    fractions: bool = False,
    kind: Kind = "weights",
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    columns: int | None = None,
) -> None:
    """Draw several maps side by side on one colour scale; `allowed` is one mask for all of them."""
    canvas = Canvas()
    title_of(canvas, title)
    top = 54.0 if title else 18.0
    grids = [_Map(each, allowed, kind, fractions, row_labels, column_labels) for each in maps]
    limit = max(grid.limit for grid in grids)
    x, y, lowest = EDGE, top, top
    for k, (grid, name) in enumerate(zip(grids, titles, strict=True)):
        if columns and k and k % columns == 0:
            x, y = EDGE, lowest + 28
        grid.limit = limit
        canvas.text(x + grid.left, y + 8, name, size=14, bold=True, anchor="start")
        lowest = max(lowest, grid.draw(canvas, x, y + 26))
        x += grid.width + 34
    words = " ".join(f"{name}: {grid.in_words()}" for name, grid in zip(titles, grids, strict=True))
    text = "\n".join(f"{name}\n{grid.as_text()}" for name, grid in zip(titles, grids, strict=True))
    show(canvas, f"{title} {words}".strip(), f"{title}\n{text}".strip())


def mask(
    allowed: ArrayLike, *, form: Literal["allowed", "blocked", "additive"] = "allowed", title: str | None = None
) -> None:
    """Draw a mask in one of its three written forms; the hatching always marks what may not be read."""
    grid = np.atleast_2d(np.asarray(allowed, dtype=bool))
    words = {"allowed": ("True", "False"), "blocked": ("False", "True"), "additive": ("0", "−∞")}[form]
    heading = (
        title
        or {
            "allowed": "allowed: True where reading is permitted",
            "blocked": "blocked: True where reading is forbidden",
            "additive": "additive: added to the scores before softmax",
        }[form]
    )
    canvas = Canvas()
    title_of(canvas, heading)
    rows, columns = grid.shape
    x, y, cell = EDGE + 42, 102, 54
    axes(canvas, x, y, cell, positions(rows), positions(columns))
    for i, j in np.ndindex(rows, columns):
        left, upper, permitted = x + j * cell, y + i * cell, bool(grid[i, j])
        canvas.rect(left + 1, upper + 1, cell - 2, cell - 2, shade(0.16) if permitted else BLOCKED, LINE)
        if not permitted:
            canvas.rect(left + 8, upper + 18, cell - 16, 18, PAPER, radius=9)
        canvas.text(left + cell / 2, upper + cell / 2, words[0] if permitted else words[1], size=13, bold=permitted)
    text = "\n".join(f"{i + 1}: " + " ".join(words[0] if ok else words[1] for ok in row) for i, row in enumerate(grid))
    show(canvas, f"{heading}. Rows are destinations, columns are sources. {sentence(text)}", f"{heading}\n{text}")


def matrices(title: str = "", **named: Any) -> None:
    """Draw matrices with names, shapes and numbers; a name starting with Q, K, V or Z has that letter's colour."""
    canvas = Canvas()
    y = 30 if not title else 66
    title_of(canvas, title)
    x, words = float(EDGE), []
    for name, matrix in named.items():
        cells = cells_of(matrix)
        width, _ = draw_matrix(canvas, x, y, cells, name)
        x += width + 34
        words.append(f"{name} = {in_line(cells)}")
    show(canvas, f"{title} {'. '.join(words)}".strip(), "\n".join([title, *words]).strip())


def projection(inputs: Any, weights: Any, *, name: str = "Q") -> None:
    """Draw one projection as a matrix product, every row of inputs times the same learned matrix."""
    left, right = cells_of(inputs), cells_of(weights)
    result = [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*right, strict=True)] for row in left
    ]
    canvas = Canvas()
    title_of(canvas, f"{name} = X W_{name}")
    x, y = float(EDGE), 66
    tallest = max(len(left), len(right)) * 34
    for text, cells, sign in (("X", left, "·"), (f"W_{name}", right, "="), (name, result, "")):
        offset = (tallest - len(cells) * 34) / 2
        width, _ = draw_matrix(canvas, x, y + offset, cells, text)
        x += width
        canvas.text(x + 18, y + tallest / 2, sign, size=20)
        x += 36
    words = f"X = {in_line(left)} times W_{name} = {in_line(right)} gives {name} = {in_line(result)}"
    show(canvas, f"{name} is X times W_{name}. {words}.", words)


class _Map:
    """A matrix of weights or scores with its axes, drawn cell by cell."""

    def __init__(
        self,
        matrix: Any,
        allowed: ArrayLike | None,
        kind: Kind,
        fractions: bool,
        row_labels: Sequence[str] | None,
        column_labels: Sequence[str] | None,
    ) -> None:
        self.cells = cells_of(matrix, fractions)
        self.numbers = np.array([[float(x) for x in row] for row in self.cells])
        rows, columns = self.numbers.shape
        self.allowed = np.broadcast_to(True if allowed is None else np.asarray(allowed, dtype=bool), (rows, columns))
        self.kind = kind
        self.rows = list(row_labels) if row_labels is not None else positions(rows)
        self.columns = list(column_labels) if column_labels is not None else positions(columns)
        seen = np.abs(self.numbers[self.allowed & np.isfinite(self.numbers)])
        self.limit = 1.0 if kind == "weights" else float(max(seen.max(initial=0.0), 1e-9))
        self.cell = 62 if max(rows, columns) <= 6 else 44 if max(rows, columns) <= 10 else 22
        self.left = 34 + 8 * max(len(label) for label in self.rows)
        self.width = self.left + columns * self.cell + (58 if kind == "weights" and self.cell > 22 else 0)

    def draw(self, canvas: Canvas, x: float, y: float, *, highlight_row: int | None = None) -> float:
        """Draw the map with its upper left corner at (x, y) and return the y of its lower end."""
        x, y, cell = x + self.left, y + 32 + label_room(self.columns, self.cell), self.cell
        axes(canvas, x, y, cell, self.rows, self.columns)
        for i, j in np.ndindex(*self.numbers.shape):
            self._cell(canvas, x + j * cell, y + i * cell, i, j)
        right, bottom = x + len(self.columns) * cell, y + len(self.rows) * cell
        if highlight_row is not None:
            canvas.rect(
                x - 3, y + highlight_row * cell - 2, right - x + 6, cell + 4, "none", QUERY, thickness=3, radius=6
            )
        if self.kind == "weights" and cell > 22:
            canvas.text(right + 30, y - 14, "row sum", size=11, fill=MUTED)
            for i, row in enumerate(self.cells):
                total = sum(x for x, ok in zip(row, self.allowed[i], strict=True) if ok)
                canvas.text(right + 30, y + (i + 0.5) * cell, plain(total), size=13, fill=MUTED)
        if not self.allowed.all():
            canvas.rect(x, bottom + 12, 16, 16, BLOCKED, LINE)
            canvas.text(x + 24, bottom + 20, "blocked by the mask", size=12, fill=MUTED, anchor="start")
            bottom += 30
        return bottom

    def _cell(self, canvas: Canvas, x: float, y: float, i: int, j: int) -> None:
        number, cell = self.numbers[i, j], self.cell
        if not self.allowed[i, j]:
            canvas.rect(x + 1, y + 1, cell - 2, cell - 2, BLOCKED, LINE)
            return
        share = abs(number) / self.limit if np.isfinite(number) else 0.0
        colour = WEIGHT if number >= 0 else NEGATIVE
        canvas.rect(x + 1, y + 1, cell - 2, cell - 2, shade(share, colour), LINE)
        if cell > 22:
            size = 15 if cell > 44 else 12
            canvas.number(x + cell / 2, y + cell / 2, self.cells[i][j], size=size, fill=ink_on(share, colour))

    def as_text(self) -> str:
        """Write the numbers row by row, a dot for a blocked cell."""
        return "\n".join(
            f"{label}: " + " ".join(plain(x) if ok else "·" for x, ok in zip(row, permitted, strict=True))
            for label, row, permitted in zip(self.rows, self.cells, self.allowed, strict=True)
        )

    def in_words(self) -> str:
        """Describe the map for someone who does not see it; a large map by its strongest source in each row."""
        what = f"Rows are destinations, columns are sources, cells are {self.kind}."
        if self.cell > 22:
            return f"{what} {sentence(self.as_text().replace('·', 'blocked'))}"
        best = np.where(self.allowed, self.numbers, -np.inf).argmax(axis=1)
        return f"{what} Strongest source of each row: " + ", ".join(
            f"{label} reads {self.columns[j]}" for label, j in zip(self.rows, best, strict=True)
        )


def head_grid(
    maps: Sequence[Any],
    *,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    title: str = "",
    allowed: ArrayLike | None = None,
    table: str = "",
) -> None:
    """Draw many maps small, without numbers, on one colour scale: for finding patterns, not for reading values."""
    grids = [np.asarray(each, dtype=float) for each in maps]
    names = list(titles) if titles is not None else [f"head {k}" for k in range(len(grids))]
    canvas = Canvas()
    top = 70 if title else 36
    title_of(canvas, title)
    side = 150.0
    for k, (grid, name) in enumerate(zip(grids, names, strict=True)):
        x, y = EDGE + 26 + (k % columns) * (side + 30), top + (k // columns) * (side + 50)
        canvas.text(x, y - 14, name, size=13, bold=True, anchor="start")
        _small_map(canvas, x, y, side, grid, allowed)
    bottom = top + ((len(grids) - 1) // columns) * (side + 50) + side
    canvas.text(EDGE + 26, bottom + 20, "across: source (key)", size=12, fill=KEY, anchor="start")
    canvas.text(EDGE + 8, top + side / 2, "down: destination (query)", size=12, fill=QUERY, turned=True)
    lines = [
        f"{name}: strongest source of each row {' '.join(str(j + 1) for j in grid.argmax(axis=1))}"
        for name, grid in zip(names, grids, strict=True)
    ]
    text = "\n".join([title, *lines]).strip()
    show(canvas, f"Grid of attention maps, rows destinations, columns sources. {text}".replace("\n", ". "), text, table)


def _small_map(canvas: Canvas, x: float, y: float, side: float, grid: Array, allowed: ArrayLike | None) -> None:
    rows, columns = grid.shape
    cell = side / max(rows, columns)
    permitted = np.broadcast_to(True if allowed is None else np.asarray(allowed, dtype=bool), grid.shape)
    canvas.rect(x - 1, y - 1, columns * cell + 2, rows * cell + 2, PAPER, LINE, radius=0)
    for i, j in np.ndindex(rows, columns):
        if not permitted[i, j]:
            canvas.rect(x + j * cell, y + i * cell, cell, cell, "#e6e9ee", radius=0)
        elif grid[i, j] > 0.002:
            canvas.rect(x + j * cell, y + i * cell, cell, cell, shade(float(grid[i, j])), radius=0)
