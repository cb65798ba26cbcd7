"""The panel of the divisor: random products of growing width, divided or not, and what softmax makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from labkit.attention import Array, softmax_over_sources
from labkit.errors import LabkitError
from labkit.panels.one_head import locked_sentence
from labkit.panels.panel import Numbers, Panel
from labkit.panels.still import Grid, Still, number

DRAWS = 2_000  # products behind each measured standard deviation
ROWS = 300  # rows behind each average of the largest weight
POWERS = {"none": 0.0, "root": 0.5, "full": 1.0}  # the divisor is d_k to this power


class Scale(Panel):
    """One query and m keys, of which the first d_k coordinates are used; scores are products over a divisor."""

    moves = ("step", "divisor")
    step = traitlets.Int(0).tag(sync=True)
    divisor = traitlets.Enum(("none", "root", "full"), "root").tag(sync=True)
    widths = traitlets.List(traitlets.Int()).tag(sync=True)
    dots = Numbers()  # (widths, m)
    spread = Numbers()  # (widths,): measured standard deviation of many products
    peaks = traitlets.Dict().tag(sync=True)  # for each divisor (widths,): largest weight, averaged over many rows
    scores = Numbers()
    weights = Numbers()

    @property
    def width(self) -> int:
        """Return d_k."""
        return int(self.widths[self.step])

    def derive(self) -> Mapping[str, ArrayLike]:
        """Divide the products and apply softmax."""
        scores = self.dots[self.step] / self.width ** POWERS[self.divisor]
        return {"scores": scores, "weights": softmax_over_sources(scores)}

    def still(self) -> Still:
        """Show products, scores and weights at the present width."""
        hidden = ["?"] * len(self.scores)
        scores, weights = ([f"{x:.3f}" for x in numbers] for numbers in (self.scores, self.weights))
        texts = [[f"{x:.3f}" for x in self.dots[self.step]], *([hidden, hidden] if self.locked else [scores, weights])]
        shades = np.zeros((3, len(hidden)))
        if not self.locked:
            shades[2] = self.weights
        columns = [f"k{j + 1}" for j in range(len(hidden))]
        sentence = locked_sentence(self) or f"d_k = {self.width}: the largest weight is {number(self.weights.max())}."
        return Still(self.title, sentence, [Grid("one row", ["q·k", "score", "weight"], columns, texts, shades)])


def scale(
    m: int = 6,
    *,
    largest: int = 512,
    start: int = 4,
    divisor: Literal["none", "root", "full"] = "root",
    seed: int = 0,
    locked_by: str | None = None,
    title: str = "Why scores are divided by √d_k",
) -> Scale:
    """Move d_k through powers of two up to `largest` and compare three divisors, for m random keys.

    Coordinates are independent, of mean 0 and variance 1, so products have variance d_k.

    >>> scale(m=3).width
    4
    """
    widths = [2**k for k in range(int(largest).bit_length())]
    if start not in widths:
        raise LabkitError(f"start = {start} is not one of the widths {widths}.")
    rng = np.random.default_rng(seed)
    products = _products(rng, (m,), widths)
    return Scale(
        kind="scale",
        title=title,
        widths=widths,
        step=widths.index(start),
        divisor=divisor,
        dots=products.T,
        spread=_products(rng, (DRAWS, 1), widths).std(axis=(0, 1)),
        peaks=_peaks(_products(rng, (ROWS, m), widths), widths),
        locked_by=locked_by,
    )


def _products(rng: np.random.Generator, shape: tuple[int, ...], widths: list[int]) -> Array:
    """Draw products q . k for every width at once, from the first coordinates of one draw: (*shape, widths)."""
    terms = rng.standard_normal((*shape, widths[-1])) * rng.standard_normal((*shape[:-1], 1, widths[-1]))
    sums: Array = np.cumsum(terms, axis=-1)[..., np.array(widths) - 1]
    return sums


def _peaks(products: Array, widths: list[int]) -> dict[str, list[float]]:
    return {
        name: [
            float(softmax_over_sources(products[..., k] / width**power).max(axis=-1).mean())
            for k, width in enumerate(widths)
        ]
        for name, power in POWERS.items()
    }
