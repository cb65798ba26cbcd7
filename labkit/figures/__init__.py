"""The still figures of the lessons. Each function displays one picture with its description and returns None.

    heat_map(weights, allowed=None, *, title=, row_labels=, column_labels=, fractions=, highlight_row=, kind=, note=)
    heat_maps(maps, titles, *, allowed=None, title=, fractions=, kind=, row_labels=, column_labels=, columns=)
    mask(allowed, *, form="allowed" | "blocked" | "additive", title=)
    matrices(title="", **named)                          figures.matrices(Q=Q, K=K, V=V)
    projection(inputs, weights, *, name="Q")             X W = Q with shapes and numbers
    shapes(n, d_model, d_k, d_v, m=None)                 every array of one head as a box to scale
    row_softmax(scores, allowed=None, *, labels=, title=)  score -> exp -> share, one row, stages side by side
    data_flow(trace, row=2)                              one destination through score path and value path
    arrow_mixture(weights, values, *, title=, labels=)   value vectors and their mixture in the plane
    compare(before, after, labels, *, names=, title=)    two bars for each label
    line(x, ys, *, title=, x_label=, y_label=)           ys: {"name": numbers}
    head_grid(maps, *, titles=, columns=, title=)        small maps, no numbers
    waterfall(labels, parts, *, start=, title=, y_label=)  contributions adding up
    show(canvas, description, numbers="", table="")       the shared exit, also for pictures of your own

Rows are destinations, columns are sources, positions count from 1. Q is blue, K red, V green; what queries and keys
make together, scores and weights, is violet; blocked cells are hatched.

Every picture is an image with an alternative text, because JupyterLab gives plain image outputs none, and carries its
numbers as text, which is what a strict comparison of stored outputs reads.
"""

from labkit.figures.canvas import Canvas
from labkit.figures.charts import compare, line, waterfall
from labkit.figures.flow import data_flow
from labkit.figures.maps import head_grid, heat_map, heat_maps, mask, matrices, projection
from labkit.figures.mixing import arrow_mixture, row_softmax
from labkit.figures.parts import show
from labkit.figures.structure import shapes

__all__ = [
    "Canvas", "arrow_mixture", "compare", "data_flow", "head_grid", "heat_map", "heat_maps", "line", "mask",
    "matrices", "projection", "row_softmax", "shapes", "show", "waterfall",
]  # fmt: skip
