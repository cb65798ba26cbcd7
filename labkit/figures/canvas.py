"""A small vector canvas for the figures: shapes and numbers in, one deterministic SVG out.

Figures are written by hand rather than through a plotting library for three reasons. The same numbers always give the
same bytes, so a stored picture can really be compared. A picture is a few kilobytes and sharp at any zoom. And cells
can hold what a plotting library has no notion of: a fraction with its bar, a hatched blocked cell, a letter in its
colour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from typing import Any, Literal

QUERY, KEY, VALUE = "#1d5fbf", "#c0392b", "#1b7f46"  # Q blue, K red, V green, in every figure
WEIGHT = "#5b3fb0"  # scores and weights come from queries and keys: blue and red make violet
NEGATIVE = "#b45309"
INK, MUTED, LINE, PAPER = "#1f2933", "#5b6675", "#d5dae1", "#ffffff"
QUIET_PAPER, QUIET_LINE = "#dfe2e8", "#bfc5cf"  # on a dark page, where white would glare
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
SERIF = "'STIX Two Text', 'Cambria', 'Times New Roman', 'DejaVu Serif', serif"

Anchor = Literal["start", "middle", "end"]


@dataclass
class Canvas:
    """Shapes in drawing order; the paper grows to hold them."""

    parts: list[str] = field(default_factory=list)
    right: float = 0.0
    bottom: float = 0.0

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        stroke: str = "none",
        *,
        radius: float = 3,
        thickness: float = 1,
        dashed: bool = False,
    ) -> None:
        """Draw a rectangle with its upper left corner at (x, y)."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._add(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="{_n(thickness)}"{dash}/>'
        )
        self.reach(x + width, y + height)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        fill: str = INK,
        anchor: Anchor = "middle",
        bold: bool = False,
        math: bool = False,
        turned: bool = False,
        halo: bool = False,
    ) -> None:
        """Write one line, vertically centred on y; `W_Q` shows Q as an index, `math` is italic serif.

        A `halo` of paper keeps it readable where it crosses a line.
        """
        style = f' font-family="{SERIF}" font-style="italic"' if math else ""
        weight = ' font-weight="600"' if bold else ""
        edge = f' stroke="{PAPER}" stroke-width="3" paint-order="stroke"' if halo else ""
        turn = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turned else ""
        self._add(
            f'<text x="{_n(x)}" y="{_n(y + 0.35 * size)}" font-size="{_n(size)}" fill="{fill}" '
            f'text-anchor="{anchor}"{style}{weight}{edge}{turn}>{_with_indices(text, size)}</text>'
        )
        wide = text_width(text, size) * (1.12 if bold else 1)
        ahead = {"start": wide, "middle": wide / 2, "end": 0}[anchor]
        behind = wide - ahead
        self.reach(*((x + size, y + behind) if turned else (x + ahead, y + size)))

    def line(
        self, points: list[tuple[float, float]], stroke: str = INK, *, thickness: float = 1.5, dashed: bool = False,
        arrow: bool = False, soft_corners: float = 0, opacity: float = 1,
    ) -> None:  # fmt: skip
        """Draw a polyline, with rounded corners and an arrow head if asked."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        shade = f' opacity="{_n(opacity)}"' if opacity < 1 else ""
        self._add(
            f'<path d="{_path(points, soft_corners)}" fill="none" stroke="{stroke}" stroke-width="{_n(thickness)}" '
            f'stroke-linecap="round" stroke-linejoin="round"{dash}{shade}/>'
        )
        if arrow:
            self._arrow_head(points[-2], points[-1], stroke, 4 + 2 * thickness)
        self.reach(max(x for x, _ in points), max(y for _, y in points))

    def dot(self, x: float, y: float, radius: float, fill: str, stroke: str = PAPER) -> None:
        """Draw a filled circle."""
        self._add(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        )
        self.reach(x + radius, y + radius)

    def polygon(self, points: list[tuple[float, float]], fill: str, *, opacity: float = 1) -> None:
        """Fill a polygon."""
        corners = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._add(f'<polygon points="{corners}" fill="{fill}" opacity="{_n(opacity)}"/>')

    def number(
        self, x: float, y: float, value: Any, *, size: float = 15, fill: str = INK, decimal: bool = True
    ) -> None:
        """Write a number centred on (x, y): a fraction with its bar, its decimal underneath, or a plain decimal."""
        if not isinstance(value, Fraction) or value.denominator == 1:
            self.text(x, y, plain(value), size=size, fill=fill)
            return
        low = 0.62 * size if decimal else 0.0
        middle = y - low
        top, bottom = str(abs(value.numerator)), str(value.denominator)
        half = 0.32 * size * max(len(top), len(bottom)) + 1
        if value < 0:
            self.text(x - half - 0.4 * size, middle, "−", size=size, fill=fill)
        self.text(x, middle - 0.6 * size, top, size=size, fill=fill)
        self.line([(x - half, middle), (x + half, middle)], fill, thickness=1.1)
        self.text(x, middle + 0.62 * size, bottom, size=size, fill=fill)
        if decimal:
            self.text(x, y + 1.05 * size, plain(float(value), 3), size=0.72 * size, fill=fill)

    def reach(self, x: float, y: float) -> None:
        """Make the paper large enough to hold the point (x, y)."""
        self.right, self.bottom = max(self.right, x), max(self.bottom, y)

    def svg(self, margin: float = 18) -> str:
        """Give the finished picture on paper of its own, so that it reads in light and in dark surroundings."""
        width, height = _n(self.right + margin), _n(self.bottom + margin)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="{SANS}">{_IN_THE_DARK}<defs>'
            f'<pattern id="blocked" width="7" height="7" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><rect width="7" height="7" fill="#eef0f3"/><path d="M0 0V7" '
            f'stroke="#b3bbc6" stroke-width="2.4"/></pattern></defs>'
            f'<rect x="0.5" y="0.5" width="{_n(self.right + margin - 1)}" height="{_n(self.bottom + margin - 1)}" '
            f'rx="10" fill="{PAPER}" stroke="{LINE}" class="paper"/>' + "".join(self.parts) + "</svg>"
        )

    def _add(self, part: str) -> None:
        self.parts.append(part)

    def _arrow_head(self, start: tuple[float, float], tip: tuple[float, float], fill: str, size: float) -> None:
        dx, dy = tip[0] - start[0], tip[1] - start[1]
        length = (dx * dx + dy * dy) ** 0.5 or 1.0
        ux, uy = dx / length, dy / length
        base = tip[0] - ux * size, tip[1] - uy * size
        wing = 0.45 * size
        self.polygon(
            [tip, (base[0] - uy * wing, base[1] + ux * wing), (base[0] + uy * wing, base[1] - ux * wing)], fill
        )


def deeper(colour: str) -> str:
    """Give the darker tone in which a colour is written on quiet paper.

    >>> deeper("#ff8000")
    '#e07000'
    """
    return "#" + "".join(f"{int(colour[i : i + 2], 16) * 22 // 25:02x}" for i in (1, 3, 5))


# A picture is told whether its page is dark. Cells keep their shades, so that a dark cell is a large weight everywhere.
_IN_THE_DARK = (
    "<style>@media (prefers-color-scheme:dark){"
    f'.paper{{fill:{QUIET_PAPER}}}[stroke="{PAPER}"]{{stroke:{QUIET_PAPER}}}[stroke="{LINE}"]{{stroke:{QUIET_LINE}}}'
    + "".join(f'text[fill="{c}"]{{fill:{deeper(c)}}}' for c in (QUERY, KEY, VALUE, WEIGHT, NEGATIVE, MUTED))
    + "}</style>"
)
BLOCKED = "url(#blocked)"


def plain(value: Any, digits: int = 2) -> str:
    """Write a number for people: a true minus sign, no trailing zeros beyond what was measured.

    >>> plain(-0.5), plain(2.0), plain(1 / 3), plain(Fraction(2, 3)), plain(-0.001)
    ('−0.5', '2', '0.33', '2/3', '0')
    """
    if isinstance(value, Fraction):
        return str(value).replace("-", "−")
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        return {"inf": "∞", "-inf": "−∞"}.get(str(number), "NaN")
    text = f"{round(number, 9):.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text.replace("-", "−")


def shade(share: float, colour: str = WEIGHT) -> str:
    """Mix a colour with white: share 0 is white, 1 the full colour. Shares are rounded so that bytes are stable.

    >>> shade(0.0), shade(1.0, "#204060")
    ('#ffffff', '#204060')
    """
    share = min(1.0, max(0.0, round(float(share), 3)))
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (channel - 255) * share):02x}" for channel in channels)


def ink_on(share: float, colour: str = WEIGHT) -> str:
    """Choose black or white writing for a cell shaded with this share: whichever contrasts by 4.5 to 1 or more.

    >>> ink_on(0.2), ink_on(1.0)
    ('#000000', '#ffffff')
    """
    return "#000000" if luminance(shade(share, colour)) > 0.179 else PAPER


def luminance(colour: str) -> float:
    """Give the relative luminance of `#rrggbb` as WCAG 2 defines it: 0 is black, 1 is white."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def text_width(text: str, size: float) -> float:
    """Estimate the width of a line; exact measures depend on the reader's fonts."""
    return 0.56 * size * len(text)


def _with_indices(text: str, size: float) -> str:
    """Turn `W_Q` into W with a lowered Q."""
    pieces = re.split(r"_(\w+)", text)
    written = escape(pieces[0])
    for index, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        drop = _n(0.22 * size)
        written += f'<tspan dy="{drop}" font-size="{_n(0.72 * size)}">{escape(index)}</tspan>'
        written += f'<tspan dy="-{drop}">{escape(rest) or "&#8203;"}</tspan>'
    return written


def _path(points: list[tuple[float, float]], corner: float) -> str:
    path = f"M{_n(points[0][0])} {_n(points[0][1])}"
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        path += f"L{_towards(here, before, corner)}Q{_n(here[0])} {_n(here[1])} {_towards(here, after, corner)}"
    return path + f"L{_n(points[-1][0])} {_n(points[-1][1])}"


def _towards(start: tuple[float, float], goal: tuple[float, float], distance: float) -> str:
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    share = min(0.5, distance / length)
    return f"{_n(start[0] + share * dx)} {_n(start[1] + share * dy)}"


def _n(number: float) -> str:
    """Write a coordinate in at most two decimals."""
    return f"{round(float(number), 2):g}"
