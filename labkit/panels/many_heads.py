"""The panel of several heads: each mixes on its own, `W_O` writes their outputs back, the residual is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from labkit.attention import Array, as_allowed, mix, softmax_over_sources
from labkit.errors import LabkitError, ShapeError
from labkit.heads import MultiHeadTrace, residual
from labkit.panels.one_head import existing, hull, locked_sentence, span, weight_grid
from labkit.panels.panel import Numbers, Panel, finite, names
from labkit.panels.still import Grid, Plane, Still, number


class TwoHeads(Panel):
    """Heads side by side for one destination, their concatenation, `W_O`, the update and the residual."""

    moves = ("scores", "W_O")
    scores = Numbers()  # (H, n, m)
    W_O = Numbers()  # (H d_v, d_model)
    allowed = Numbers(dtype=bool)  # (n, m)
    values = Numbers()  # (H, m, d_v)
    inputs = traitlets.Any(None, allow_none=True).tag(sync=True)  # (n, d_model) as lists, or None
    weights = Numbers(undefined=True)
    output = Numbers(undefined=True)  # (H, n, d_v)
    update = Numbers(undefined=True)  # (n, d_model)
    result = traitlets.Any(None, allow_none=True)  # inputs + update, or None
    row = traitlets.Int(0).tag(sync=True)
    destinations = traitlets.List(traitlets.Unicode()).tag(sync=True)
    score_range = traitlets.List(traitlets.Float()).tag(sync=True)
    value_range = traitlets.List(traitlets.Float()).tag(sync=True)

    @traitlets.validate("row")
    def _existing_row(self, proposal: Any) -> int:
        return existing(proposal["value"], self.scores.shape[1])

    def derive(self) -> Mapping[str, ArrayLike]:
        """Run every head, lay the outputs side by side and multiply by `W_O`; NaN where nothing is allowed."""
        weights = np.stack([softmax_over_sources(S, self.allowed, empty_rows="nan") for S in self.scores])
        output = mix(weights, self.values)
        update = np.concatenate(list(output), axis=-1) @ self.W_O
        derived: dict[str, ArrayLike] = {"weights": weights, "output": output, "update": update}
        if self.inputs is not None:
            derived["result"] = residual(self.inputs, update)
        return derived

    def still(self) -> Still:
        """Show the weights of every head, the concatenation of the row in focus, and `W_O`."""
        heads = [
            weight_grid(f"A of head {h + 1}", weights, self.allowed, self.destinations, self.labels, self.locked)
            for h, weights in enumerate(self.weights)
        ]
        writing = Grid(
            "W_O",
            [f"{r + 1}" for r in range(len(self.W_O))],
            [f"y[{c + 1}]" for c in range(self.W_O.shape[1])],
            [[number(w) for w in row] for row in self.W_O],
            0.3 * np.abs(self.W_O) / max(1.0, float(np.abs(self.W_O).max())),
        )
        update = ", ".join(number(y) for y in self.update[self.row])
        sentence = locked_sentence(self) or f"Row {self.destinations[self.row]}: the update is ({update})."
        return Still(self.title, sentence, [*heads, writing], self._plane())

    def _plane(self) -> Plane | None:
        if self.values.shape[-1] != 2 or self.W_O.shape[1] != 2:
            return None
        open_now = self.allowed[self.row]
        vectors = [
            (f"v{j + 1} of head {h + 1}", value.tolist(), bool(open_now[j]))
            for h, values in enumerate(self.values)
            for j, value in enumerate(values)
        ]
        update = self.update[self.row]
        shown = not self.locked and np.isfinite(update).all()
        corners = hull([v for _, v, ok in vectors if ok])
        return Plane(vectors, [(f"y{self.row + 1}", update.tolist())] if shown else [], corners, *self.value_range)


def two_heads(
    source: MultiHeadTrace | None = None,
    W_O: ArrayLike | None = None,
    *,
    scores: ArrayLike | None = None,
    values: ArrayLike | None = None,
    allowed: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    row: int = -1,
    labels: Sequence[object] | None = None,
    destinations: Sequence[object] | None = None,
    score_range: tuple[float, float] | None = None,
    value_range: tuple[float, float] | None = None,
    locked_by: str | None = None,
    title: str = "Several heads read, W_O writes back",
) -> TwoHeads:
    """Move the scores of every head and the entries of `W_O`; give a multi-head trace, or the arrays.

    scores (H, n, m), allowed (n, m), values (H, m, d_v), or (m, d_v) shared by the heads; W_O (H d_v, d_model), made
    of identity blocks unless given; inputs (n, d_model) for the residual, from the trace or none.

    >>> panel = two_heads(scores=[[[0.0, 0.0]]], values=[[[2.0], [4.0]]], W_O=[[10.0]])
    >>> panel.update.tolist()
    [[30.0]]
    """
    if source is not None:
        scores = np.stack([head.scores for head in source.heads])
        values = np.stack([head.values for head in source.heads])
        allowed = source.heads[0].allowed if allowed is None else allowed
        inputs = source.heads[0].inputs if inputs is None else inputs
    if scores is None or values is None:
        raise LabkitError("two_heads needs a MultiHeadTrace, or scores (H, n, m) and values (H, m, d_v).")
    S, V, writing, state = _fitting(scores, values, W_O, inputs)
    panel = TwoHeads(
        kind="two_heads",
        title=title,
        labels=names(labels, S.shape[2]),
        destinations=names(labels if destinations is None and S.shape[1] == S.shape[2] else destinations, S.shape[1]),
        scores=S,
        values=V,
        allowed=as_allowed(allowed, S.shape[1:]),
        W_O=writing,
        inputs=None if state is None else state.tolist(),
        row=existing(row, S.shape[1]),
        score_range=list(score_range or span(S, -2, 8)),
        locked_by=locked_by,
    )
    panel.value_range = list(value_range or _room(panel))
    return panel


def _fitting(
    scores: ArrayLike, values: ArrayLike, W_O: ArrayLike | None, inputs: ArrayLike | None
) -> tuple[Array, Array, Array, Array | None]:
    """Read the arrays of `two_heads` and see that they fit together; values and W_O are filled in for every head."""
    S = finite(scores, "scores", 3)
    shared = np.ndim(np.asarray(values)) == 2
    V = np.tile(finite(values, "values", 2), (len(S), 1, 1)) if shared else finite(values, "values", 3)
    if len(S) != len(V) or S.shape[2] != V.shape[1]:
        raise ShapeError(f"scores {S.shape} and values {V.shape}: need (H, n, m) and (H, m, d_v) with equal H and m.")
    writing = finite(np.tile(np.eye(V.shape[2]), (len(V), 1)) if W_O is None else W_O, "W_O", 2)
    if len(writing) != len(V) * V.shape[2]:
        raise ShapeError(f"W_O {writing.shape} needs {len(V)} heads * d_v {V.shape[2]} rows (first axis).")
    state = None if inputs is None else finite(inputs, "inputs", 2)
    if state is not None and state.shape != (S.shape[1], writing.shape[1]):
        raise ShapeError(f"inputs {state.shape} must be (n, d_model) = {(S.shape[1], writing.shape[1])} to be added.")
    return S, V, writing, state


def _room(panel: TwoHeads) -> list[float]:
    """Leave room around everything drawn at the start, and for updates of the other sign."""
    drawn = [panel.values.ravel(), panel.update[panel.row], np.ravel(0.0 if panel.result is None else panel.result)]
    return list(span(np.nan_to_num(np.concatenate(drawn)), -3, 4))
