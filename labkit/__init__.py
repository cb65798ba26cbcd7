"""An interactive workbook on attention: the names lessons use, each loaded when first asked for."""

from __future__ import annotations

import importlib
from typing import Any

# name -> module that owns it; a name owned by itself is the module.
_HOMES = {
    **dict.fromkeys(("project", "scaled_scores", "softmax_over_sources", "mix", "attend"), "attention"),
    **dict.fromkeys(("Head", "AttentionTrace"), "attention"),
    **dict.fromkeys(("multi_head", "residual", "MultiHeadTrace"), "heads"),
    **dict.fromkeys(
        ("LabkitError", "ShapeError", "MaskError", "NonFiniteError", "EmptyRowError"),
        "errors",
    ),
    **dict.fromkeys(("worked_example", "fresh_example", "Example"), "exact"),
    "check": "checks",
    "Verdict": "verdict",
    **dict.fromkeys(("reveal",), "journal"),
    "progress": "overview",
    **dict.fromkeys(("me", "variant"), "variants"),
    "practice": "drills",  # a module called practice would take the name of the function
    **{
        module: module
        for module in (
            *("attention", "authoring", "checks", "errors", "exact", "feedback", "figures", "grading", "heads"),
            *("journal", "maps", "masks", "model_figures", "panels", "slips", "steps", "transformer", "variants"),
            "verdict",
        )
            "attention",
            "authoring",
            "checks",
            "errors",
            "exact",
            "feedback",
            "figures",
            "grading",
            "heads",
            "journal",
            "maps",
            "masks",
            "model_figures",
            "panels",
            "slips",
            "steps",
            "transformer",
            "variants",
            "verdict",
        ]
    },
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    home = importlib.import_module(f"labkit.{_HOMES[name]}")
    return home if _HOMES[name] == name else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
