"""A panel without its controls: one picture and the same numbers as tables and as plain text.

This is what a stored notebook, GitHub's preview or a printed page shows. The figure also carries the panel's state, so
that `labkit.panels.enliven` can bring an exported page alive.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from labkit.attention import Array

HUES = {"query": "#2563c9", "key": "#c42f3c", "value": "#1d8a4a", "score": "#7446c8", "mixture": "#222222"}
CELL, ROW, GAP = 62, 34, 34  # pixels: a cell's width and height, and the space between two maps


def number(x: float) -> str:
    """Write a number as a small fraction where it is one, otherwise with three decimals.

    >>> number(1 / 3), number(2.0), number(0.123), number(0.0001), number(float("nan"))
    ('1/3', '2', '0.123', '<0.001', '0/0')
    """
    if np.isnan(x):
        return "0/0"
    if 0 < x < 0.0005:  # only a blocked weight is exactly 0
        return "<0.001"
    near = Fraction(float(x)).limit_denominator(64)
    return str(near) if abs(float(near) - x) <= 1e-12 * max(1.0, abs(x)) else f"{x:.3f}"


@dataclass(frozen=True)
class Grid:
    """One named matrix; `texts` are what its cells say, `strengths` (0 to 1) how dark they are."""

    name: str
    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]]
    strengths: Array
    hue: str = "score"

    @property
    def cell(self) -> float:
        """Give the width of a cell: room for the longest text in it or above it."""
        return max(CELL, 10 + max(_width(text) for row in (self.columns, *self.texts) for text in row))

    @property
    def side(self) -> float:
        """Give the width of the names beside the rows."""
        return max(34.0, 10 + max(map(_width, self.rows)))

    def lines(self) -> Iterator[str]:
        """Yield the matrix as aligned plain text."""
        table = [["", *self.columns], *([name, *row] for name, row in zip(self.rows, self.texts, strict=True))]
        widths = [max(len(row[c]) for row in table) for c in range(len(table[0]))]
        for row in table:
            yield "  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))


@dataclass(frozen=True)
class Plane:
    """Vectors with two coordinates as thin arrows, the polygon of the allowed ones, and mixtures as thick arrows."""

    vectors: Sequence[tuple[str, Sequence[float], bool]]  # name, coordinates, allowed
    mixtures: Sequence[tuple[str, Sequence[float]]]
    hull: Sequence[Sequence[float]]
    low: float
    high: float


@dataclass(frozen=True)
class Still:
    """A title, matrices, perhaps a plane, and one sentence that says what is seen."""

    title: str
    sentence: str
    grids: Sequence[Grid]
    plane: Plane | None = None

    def text(self) -> str:
        """Write everything as plain text."""
        blocks = [f"{grid.name}\n" + "\n".join(grid.lines()) for grid in self.grids]
        return "\n".join([self.title, *blocks, self.sentence])

    def html(self, state: dict[str, Any]) -> str:
        """Return picture and tables; `state` travels along in an attribute."""
        picture = base64.b64encode(self.svg().encode()).decode()
        tables = "".join(_table(grid) for grid in self.grids)
        return (
            f"<figure class='labkit-panel' data-labkit='{_attribute(state)}'>"
            f'<img alt="{html.escape(f"{self.title}. {self.sentence}")}" '
            f'src="data:image/svg+xml;base64,{picture}">'
            f"<figcaption>{html.escape(self.sentence)} Run this cell in JupyterLab to move things.</figcaption>"
            f"<details><summary>The same as numbers</summary>{tables}</details></figure>"
        )

    def svg(self) -> str:
        """Draw the picture on its own white ground, so that it can be read in any theme."""
        parts, x, height = [], 24.0, 0.0
        for grid in self.grids:
            parts.append(f'<g transform="translate({x:g} 52)">{_draw_grid(grid)}</g>')
            x += max(grid.side + grid.cell * len(grid.columns), grid.side + _width(grid.name)) + GAP
            height = max(height, 60 + ROW * len(grid.rows))
        if self.plane is not None:
            parts.append(f'<g transform="translate({x:g} 40)">{_draw_plane(self.plane)}</g>')
            x, height = x + 240 + GAP, max(height, 240)
        x = max(x, 48 + 1.2 * _width(self.title))
        box = f"0 0 {x:g} {height + 64:g}"
        title = f'<text x="24" y="28" font-weight="600" font-size="15">{html.escape(self.title)}</text>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{x:g}" font-family="system-ui,sans-serif" '
            f'font-size="13"><rect width="100%" height="100%" rx="10" fill="#fff"/>{title}{"".join(parts)}</svg>'
        )


def _attribute(state: dict[str, Any]) -> str:
    """Write JSON for an attribute in single quotes, in which its own double quotes need no escape."""
    text = json.dumps(_twelve_digits(state), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "&amp;").replace("'", "&#39;").replace("<", "&lt;")


def _twelve_digits(part: Any) -> Any:
    """Round every number: the last digits of an exponential differ between processors, stored outputs must not."""
    if isinstance(part, dict):
        return {key: _twelve_digits(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_twelve_digits(value) for value in part]
    return float(f"{part:.12g}") if isinstance(part, float) else part


def _table(grid: Grid) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ["", *grid.columns])
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>"
        for name, row in zip(grid.rows, grid.texts, strict=True)
    )
    return f"<table><caption>{html.escape(grid.name)}</caption><tr>{head}</tr>{rows}</table>"


def _draw_grid(grid: Grid) -> str:
    hue, side, wide = HUES[grid.hue], grid.side, grid.cell
    boxes: list[str] = []
    light: list[str] = []
    dark: list[str] = []
    for i, row in enumerate(grid.texts):
        for j, text in enumerate(row):
            x, y, strength = side + wide * j, 30 + ROW * i, float(grid.strengths[i, j])
            place = f'x="{x:g}" y="{y}" width="{wide - 3:g}" height="{ROW - 3}" rx="5"'
            boxes.append(f'<rect {place} fill-opacity="{0.06 + 0.84 * strength:.2f}"/>')
            (dark if strength > 0.87 else light).append(_text(x + wide / 2 - 1, y + 20, text))
    names = [_text(side + wide * (j + 0.5), 20, name) for j, name in enumerate(grid.columns)]
    names += [_text(side / 2 + 1, 51 + ROW * i, name) for i, name in enumerate(grid.rows)]
    title = f'<text x="{side:g}" y="-2" fill="{hue}" font-weight="600">{html.escape(grid.name)}</text>'
    groups = ((hue, boxes), ("#666", names), ("#222", light), ("#fff", dark))
    return title + "".join(f'<g fill="{fill}" text-anchor="middle">{"".join(parts)}</g>' for fill, parts in groups)


def _draw_plane(plane: Plane) -> str:
    unit = 240 / (plane.high - plane.low)

    def at(point: Sequence[float]) -> tuple[float, float]:
        return (point[0] - plane.low) * unit, 240 - (point[1] - plane.low) * unit

    def arrow(point: Sequence[float], width: float, hue: str, dash: str = "") -> str:
        (x0, y0), (x1, y1) = at((0, 0)), at(point)
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        line = f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
        line += f'stroke="{hue}" stroke-width="{width}"{extra}/>'
        return line + f'<circle cx="{x1:.1f}" cy="{y1:.1f}" r="{width + 2}" fill="{hue}"/>'

    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, plane.hull))
    zero = at((0, 0))
    parts = [
        f'<path d="M0,{zero[1]:.1f}H240M{zero[0]:.1f},0V240" stroke="#ccc"/>',
        f'<polygon points="{corners}" fill="{HUES["value"]}" fill-opacity=".12" stroke="{HUES["value"]}"/>',
    ]
    written: list[tuple[float, float, str]] = []
    labels: list[str] = []

    def label(x: float, y: float, text: str, fill: str, weight: int = 400) -> None:
        while any(abs(y - b) < 14 and abs(x - a) < _width(text + other) / 2 for a, b, other in written):
            y -= 14  # several heads may mix the same values
        written.append((x, y, text))
        looks = f'fill="{fill}" font-weight="{weight}" stroke="#fff" stroke-width="3" paint-order="stroke"'
        labels.append(f'<g text-anchor="middle" {looks}>{_text(x, y, text)}</g>')

    for name, point in plane.mixtures:
        label(at(point)[0] + 16, at(point)[1] + 16, name, HUES["mixture"], weight=700)
    for name, point, allowed in plane.vectors:
        parts.append(arrow(point, 1.5, HUES["value"], "" if allowed else "4 3"))
        label(at(point)[0] + 14, at(point)[1] - 7, name if allowed else f"{name} blocked", HUES["value"])
    parts += [arrow(point, 4, HUES["mixture"]) for _, point in plane.mixtures]
    return "".join([*parts, *labels])


def _width(text: str) -> float:
    """Estimate the width of a line in a wide font of 13 pixels; readers have different ones."""
    return 7.4 * len(text)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{html.escape(text)}</text>'
