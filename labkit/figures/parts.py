"""What all figures share: the exit that displays them, titles, axes, matrices in brackets, numbers as fractions."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Sequence
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np

from labkit.figures.canvas import INK, KEY, QUERY, VALUE, WEIGHT, Canvas, plain, shade, text_width

Cells = list[list[Any]]
EDGE = 22  # free paper around every drawing
READABLE = 0.5  # of its size: smaller than that, on a phone, a picture scrolls instead; nobody could read its numbers


def show(canvas: Canvas, description: str, numbers: str = "", table: str = "") -> None:
    """Display a picture with its description as alternative text and its numbers as plain text.

    `table` is HTML that stands under the picture.
    """
    source = base64.b64encode(canvas.svg().encode()).decode()
    style = f"max-width:100%;min-width:{round(READABLE * canvas.right)}px"
    html = f'<img alt="{escape(description)}" src="data:image/svg+xml;base64,{source}" style="{style}">{table}'
    display: Any = importlib.import_module("IPython.display").display
    display({"text/html": html, "text/plain": numbers or description}, raw=True)


def title_of(canvas: Canvas, title: str) -> None:
    """Write the title at the top left, if there is one."""
    if title:
        canvas.text(EDGE, 26, title, size=16, bold=True, anchor="start")


def axes(canvas: Canvas, x: float, y: float, cell: float, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Name both axes and label their positions; (x, y) is the corner of the first cell."""
    room = label_room(columns, cell)
    canvas.text(x + len(columns) * cell / 2, y - (20 if room == 18 else 28) - room, "source (key)", size=12, fill=KEY)
    aside = 24 + 8 * max(len(label) for label in rows)
    canvas.text(x - aside, y + len(rows) * cell / 2, "destination (query)", size=12, fill=QUERY, turned=True)
    for j, label in enumerate(columns):
        across, turned = x + (j + 0.5) * cell, room > 18
        canvas.text(across, y - 8 if turned else y - 14, label, size=13, fill=KEY, turned=turned,
                    anchor="start" if turned else "middle")  # fmt: skip
    for i, label in enumerate(rows):
        canvas.text(x - 8, y + (i + 0.5) * cell, label, size=13, fill=QUERY, anchor="end")


def label_room(columns: Sequence[str], cell: float) -> float:
    """Say how high the column labels reach: those too wide for their cell stand upright."""
    widest = max(text_width(label, 13) for label in columns)
    return 18 if widest <= cell else widest


def draw_matrix(canvas: Canvas, x: float, y: float, cells: Cells, name: str) -> tuple[float, float]:
    """Draw one matrix in square brackets with its name and shape above; give its width and height."""
    rows, columns = len(cells), len(cells[0])
    cell, height, colour = max(42.0, 9.0 * max(len(plain(v)) for row in cells for v in row) + 14), 34.0, colour_of(name)
    canvas.text(x + columns * cell / 2, y - 14, f"{name}  ({rows}×{columns})", size=13, fill=colour, bold=True)
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            canvas.rect(x + j * cell + 1, y + i * height + 1, cell - 2, height - 2, shade(0.08, colour))
            canvas.text(x + (j + 0.5) * cell, y + (i + 0.5) * height, plain(value), size=14)
    wide, tall = columns * cell, rows * height
    for side, inward in ((x - 4, 6), (x + wide + 4, -6)):
        canvas.line(
            [(side + inward, y - 2), (side, y - 2), (side, y + tall + 2), (side + inward, y + tall + 2)], colour
        )
    return wide, tall


def colour_of(name: str) -> str:
    """Give a letter's colour; the matrix W_Q has that of Q, and so has a name such as "weights" that of A."""
    letter = name.removeprefix("W_")[:1].lower()
    return {"q": QUERY, "k": KEY, "v": VALUE, "z": VALUE, "s": WEIGHT, "a": WEIGHT, "w": WEIGHT}.get(letter, INK)


def cells_of(matrix: Any, fractions: bool = False) -> Cells:
    """Nested lists of numbers; with `fractions`, floats that are simple fractions become such."""
    array = np.atleast_2d(np.asarray(matrix))
    return [[_as_fraction(x) if fractions else x for x in row] for row in array.tolist()]


def _as_fraction(number: Any) -> Any:
    if isinstance(number, Fraction) or not np.isfinite(number):
        return number
    simple = Fraction(number).limit_denominator(64)
    return simple if abs(simple - Fraction(number)) < 1e-9 else number


def positions(count: int) -> list[str]:
    """Number positions as prose does, from 1."""
    return [str(position) for position in range(1, count + 1)]


def in_line(cells: Cells) -> str:
    """Write a matrix on one line, row by row in brackets."""
    return "[" + ", ".join("[" + ", ".join(plain(x) for x in row) + "]" for row in cells) + "]"


def vector(row: Sequence[Any]) -> str:
    """Write a vector in brackets."""
    return "[" + ", ".join(plain(x) for x in row) + "]"


def sentence(lines: str) -> str:
    """Turn the lines of a text twin, one for each row, into one sentence."""
    return "; ".join(f"row {line}" for line in lines.split("\n")) + "."
