"""An interactive workbook on attention: the names lessons use, each loaded when first asked for."""

from __future__ import annotations

import importlib
from typing import Any

# Module -> the names it lends to `labkit`. Every module is a name too.
_LENT = {
    "attention": ("AttentionTrace", "Head", "attend", "mix", "project", "scaled_scores", "softmax_over_sources"),
    "authoring": (),
    "checks": ("check",),
    "drills": ("practice",),  # a module called practice would take the name of the function
    "errors": ("EmptyRowError", "LabkitError", "MaskError", "NonFiniteError", "ShapeError"),
    "exact": ("Example", "fresh_example", "worked_example"),
    "exercises": (),
    "feedback": (),
    "figures": (),
    "grading": (),
    "heads": ("MultiHeadTrace", "multi_head", "residual"),
    "journal": ("reveal",),
    "maps": (),
    "masks": (),
    "model_figures": (),
    "overview": ("progress",),
    "panels": (),
    "sections": (),
    "slips": (),
    "steps": (),
    "transformer": (),
    "variants": ("me", "variant"),
    "verdict": ("Verdict",),
}
_HOMES = {name: module for module, names in _LENT.items() for name in names}
__all__ = sorted([*_HOMES, *_LENT])


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"labkit.{_HOMES[name]}"), name)
    if name in _LENT:
        return importlib.import_module(f"labkit.{name}")
    raise AttributeError(f"module 'labkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
