"""Panels that repaint within a frame: sliders for scores, values, masks and heads.

Each function returns a widget whose traits are plain state: read them, set them from Python, or move them by hand.
`locked_by="exercise-id"` keeps a panel closed until a prediction for that exercise is on record.
"""

from labkit.panels.export import enliven, export_html
from labkit.panels.gallery import map_gallery
from labkit.panels.many_heads import two_heads
from labkit.panels.one_head import mask_builder, scores_and_values, softmax_row
from labkit.panels.scaling import scale
from labkit.panels.trained import trained_model

__all__ = [
    "enliven",
    "export_html",
    "map_gallery",
    "mask_builder",
    "scale",
    "scores_and_values",
    "softmax_row",
    "trained_model",
    "two_heads",
]
