"""The panel that takes a map apart: point at a cell and see the query, the key, their products and the denominator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from labkit.attention import as_allowed, scaled_scores, softmax_over_sources
from labkit.panels.one_head import existing, locked_sentence, weight_grid
from labkit.panels.panel import Panel, finite, names, to_json
from labkit.panels.still import Still


class Head(Protocol):
    """Whatever holds the arrays a map is made of: an AttentionTrace or an exact Example."""

    queries: Any
    keys: Any
    allowed: Any


class MapGallery(Panel):
    """One or several maps, one cell in focus."""

    maps = traitlets.List(traitlets.Dict()).tag(sync=True)
    shown = traitlets.Int(0).tag(sync=True)
    row = traitlets.Int(0).tag(sync=True)
    column = traitlets.Int(0).tag(sync=True)
    weights = traitlets.Any().tag(sync=True, to_json=lambda value, _: to_json(value))

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.observe(self._recompute, names=["shown"])

    @traitlets.validate("shown")
    def _existing_map(self, proposal: Any) -> int:
        return existing(proposal["value"], len(self.maps))

    def derive(self) -> Mapping[str, ArrayLike]:
        """Compute the weights of the map that is shown; NaN in rows where nothing is allowed."""
        now = self.maps[self.shown]
        allowed = np.array(now["allowed"], dtype=bool)
        return {"weights": softmax_over_sources(now["scores"], allowed, empty_rows="nan")}

    def still(self) -> Still:
        """Show the map."""
        now = self.maps[self.shown]
        grid = weight_grid("A weights", self.weights, now["allowed"], now["rows"], now["columns"], self.locked)
        sentence = locked_sentence(self) or f"Map {now['name']}: rows read, columns are read."
        return Still(self.title, sentence, [grid])


def map_gallery(
    traces: Head | Mapping[str, Head],
    *,
    labels: Sequence[object] | None = None,
    locked_by: str | None = None,
    title: str = "A map taken apart, cell by cell",
) -> MapGallery:
    """Point at a cell of a map and see where its weight comes from; give a trace, an example, or several by name.

    >>> from labkit.exact import worked_example
    >>> map_gallery(worked_example()).weights[1].round(3).tolist()
    [0.333, 0.667, 0.0]
    """
    several = traces if isinstance(traces, Mapping) else {"A": traces}
    maps = [_map(name, trace, labels) for name, trace in several.items()]
    return MapGallery(kind="map_gallery", title=title, maps=maps, locked_by=locked_by)


def _map(name: str, trace: Head, labels: Sequence[object] | None) -> dict[str, Any]:
    queries, keys = finite(trace.queries, "queries", 2), finite(trace.keys, "keys", 2)
    scores = scaled_scores(queries, keys)
    n, m = scores.shape
    return {
        "name": name,
        "rows": names(labels if n == m else None, n),
        "columns": names(labels, m),
        "queries": queries.tolist(),
        "keys": keys.tolist(),
        "scores": scores.tolist(),
        "allowed": as_allowed(trace.allowed, scores.shape).tolist(),
    }
